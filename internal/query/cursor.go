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
	order     Order // empty: before every timer
	ref       timer.Ref
	id        string
	partition int32
}

// maxID is the length of the longest ID, in bytes.
const maxID = 512

// ErrCursor says that a text is no Cursor.
var ErrCursor = errors.New("no place in a list of timers")

// DueCursor returns a cursor in the order by due time.
func DueCursor(ref timer.Ref, partition int32) Cursor {
	return Cursor{order: ByDue, ref: ref, partition: partition}
}

// IDCursor returns a cursor in the order by ID.
func IDCursor(id []byte, partition int32) Cursor {
	return Cursor{order: ByID, id: string(id), partition: partition}
}

// CursorOf returns the cursor of a timer in a list of that order.
func CursorOf(o Order, t *Timer) Cursor {
	if o == ByID {
		return IDCursor(t.ID, t.Partition)
	}
	return DueCursor(t.Ref(), t.Partition)
}

// IsZero reports whether p is before every timer.
func (p Cursor) IsZero() bool { return p.order == "" }

// Order returns the order of the list; empty for the zero value.
func (p Cursor) Order() Order { return p.order }

// Ref returns the position in the order of firing, of a cursor by due time.
func (p Cursor) Ref() timer.Ref { return p.ref }

// ID returns the timer ID of a cursor by ID.
func (p Cursor) ID() string { return p.id }

// Partition returns the partition. It tells cursors apart that are the same otherwise.
func (p Cursor) Partition() int32 { return p.partition }

// Compare compares cursors of one order: -1, 0 or +1.
func (p Cursor) Compare(o Cursor) int {
	if p.IsZero() || o.IsZero() {
		return cmp.Compare(len(p.order), len(o.order))
	}
	return cmp.Or(p.ref.Compare(o.ref), strings.Compare(p.id, o.id), cmp.Compare(p.partition, o.partition))
}

// String writes a cursor as a text that ParseCursor reads, of letters, digits and "._-":
//
//	d.<due>.<offset>.<partition>      decimal
//	i.<partition>.<ID, base64url>
//
// It is empty for the zero value.
func (p Cursor) String() string {
	switch p.order {
	case ByDue:
		return fmt.Sprintf("d.%d.%d.%d", p.ref.Due, p.ref.Offset, p.partition)
	case ByID:
		return fmt.Sprintf("i.%d.%s", p.partition, base64.RawURLEncoding.EncodeToString([]byte(p.id)))
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
		p = DueCursor(timer.Ref{Due: due, Offset: offset}, parsePartition(part[3]))
		err = errors.Join(errDue, errOffset)
	case part[0] == "i" && len(part) == 3:
		var id []byte
		id, err = base64.RawURLEncoding.DecodeString(part[2])
		p = IDCursor(id, parsePartition(part[1]))
	}
	if err != nil || p.partition < 0 || p.order == ByID && (len(p.id) == 0 || len(p.id) > maxID) || p.String() != text {
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
func (p Cursor) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Cursor) UnmarshalText(text []byte) (err error) {
	*p, err = ParseCursor(string(text))
	return err
}
