package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/waterclock/waterclock/internal/partlog"
)

// A checkpoint with an epoch has format 2, one without has format 1.
const (
	checkpointFormat      = 2
	plainCheckpointFormat = 1
)

// Checkpoint is written in every step, once for each partition that the step
// touches: how far requests are taken in, and who says so.
//
//	byte     1 or 2, the format
//	16 bytes UUID of the request topic
//	16 bytes UUID of the changelog
//	uvarint  position
//	varint   time
//	text     step                  text = uvarint length, then that many bytes
//	text     group
//	text     owner
//	uvarint  epoch                 format 2 alone, at least 1
//
// varint is zigzag, as in encoding/binary; all numbers have their shortest form.
type Checkpoint struct {
	Request   [16]byte // UUID of the request topic
	Changelog [16]byte // UUID of the changelog topic
	Position  int64    // offset of the next request to read, from 0
	Step      string   // names the step, unique forever
	Group     string   // consumer group of the owner
	Owner     string   // instance that wrote it, for people
	Time      int64    // Unix milliseconds by the owner's clock
	// Epoch is the leader epoch of the last request below Position, none if it is not known.
	Epoch partlog.Epoch
}

// AppendTo appends the bytes of c to dst. Position must not be negative.
func (c *Checkpoint) AppendTo(dst []byte) []byte {
	format := byte(plainCheckpointFormat)
	if c.Epoch > 0 {
		format = checkpointFormat
	}
	dst = append(dst, format)
	dst = append(dst, c.Request[:]...)
	dst = append(dst, c.Changelog[:]...)
	dst = binary.AppendUvarint(dst, uint64(c.Position))
	dst = binary.AppendVarint(dst, c.Time)
	dst = appendText(dst, c.Step)
	dst = appendText(dst, c.Group)
	dst = appendText(dst, c.Owner)
	if c.Epoch > 0 {
		dst = binary.AppendUvarint(dst, uint64(c.Epoch))
	}
	return dst
}

// DecodeCheckpoint reads one checkpoint, which must take all of b; it keeps
// nothing of b. Errors wrap ErrNewerFormat or ErrCorrupt.
func DecodeCheckpoint(b []byte) (Checkpoint, error) {
	d, err := open(b, checkpointFormat)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("decode checkpoint: %w", err)
	}
	c := Checkpoint{Request: d.uuid(), Changelog: d.uuid()}
	c.Position, c.Time = d.offset(), d.varint()
	c.Step, c.Group, c.Owner = d.text(), d.text(), d.text()
	if b[0] == checkpointFormat {
		c.Epoch = partlog.Epoch(d.positive32())
	}
	if err := d.end(); err != nil {
		return Checkpoint{}, fmt.Errorf("decode checkpoint: %w", err)
	}
	return c, nil
}
