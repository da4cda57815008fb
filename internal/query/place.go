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

// Place is a point in a list: a timer's own, or where nobody is. It orders the timers of
// all partitions of a topic, so that pages of several partitions can be merged, and says
// nothing of who answers: it is as good after a restart or a rebalance. A timer keeps its
// place as long as it is the same version: who fires and recurs, is replaced or steered
// has another one. The zero value is before every timer, of either order.
type Place struct {
	order     Order // empty: before every timer
	ref       timer.Ref
	id        string
	partition int32
}

// maxID is the longest ID in bytes.
const maxID = 512

// ErrPlace says that a text is no Place.
var ErrPlace = errors.New("no place in a list of timers")

// DuePlace is a place in the order by due time.
func DuePlace(ref timer.Ref, partition int32) Place {
	return Place{order: ByDue, ref: ref, partition: partition}
}

// IDPlace is a place in the order by ID.
func IDPlace(id []byte, partition int32) Place {
	return Place{order: ByID, id: string(id), partition: partition}
}

// PlaceOf is where a timer stands in a list of that order.
func PlaceOf(o Order, t *Timer) Place {
	if o == ByID {
		return IDPlace(t.ID, t.Partition)
	}
	return DuePlace(t.Ref(), t.Partition)
}

// IsZero reports whether p is before every timer.
func (p Place) IsZero() bool { return p.order == "" }

// Order is the order that p is of; empty for the zero value.
func (p Place) Order() Order { return p.order }

// Ref is the place in the order of firing, of a Place by due time, ID the ID of one by
// ID, Partition the one of both.
func (p Place) Ref() timer.Ref { return p.ref }

// ID is that of a Place by ID.
func (p Place) ID() string { return p.id }

// Partition tells places apart that are the same but for it.
func (p Place) Partition() int32 { return p.partition }

// Compare orders places of one order: -1, 0 or +1.
func (p Place) Compare(o Place) int {
	if p.IsZero() || o.IsZero() {
		return cmp.Compare(len(p.order), len(o.order))
	}
	return cmp.Or(p.ref.Compare(o.ref), strings.Compare(p.id, o.id), cmp.Compare(p.partition, o.partition))
}

// String is the text of a place, which ParsePlace reads: of letters, digits and "._-".
//
//	d.<due>.<offset>.<partition>      decimal
//	i.<partition>.<ID, base64url>
//
// and nothing for the zero value.
func (p Place) String() string {
	switch p.order {
	case ByDue:
		return fmt.Sprintf("d.%d.%d.%d", p.ref.Due, p.ref.Offset, p.partition)
	case ByID:
		return fmt.Sprintf("i.%d.%s", p.partition, base64.RawURLEncoding.EncodeToString([]byte(p.id)))
	}
	return ""
}

// ParsePlace reads what String writes, and nothing else. Errors wrap ErrPlace.
func ParsePlace(text string) (Place, error) {
	if text == "" {
		return Place{}, nil
	}
	var p Place
	var err error
	part := strings.Split(text, ".")
	switch {
	case part[0] == "d" && len(part) == 4:
		var due, offset int64
		var errDue, errOffset error
		due, errDue = strconv.ParseInt(part[1], 10, 64)
		offset, errOffset = strconv.ParseInt(part[2], 10, 64)
		p = DuePlace(timer.Ref{Due: due, Offset: offset}, parsePartition(part[3]))
		err = errors.Join(errDue, errOffset)
	case part[0] == "i" && len(part) == 3:
		var id []byte
		id, err = base64.RawURLEncoding.DecodeString(part[2])
		p = IDPlace(id, parsePartition(part[1]))
	}
	if err != nil || p.partition < 0 || p.order == ByID && (len(p.id) == 0 || len(p.id) > maxID) || p.String() != text {
		return Place{}, fmt.Errorf("%.40q: %w", text, ErrPlace)
	}
	return p, nil
}

// parsePartition returns -1 for what is none.
func parsePartition(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}

// MarshalText implements encoding.TextMarshaler.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Place) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePlace(string(text))
	return err
}
