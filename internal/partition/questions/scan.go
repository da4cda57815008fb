package questions

import (
	"context"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// A scan lets other goroutines run every yieldRows rows. Every slotRows it gives its slot back and takes one again.
	yieldRows, slotRows = 256, 1024
	// seekRows is how many rows a look-up of one row counts as.
	seekRows = 4
)

// scan goes through the rows of a view, except those for whose IDs the reading has something newer.
type scan struct {
	*reading
	partition int32
	slot      *Slot
	f         *query.Filter
	after     query.Cursor
	rows      int // how many more it may look at
	yields    int

	reached query.Cursor // the last row that was looked at
}

// fits reports whether a row may be looked at, and lets others run now and then.
func (s *scan) fits(ctx context.Context, rows int) (bool, error) {
	if s.rows -= rows; s.rows < 0 {
		return false, nil
	}
	switch s.yields++; {
	case s.yields%slotRows == 0:
		return true, s.slot.Rest(ctx)
	case s.yields%yieldRows == 0:
		runtime.Gosched()
	}
	return true, nil
}

// visit calls look for a place. It passes over a place at or before the cursor, and stops when the scan has looked at
// enough rows. It reports whether the scan may go on.
func (s *scan) visit(ctx context.Context, place query.Cursor, look func() (bool, error)) (more bool, err error) {
	if place.Compare(s.after) <= 0 {
		return true, nil
	}
	if more, err = s.fits(ctx, 1); !more || err != nil {
		return false, err
	}
	if more, err = look(); more {
		s.reached = place
	}
	return more, err
}

// span is a part of the order of firing, of the parked rows or of the others.
type span struct {
	from, to timer.Ref
	parked   bool
}

// spans returns the parts of the order in which a filter may match timers. Triggered timers are below all scheduled
// ones, and paused timers above, whenever they are due.
func spans(f *query.Filter) []span {
	triggered := span{from: planner.Lowest, to: timer.AboveTriggered}
	scheduled := span{from: timer.AboveTriggered, to: timer.BelowPaused}
	paused := span{from: timer.BelowPaused, to: planner.Highest}
	// The caller may name any instant, so triggered and paused timers have spans of their own.
	if from := (timer.Ref{Due: f.DueAfter, Offset: planner.Lowest.Offset}); f.DueAfter != 0 &&
		from.Compare(scheduled.from) > 0 {
		scheduled.from = from
	}
	if to := (timer.Ref{Due: f.DueBefore, Offset: planner.Lowest.Offset}); f.DueBefore != 0 &&
		to.Compare(scheduled.to) < 0 {
		scheduled.to = to
	}
	switch f.State {
	case query.Triggered:
		return []span{triggered}
	case query.Pending, query.Remembered:
		return []span{scheduled}
	case query.Paused:
		return []span{paused}
	case query.Parked, query.Deferred:
		triggered.parked, scheduled.parked = true, true
		return []span{triggered, scheduled}
	}
	return []span{triggered, scheduled, paused}
}

// byDue calls fn with each row that matches, in order, until fn returns false or enough rows were looked at. done says
// that there are no more.
func (s *scan) byDue(
	ctx context.Context, fn func(ref timer.Ref, row *statestore.Row) (more bool, err error)) (done bool, err error) {
	all, done := *s.f == (query.Filter{}), true
	for _, x := range spans(s.f) {
		if from := s.after.Ref; !s.after.IsZero() && x.from.Compare(from) < 0 {
			x.from = from
		}
		if !done || x.from.Compare(x.to) >= 0 {
			continue
		}
		err = s.view.Due(x.from, x.to, x.parked, func(row *statestore.Row) (more bool, err error) {
			place := query.Cursor{Order: query.ByDue, Ref: row.Ref, Partition: s.partition}
			done, err = s.visit(ctx, place, func() (bool, error) {
				known := row.Ref.IsRemembered() != (s.f.State == query.Remembered)
				if !known {
					known, err = s.known(row)
				}
				if err == nil && !known && !all {
					known, err = s.excludes(row)
				}
				if err != nil || known {
					return true, err
				}
				return fn(row.Ref, row)
			})
			return done, err
		})
		if err != nil {
			return false, err
		}
	}
	return done, nil
}

// known reports whether something newer than the row decides about its ID.
func (s *scan) known(row *statestore.Row) (bool, error) {
	if len(s.unflushed.All()) == 0 {
		return false, nil
	}
	id, err := row.ID()
	return err == nil && s.unflushed.Has(id), err
}

// excludes reports whether the filter does not match a row.
func (s *scan) excludes(row *statestore.Row) (bool, error) {
	t, err := row.Peek()
	if err != nil {
		return false, err
	}
	return !s.f.Match(&query.Timer{Timer: t, State: query.StateOf(t, row.ParkedFor)}), nil
}

// byID is byDue in the order of the IDs. Rows are read only if the filter needs that or whole is set; otherwise fn gets
// nil for the row.
func (s *scan) byID(ctx context.Context, whole bool,
	fn func(id []byte, row *statestore.Row) (more bool, err error)) (done bool, err error) {
	rest := *s.f
	rest.Prefix = ""
	all := rest == query.Filter{}
	done = true
	err = s.view.IDs([]byte(s.after.ID), []byte(s.f.Prefix),
		func(id []byte, at statestore.Location) (more bool, err error) {
			place := query.Cursor{Order: query.ByID, ID: string(id), Partition: s.partition}
			done, err = s.visit(ctx, place, func() (bool, error) {
				if s.unflushed.Has(id) || !s.mayMatch(at) {
					return true, nil
				}
				if !whole && all {
					return fn(id, nil)
				}
				if fits, err := s.fits(ctx, seekRows); !fits || err != nil {
					return false, err
				}
				row, err := s.view.Row(at)
				skip := false
				if err == nil && !all {
					skip, err = s.excludes(row)
				}
				if err != nil || skip {
					return true, err
				}
				return fn(id, row)
			})
			return done, err
		})
	return done && err == nil, err
}

// mayMatch reports, by the location of a row alone, whether the filter may match it.
func (s *scan) mayMatch(at statestore.Location) bool {
	ref := at.Ref()
	if ref.IsRemembered() != (s.f.State == query.Remembered) {
		return false
	}
	switch s.f.State {
	case query.Parked, query.Deferred:
		if !at.Parked() {
			return false
		}
	case query.Pending:
		if at.Parked() {
			return false
		}
	}
	return slices.ContainsFunc(
		spans(s.f), func(x span) bool { return ref.Compare(x.from) >= 0 && ref.Compare(x.to) < 0 })
}

// maxRest is how long a slot rests at most.
const maxRest = 10 * time.Millisecond

// A Slot lets its holder scan; few exist at a time. When a slot is given back it rests for as long as it was used. So
// scans take half of a slot's processor at most, however many callers there are and however often they ask, and due
// timers find a processor free.
type Slot struct {
	total *semaphore.Weighted // nil: there is no limit
	since time.Time
}

// NewSlot returns a Slot that is not taken yet. total counts the slots that are taken; if it is nil, there is no limit.
func NewSlot(total *semaphore.Weighted) *Slot { return &Slot{total: total} }

// Take waits for a slot that is free.
func (s *Slot) Take(ctx context.Context) error {
	if s.total != nil {
		if err := s.total.Acquire(ctx, 1); err != nil {
			return err
		}
	}
	s.since = time.Now()
	return ctx.Err()
}

// Give gives the slot back. It may be called repeatedly, or without a Take.
func (s *Slot) Give() {
	if s.total != nil && !s.since.IsZero() {
		total := s.total
		time.AfterFunc(min(maxRest, time.Since(s.since)), func() { total.Release(1) })
	}
	s.since = time.Time{}
}

// Rest gives the slot back and takes one again.
func (s *Slot) Rest(ctx context.Context) error {
	s.Give()
	return s.Take(ctx)
}
