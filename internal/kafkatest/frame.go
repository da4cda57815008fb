package kafkatest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// A frame on the wire, all numbers big-endian:
//
//	request:  size int32 | API key int16 | API version int16 | correlation ID int32 | …
//	response: size int32 | correlation ID int32 | …
//
// size counts what follows it. (Kafka protocol guide, "Protocol Primitives".)
const (
	maxFrame       = 128 << 20 // bytes after the size
	minRequest     = 8
	minResponse    = 4
	sizeLen        = 4
	firstAllocated = 64 << 10 // bytes, so that a lying size costs no memory
)

var errFrameSize = errors.New("frame size out of range")

// readFrame reads one frame, size included, of at least least bytes after it.
func readFrame(r io.Reader, least int) ([]byte, error) {
	var head [sizeLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if int(size) < least || size > maxFrame {
		return nil, fmt.Errorf("%w: %d", errFrameSize, size)
	}
	frame := append(make([]byte, 0, sizeLen+min(int(size), firstAllocated)), head[:]...)
	for rest := int(size); rest > 0; {
		chunk := min(rest, max(firstAllocated, len(frame))) // at most doubles the frame
		at := len(frame)
		frame = slices.Grow(frame, chunk)[:at+chunk]
		if _, err := io.ReadFull(r, frame[at:]); err != nil {
			return nil, fmt.Errorf("read %d bytes of a frame: %w", size, err)
		}
		rest -= chunk
	}
	return frame, nil
}

// requestHeader returns the API key and correlation ID of a request's frame.
func requestHeader(frame []byte) (key int16, correlation int32) {
	return int16(binary.BigEndian.Uint16(frame[4:])), int32(binary.BigEndian.Uint32(frame[8:]))
}

// responseHeader returns the correlation ID of a response's frame.
func responseHeader(frame []byte) int32 {
	return int32(binary.BigEndian.Uint32(frame[4:]))
}
