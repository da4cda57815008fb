package wire

import (
	"encoding/binary"
	"fmt"
)

const (
	claimFormat = 1

	// ClaimRecords is how many records a claim has, one behind the other with
	// nothing between them. The last one names the step, the others name none.
	// They tell a claim from other things that may stand between two steps of an
	// owner who only counts offsets: see package ownership.
	ClaimRecords = 8
)

// Claim is the first thing that an owner writes to a changelog partition. Who
// replays the partition and meets its own claim has seen all that earlier
// owners committed. It holds no position: that of the last checkpoint before it
// counts.
//
//	byte    1, the format
//	varint  generation
//	varint  time
//	text    step, group, owner, member; four times as in Checkpoint
type Claim struct {
	Step       string // names the claim's step, unique forever; see ClaimRecords
	Group      string
	Owner      string // instance, for people
	Member     string // member ID under which the partition was acquired
	Generation int32  // of the group at that time
	Time       int64  // Unix milliseconds by the owner's clock
	// Appended is the record's timestamp, as Replay found it: the broker's clock
	// in Unix milliseconds. It is no part of the bytes.
	Appended int64
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

// DecodeClaim reads one claim, which must take all of b; it keeps nothing of b.
// Errors wrap ErrNewerFormat or ErrCorrupt.
func DecodeClaim(b []byte) (Claim, error) {
	d, err := open(b, claimFormat)
	if err != nil {
		return Claim{}, fmt.Errorf("decode claim: %w", err)
	}
	c := Claim{Generation: d.int32(), Time: d.varint()}
	c.Step, c.Group, c.Owner, c.Member = d.text(), d.text(), d.text(), d.text()
	if err := d.end(); err != nil {
		return Claim{}, fmt.Errorf("decode claim: %w", err)
	}
	return c, nil
}
