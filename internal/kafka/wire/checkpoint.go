package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
)

// A checkpoint with an epoch has format 2; without an epoch it has format 1.
const (
	checkpointFormat      = 2
	plainCheckpointFormat = 1
)

// Checkpoint says how far the requests of a partition are processed, and which owner wrote that. Each step writes one
// for each partition that it touches.
//
//	byte     1 or 2, the format
//	UUID     of the request topic
//	UUID     of the changelog
//	uvarint  position
//	varint   time
//	text     step
//	text     group
//	text     owner
//	uvarint  epoch, at least 1; only in format 2
type Checkpoint struct {
	Request   [16]byte // UUID of the request topic
	Changelog [16]byte // UUID of the changelog topic
	Position  int64    // offset of the next request to read, from 0
	Step      string   // names the step, unique forever
	Group     string   // consumer group of the owner
	Owner     string   // instance that wrote it, for information only
	Time      int64    // Unix milliseconds by the owner's clock
	// Epoch is the leader epoch of the last request below Position, zero if it is not known.
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

// DecodeCheckpoint decodes all of b as one checkpoint, which does not share b's memory. Errors wrap
// ErrNewerFormat or ErrCorrupt.
func DecodeCheckpoint(b []byte) (Checkpoint, error) {
	d := open(b, checkpointFormat)
	c := Checkpoint{Request: d.uuid(), Changelog: d.uuid()}
	c.Position, c.Time = d.offset(), d.varint()
	c.Step, c.Group, c.Owner = d.text(), d.text(), d.text()
	if d.err == nil && b[0] == checkpointFormat {
		c.Epoch = partlog.Epoch(d.positive32())
	}
	if err := d.end(); err != nil {
		return Checkpoint{}, fmt.Errorf("decode checkpoint: %w", err)
	}
	return c, nil
}

const (
	claimFormat = 1

	// ClaimRecords is the number of records of a claim, which have consecutive offsets. Only the last one names the
	// step. An owner counts offsets to find out whether another owner wrote between its steps. The number
	// distinguishes a claim from late markers. See package ownership.
	ClaimRecords = 8
)

// Claim is the first record that an owner writes to a changelog partition. When the owner's replay reaches the claim,
// it has seen all commits of earlier owners. A claim has no position: the last checkpoint before it counts.
//
//	byte    1, the format
//	varint  generation
//	varint  time
//	text    step
//	text    group
//	text    owner
//	text    member
type Claim struct {
	Step       string // names the claim's step, unique forever; see ClaimRecords
	Group      string
	Owner      string // instance, for information only
	Member     string // member ID under which the partition was acquired
	Generation int32  // of the group at that time
	Time       int64  // Unix milliseconds by the owner's clock
	// Appended is the record's timestamp, by the broker's clock, in Unix milliseconds, and Leader the leader epoch in
	// which it was written. A replay sets them; they are not part of the bytes.
	Appended int64
	Leader   partlog.Epoch
}

// AppendTo appends the bytes of c to dst.
func (c *Claim) AppendTo(dst []byte) []byte {
	dst = append(dst, claimFormat)
	dst = binary.AppendVarint(dst, int64(c.Generation))
	dst = binary.AppendVarint(dst, c.Time)
	dst = appendText(dst, c.Step)
	dst = appendText(dst, c.Group)
	dst = appendText(dst, c.Owner)
	return appendText(dst, c.Member)
}

// Values are the values of the records of c, in order.
func (c Claim) Values() (values [ClaimRecords][]byte) {
	last := c.AppendTo(nil)
	c.Step = ""
	for i := range values {
		values[i] = c.AppendTo(nil)
	}
	values[ClaimRecords-1] = last
	return values
}

// DecodeClaim decodes all of b as one claim, which does not share b's memory. Errors wrap ErrNewerFormat or
// ErrCorrupt.
func DecodeClaim(b []byte) (Claim, error) {
	d := open(b, claimFormat)
	c := Claim{Generation: d.int32(), Time: d.varint()}
	c.Step, c.Group, c.Owner, c.Member = d.text(), d.text(), d.text(), d.text()
	if err := d.end(); err != nil {
		return Claim{}, fmt.Errorf("decode claim: %w", err)
	}
	return c, nil
}
