package query

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/waterclock/waterclock/internal/timer"
)

// Page asks for a part of a list.
type Page struct {
	Filter Filter
	Order  Order  // empty: ByDue
	Limit  int    // of timers, or of those that a count examines; less than 1: the most that one answer may have
	After  Cursor // the last cursor of the previous page; zero: from the beginning
	Bytes  int    // limits the timers, without payloads; a single larger timer is returned alone; 0: no limit
}

// List is a page: timers in order, and the start of the next page. A zero Next means that there are no more. Any
// other Next promises nothing: a query examines a limited number of timers, so a page can be short, or empty,
// although more follow.
type List struct {
	Timers []*Timer `json:"timers,omitempty"`
	Next   Cursor   `json:"next"`
}

// Cut shortens the list to that many bytes, payloads not counted, but keeps at least one timer. With bytes 0 it does
// nothing.
func (l *List) Cut(o Order, bytes int) {
	if bytes <= 0 {
		return
	}
	for i, t := range l.Timers {
		if bytes -= shownSize(t); bytes < 0 && i > 0 {
			clear(l.Timers[i:])
			l.Timers, l.Next = l.Timers[:i], CursorOf(o, l.Timers[i-1])
			return
		}
	}
}

// Size returns the bytes of memory that the list's timers take, payloads not counted.
func (l *List) Size() (n int) {
	for _, t := range l.Timers {
		n += shownSize(t)
	}
	return n
}

func shownSize(t *Timer) int { return t.Size() - len(t.Value) }

// Merge merges the pages of several partitions that answered the same query. A timer after the Next of a partition
// must wait, because that partition may have others before it.
func Merge(o Order, limit int, parts []List) List {
	if o == "" {
		o = ByDue
	}
	var all List
	for _, l := range parts {
		if !l.Next.IsZero() && (all.Next.IsZero() || l.Next.Compare(all.Next) < 0) {
			all.Next = l.Next
		}
		all.Timers = append(all.Timers, l.Timers...)
	}
	slices.SortFunc(all.Timers, func(a, b *Timer) int { return CursorOf(o, a).Compare(CursorOf(o, b)) })
	n, _ := slices.BinarySearchFunc(all.Timers, all.Next, func(t *Timer, end Cursor) int {
		if end.IsZero() || CursorOf(o, t).Compare(end) <= 0 {
			return -1
		}
		return 1
	})
	if limit > 0 && n > limit {
		n = limit
		all.Next = CursorOf(o, all.Timers[n-1])
	}
	all.Timers = all.Timers[:n:n]
	return all
}

// Count is a number of timers. If it is not Exact there are more: a query examines a limited number of timers.
type Count struct {
	N     int64
	Exact bool
}

// Cursor is a position in a list: a timer's own, or one between timers. It orders the timers of all partitions of a
// topic, so pages of several partitions can be merged. It does not depend on the instance that answers, so it stays
// valid after a restart or a rebalance. A timer keeps its cursor while it is the same version: once it fires and
// recurs, or is replaced or steered, it has another one. The zero value is before every timer, in either order.
type Cursor struct {
	Order     Order     // of the list; empty: before every timer
	Ref       timer.Ref // ByDue: the position in the order of firing
	ID        string    // ByID: the timer's ID
	Partition int32     // distinguishes cursors that are otherwise equal
}

// maxID is the length of the longest ID, in bytes.
const maxID = 512

// ErrCursor means that a text is not a Cursor.
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

// String formats a cursor as text that ParseCursor reads, of letters, digits and "._-":
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

// ParseCursor reads the format of String, and nothing else. Errors wrap ErrCursor.
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

// parsePartition returns -1 if the text is not a partition.
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
