package kafkatest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
)

// maxInFlight is how many requests of one connection may be on their way before the client's writes block, as they do
// when a socket's buffer is full.
const maxInFlight = 1024

// link is one connection through a wire. The client's bytes are read immediately and queued as frames, so a client sees
// a held request as written.
type link struct {
	wire   *Wire
	client net.Conn // the wire's end of a pipe
	broker net.Conn
	frames chan []byte // requests; closed when the client has closed

	once sync.Once
	done chan struct{} // closed by close

	mu    sync.Mutex      // guards the fields below
	asked map[int32]int16 // API key by correlation ID, of requests without an answer
}

func newLink(w *Wire, client, broker net.Conn) *link {
	return &link{
		wire: w, client: client, broker: broker,
		frames: make(chan []byte, maxInFlight),
		done:   make(chan struct{}),
		asked:  map[int32]int16{},
	}
}

// run carries frames until the connection has ended.
//
// When the client closes, its last bytes still go to the broker, whose side is closed after the last request and read
// to its end. When the broker closes, or a fault cuts, both ends close immediately.
func (l *link) run() {
	var wg sync.WaitGroup
	wg.Go(l.takeRequests)
	wg.Go(func() { l.carryResponses(); l.close() })
	half, ok := l.broker.(interface{ CloseWrite() error })
	if !l.carryRequests() || !ok { // a pipe cannot be half closed, and everything written to it was read
		l.close()
	} else {
		_ = half.CloseWrite()
	}
	wg.Wait()
}

func (l *link) takeRequests() {
	defer close(l.frames)
	r := bufio.NewReader(l.client)
	for {
		frame, err := readFrame(r, minRequest)
		if err != nil {
			return
		}
		select {
		case l.frames <- frame:
		case <-l.done:
			return
		}
	}
}

// carryRequests returns false if the connection must break.
func (l *link) carryRequests() bool {
	for frame := range l.frames {
		key, correlation := requestHeader(frame)
		if !l.wire.admit(toBroker, key) {
			return false
		}
		l.ask(correlation, key)
		if _, err := l.broker.Write(frame); err != nil {
			return false
		}
	}
	return true
}

// carryResponses goes on reading after the client has gone: closing with answers unread would reset the connection, and
// the broker could then lose a request that is still on its way.
func (l *link) carryResponses() {
	r := bufio.NewReader(l.broker)
	for {
		frame, err := readFrame(r, minResponse)
		if err != nil {
			return
		}
		if !l.wire.admit(toClient, l.answered(responseHeader(frame))) {
			return
		}
		_, _ = l.client.Write(frame)
	}
}

func (l *link) ask(correlation int32, key int16) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[correlation] = key
}

// unasked is the API key of a response to no known request.
const unasked = -1

func (l *link) answered(correlation int32) int16 {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, ok := l.asked[correlation]
	if !ok {
		return unasked
	}
	delete(l.asked, correlation)
	return key
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.done)
		_ = l.client.Close()
		_ = l.broker.Close()
	})
}

// A frame on the wire, all numbers big-endian:
//
//	request:  size int32 | API key int16 | API version int16 | correlation ID int32 | …
//	response: size int32 | correlation ID int32 | …
//
// size does not count itself. (Kafka protocol guide, "Protocol Primitives".)
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
