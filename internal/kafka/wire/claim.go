package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
)

const (
	claimFormat = 1

	// ClaimRecords is the number of records of a claim, which have consecutive offsets. Only the last one names the
	// step. An owner counts offsets to find out whether another owner wrote between its steps. The number
	// distinguishes a claim from late markers. See package ownership.
	ClaimRecords = 8
)

// Claim is the first record that an owner writes to a changelog partition. When the owner's replay comes to
// the claim, it has seen everything that earlier owners committed. A claim has no position: the last
// checkpoint before it counts.
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
