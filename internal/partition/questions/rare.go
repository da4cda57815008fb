package questions

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// rareTime limits the scan for one page. Callers of the API wait 10 s.
	rareTime = 5 * time.Second
	// rarePause is for how long no scan is tried after one has reached that limit.
	rarePause = time.Minute
	// rowsOfStep is how many rows a scan by due time reads in the time that the order of IDs needs for one of its
	// maxPageRows. A look-up, which counts as seekRows+1 of them, was measured to take as long as 12 rows.
	rowsOfStep = 2
)

// rare makes a page in the order of IDs by a scan by due time. It is for a page that List has not filled in that order
// although it has looked at as many rows as it may: there, each row that the filter has to see is a look-up of its own.
// If few timers match, one pass over all rows costs less than the look-ups for one page. It returns false if that would
// not pay, or has taken too long: then the page that List has stands, which is short, but gets a caller, or a job,
// further. It takes its turn with the questions that count, which cost as much, so other pages do not wait for it.
//
// The page is the one that look-ups would make if they could go on: both read a view that does not change, and an
// overlay that has everything newer, in the order of IDs. The scan meets each row once, whatever its ID, and leaves
// out those that the overlay replaces. Of the IDs behind the cursor that match, it keeps the first ones, up to one
// more than the page has room for. If it finds fewer, the page has all that match. Otherwise the page is full before
// they end.
func (a *answers) rare(ctx context.Context, b *builder) (list query.List, found bool, err error) {
	page := b.page
	steps := int64(page.Limit) * int64(a.pageRows) / int64(len(b.list.Timers)+1)
	if page.Order != query.ByID || !b.cutShort || page.Filter.Prefix != "" || // else few IDs may be left
		steps*rowsOfStep < a.Planners.Pending() || time.Now().UnixNano() < a.notBefore.Load() {
		return list, false, nil
	}
	limit := rareTime
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	scanning, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	scan := &builder{a: a, page: page, slot: NewSlot(a.q.o.Scans), scans: true}
	err = a.read(scanning, a.counts, scan.slot, func(r *reading) error { return scan.build(scanning, r) })
	if err != nil && scanning.Err() != nil && ctx.Err() == nil {
		a.notBefore.Store(time.Now().Add(rarePause).UnixNano())
		return list, false, nil
	}
	return scan.list, err == nil, err
}

// firstByID is byID for the first rows that match, most of them and one more, which it finds by a scan by due time. It
// calls fn only after that.
func (s *scan) firstByID(ctx context.Context, most int,
	fn func(id []byte, row *statestore.Row) (more bool, err error)) (done bool, err error) {
	first := firsts[string]{most: most + 1, by: strings.Compare}
	all := *s
	all.after, all.rows = query.Cursor{}, math.MaxInt
	done, err = all.byDue(ctx, func(_ timer.Ref, row *statestore.Row) (bool, error) {
		id, err := row.ID()
		place := query.Cursor{Order: query.ByID, ID: string(id), Partition: s.partition}
		if err == nil && place.Compare(s.after) > 0 {
			first.add(place.ID)
		}
		return true, err
	})
	if err != nil || !done {
		return false, err
	}
	first.trim()
	for _, id := range first.list {
		var row *statestore.Row
		err := s.view.IDs([]byte(id), []byte(id), func(_ []byte, at statestore.Location) (_ bool, err error) {
			row, err = s.view.Row(at)
			return false, err
		})
		if err == nil && row == nil {
			err = fmt.Errorf("ID %x has a row by due time alone: %w", id, statestore.ErrCorrupt)
		}
		if err != nil {
			return false, err
		}
		if more, err := fn([]byte(id), row); !more || err != nil {
			return false, err
		}
	}
	return len(first.list) <= most, nil
}

// firsts keeps the first values of many. Until trim it may hold more than most of them, in any order. trim leaves the
// first most values, in order.
type firsts[T any] struct {
	most int
	by   func(a, b T) int
	list []T
	cut  bool // there were more
}

// beyond reports whether a value is known not to be among the first.
func (f *firsts[T]) beyond(x T) bool { return f.cut && f.by(x, f.list[f.most-1]) > 0 }

func (f *firsts[T]) add(x T) {
	if f.beyond(x) {
		return
	}
	if f.list = append(f.list, x); len(f.list) >= 2*f.most+1000 {
		f.trim()
	}
}

func (f *firsts[T]) trim() {
	slices.SortFunc(f.list, f.by)
	if len(f.list) > f.most {
		clear(f.list[f.most:])
		f.list, f.cut = f.list[:f.most], true
	}
}
