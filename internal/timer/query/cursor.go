package query

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/waterclock/waterclock/internal/timer"
)

// Cursor is a position in a list: a timer's own, or one between timers. It orders the timers of
// all partitions of a topic, so pages of several partitions can be merged. It does not depend on who
// answers, so it stays good after a restart or a rebalance. A timer keeps its cursor while it is the
// same version: once it fires and recurs, or is replaced or steered, it has another one. The zero
// value is before every timer, in either order.
type Cursor struct {
	Order     Order     // of the list; empty: before every timer
	Ref       timer.Ref // ByDue: the position in the order of firing
	ID        string    // ByID: the timer's ID
	Partition int32     // tells cursors apart that are the same otherwise
}

// maxID is the length of the longest ID, in bytes.
const maxID = 512

// ErrCursor says that a text is no Cursor.
var ErrCursor = errors.New("no place in a list of timers")

// CursorOf returns the cursor of a timer in a list of that order.
func CursorOf(o Order, t *Timer) Cursor {
	if o == ByID {
		return Cursor{Order: ByID, ID: string(t.ID), Partition: t.Partition}
	}
	return Cursor{Order: ByDue, Ref: t.Ref(), Partition: t.Partition}
}

// IsZero reports whether p is before every timer.
func (c Cursor) IsZero() bool { return c.Order == "" }

// Compare compares cursors of one order: -1, 0 or +1.
func (c Cursor) Compare(o Cursor) int {
	if c.IsZero() || o.IsZero() {
		return cmp.Compare(len(c.Order), len(o.Order))
	}
	return cmp.Or(c.Ref.Compare(o.Ref), strings.Compare(c.ID, o.ID), cmp.Compare(c.Partition, o.Partition))
}

// String writes a cursor as a text that ParseCursor reads, of letters, digits and "._-":
//
//	d.<due>.<offset>.<partition>      decimal
//	i.<partition>.<ID, base64url>
//
// It is empty for the zero value.
func (c Cursor) String() string {
	switch c.Order {
	case ByDue:
		return fmt.Sprintf("d.%d.%d.%d", c.Ref.Due, c.Ref.Offset, c.Partition)
	case ByID:
		return fmt.Sprintf("i.%d.%s", c.Partition, base64.RawURLEncoding.EncodeToString([]byte(c.ID)))
	}
	return ""
}

// ParseCursor reads what String writes, and nothing else. Errors wrap ErrCursor.
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	var p Cursor
	var err error
	part := strings.Split(text, ".")
	switch {
	case part[0] == "d" && len(part) == 4:
		var due, offset int64
		var errDue, errOffset error
		due, errDue = strconv.ParseInt(part[1], 10, 64)
		offset, errOffset = strconv.ParseInt(part[2], 10, 64)
		p = Cursor{Order: ByDue, Ref: timer.Ref{Due: due, Offset: offset}, Partition: parsePartition(part[3])}
		err = errors.Join(errDue, errOffset)
	case part[0] == "i" && len(part) == 3:
		var id []byte
		id, err = base64.RawURLEncoding.DecodeString(part[2])
		p = Cursor{Order: ByID, ID: string(id), Partition: parsePartition(part[1])}
	}
	if err != nil || p.Partition < 0 || p.Order == ByID && (len(p.ID) == 0 || len(p.ID) > maxID) || p.String() != text {
		return Cursor{}, fmt.Errorf("%.40q: %w", text, ErrCursor)
	}
	return p, nil
}

// parsePartition returns -1 if the text is no partition.
func parsePartition(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}

// MarshalText implements encoding.TextMarshaler.
func (c Cursor) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Cursor) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCursor(string(text))
	return err
}
