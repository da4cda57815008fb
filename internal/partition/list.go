package partition

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/query"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// maxPage is how many timers one page may have, and maxPageBytes how many bytes they may hold. A single timer may be
	// larger.
	maxPage      = 10_000
	maxPageBytes = 8 << 20
	// maxPageRows is how many rows of the store are looked at for one page.
	maxPageRows = 20_000
	// maxCountRows is the same for a count. A thousand rows take some 300 µs.
	maxCountRows = 1_000_000
)

// List returns pending timers as of one committed state, in order. If that would be too much for one answer, it returns
// fewer than the caller asked for, maybe none, and Next says where to go on. Errors are those of Get, and one for a
// cursor of another order.
func (q *Questions) List(ctx context.Context, page query.Page) (query.List, error) {
	a, err := q.begin(ctx)
	if err != nil {
		return query.List{}, err
	}
	if page.Order == "" {
		page.Order = query.ByDue
	}
	if at := page.After.Order(); page.Order != query.ByDue && page.Order != query.ByID || at != "" && at != page.Order {
		return query.List{}, fmt.Errorf("list in the order %q, after a place in the order %q: they must be the same, %s or %s", page.Order, at, query.ByDue, query.ByID)
	}
	if page.Limit < 1 || page.Limit > maxPage {
		page.Limit = maxPage
	}
	var list query.List
	s := &slot{of: q.o.Scans}
	err = a.read(ctx, a.pages, s, func(r *reading) (err error) {
		b := &builder{a: a, page: &page, slot: s}
		list, err = b.build(ctx, r)
		return err
	})
	if err != nil {
		return query.List{}, err
	}
	return list, nil
}

// builder makes a page of the store's rows and of the timers that the store may lack.
type builder struct {
	a     *answers
	page  *query.Page
	slot  *slot
	over  []timer.Change // timers that the store may lack, not in the page yet
	cut   bool           // there are more than those
	list  query.List
	bytes int // size of the page's timers
	shown int // the same without payloads
}

func (b *builder) build(ctx context.Context, r *reading) (query.List, error) {
	if err := b.findOver(ctx, r); err != nil {
		return query.List{}, err
	}
	s := &scan{a: b.a, reading: r, slot: b.slot, f: &b.page.Filter, after: b.page.After, rows: maxPageRows, reached: b.page.After}
	take := func(row *statestore.Row, before func(*timer.Change) bool) (more bool, err error) {
		if !b.takeOver(before) {
			return false, nil
		}
		t, err := row.Timer()
		if err != nil {
			return false, err
		}
		return b.add(t, row.Parked), nil
	}
	var done bool
	var err error
	if b.page.Order == query.ByID {
		done, err = s.byID(ctx, true, func(id []byte, row *statestore.Row) (bool, error) {
			return take(row, func(x *timer.Change) bool { return bytes.Compare(x.ID, id) < 0 })
		})
	} else {
		done, err = s.byDue(ctx, func(ref timer.Ref, row *statestore.Row) (bool, error) {
			return take(row, func(x *timer.Change) bool { return x.After.Compare(ref) < 0 })
		})
	}
	if err != nil {
		return query.List{}, err
	}
	rest := func(x *timer.Change) bool {
		return done || b.place(x.Timer).Compare(s.reached) <= 0
	}
	switch {
	case b.full(), !b.takeOver(rest):
		if n := len(b.list.Timers); !done || len(b.over) > 0 || b.cut {
			b.list.Next = query.CursorOf(b.page.Order, b.list.Timers[n-1])
		}
	case !done:
		b.list.Next = s.reached
	}
	return b.list, nil
}

// findOver finds the first timers that the store may lack and that the page may have, in order.
func (b *builder) findOver(ctx context.Context, r *reading) error {
	page, by := b.page, byDue
	if page.Order == query.ByID {
		by = byID
	}
	start := timer.Change{ID: []byte(page.After.ID()), After: page.After.Ref()}
	ties := b.a.o.Partition > page.After.Partition()
	var last *timer.Change // what is behind it is not among the first
	found := b.over
	trim := func() {
		slices.SortFunc(found, by)
		if len(found) > page.Limit {
			clear(found[page.Limit:])
			found, b.cut = found[:page.Limit], true
			end := found[page.Limit-1]
			last = &end
		}
	}
	err := r.each(ctx, b.slot, func(x timer.Change) {
		if x.After.IsAbsent() || last != nil && by(x, *last) > 0 {
			return
		}
		if c := by(x, start); !page.After.IsZero() && (c < 0 || c == 0 && !ties) {
			return
		}
		x.Timer = planner.TimerOf(&x)
		if !page.Filter.Match(&query.Timer{Timer: x.Timer, State: stateOf(x.Timer, false)}) {
			return
		}
		if found = append(found, x); len(found) >= 2*page.Limit+1000 {
			trim()
		}
	})
	trim()
	b.over = found
	return err
}

func byDue(a, b timer.Change) int { return a.After.Compare(b.After) }

func byID(a, b timer.Change) int { return bytes.Compare(a.ID, b.ID) }

func (b *builder) place(t *timer.Timer) query.Cursor {
	return query.CursorOf(b.page.Order, &query.Timer{Timer: t, Partition: b.a.o.Partition})
}

// takeOver adds the first timers that the store may lack, as long as before holds for them. It reports whether there is
// room for more.
func (b *builder) takeOver(before func(*timer.Change) bool) bool {
	for len(b.over) > 0 && before(&b.over[0]) {
		if b.full() {
			return false
		}
		b.add(b.over[0].Timer, false)
		b.over = b.over[1:]
	}
	return !b.full()
}

// add adds a timer to the page, and reports whether there is room for more.
func (b *builder) add(t *timer.Timer, parked bool) bool {
	b.list.Timers = append(b.list.Timers, b.a.q.show(t, parked))
	b.bytes += t.Size()
	b.shown += t.Size() - len(t.Value)
	return !b.full()
}

func (b *builder) full() bool {
	return len(b.list.Timers) >= b.page.Limit || b.bytes >= maxPageBytes || b.page.Bytes > 0 && b.shown >= b.page.Bytes
}

// Count counts the pending timers that a filter matches. Without a filter that costs nothing; otherwise it takes one scan,
// which has a limit. Errors are those of Get.
func (q *Questions) Count(ctx context.Context, f query.Filter) (query.Count, error) {
	a, err := q.begin(ctx)
	if err != nil {
		return query.Count{}, err
	}
	if f == (query.Filter{}) {
		return query.Count{N: a.subs.pending(), Exact: true}, a.still(ctx, nil)
	}
	var n int64
	done := true
	err = a.counting(ctx, &f, func(*timer.Timer) { n++ }, func(s *scan) (err error) {
		if f.Prefix != "" {
			done, err = s.byID(ctx, false, func([]byte, *statestore.Row) (bool, error) { n++; return true, nil })
		} else {
			done, err = s.byDue(ctx, func(timer.Ref, *statestore.Row) (bool, error) { n++; return true, nil })
		}
		return err
	})
	if err != nil {
		return query.Count{}, err
	}
	return query.Count{N: n, Exact: done}, nil
}

// counting calls fn with each timer that the store may lack and that a filter matches, and then rows with a scan of the
// others.
func (a *answers) counting(ctx context.Context, f *query.Filter, fn func(*timer.Timer), rows func(*scan) error) error {
	s := &slot{of: a.q.o.Scans}
	return a.read(ctx, a.counts, s, func(r *reading) error {
		err := r.each(ctx, s, func(x timer.Change) {
			if t := planner.TimerOf(&x); t != nil && f.Match(&query.Timer{Timer: t, State: stateOf(t, false)}) {
				fn(t)
			}
		})
		if err != nil {
			return err
		}
		return rows(&scan{a: a, reading: r, f: f, rows: maxCountRows, slot: s})
	})
}

// CountUntil counts the timers that fire before each of some instants: those that are due by then or triggered, and not
// paused. The instants are in Unix ms and ascend. It takes one scan, which has a limit. Errors are those of Get.
func (q *Questions) CountUntil(ctx context.Context, f query.Filter, bounds []int64) ([]query.Count, error) {
	a, err := q.begin(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.IsSorted(bounds) {
		return nil, fmt.Errorf("count until %d: the instants must ascend", bounds)
	}
	counts := make([]query.Count, len(bounds))
	// By refs: those of triggered timers are below every instant, those of paused timers above.
	count := func(ref timer.Ref) (within bool) {
		i, _ := slices.BinarySearch(bounds, ref.Due+1)
		if i == len(bounds) {
			return false
		}
		counts[i].N++
		return true
	}
	done, beyond := true, false
	var reached query.Cursor
	err = a.counting(ctx, &f, func(t *timer.Timer) { count(t.Ref()) }, func(s *scan) (err error) {
		done, err = s.byDue(ctx, func(ref timer.Ref, _ *statestore.Row) (bool, error) {
			beyond = !count(ref)
			return !beyond, nil
		})
		reached = s.reached
		return err
	})
	if err != nil {
		return nil, err
	}
	var n int64
	for i, bound := range bounds {
		n += counts[i].N
		counts[i] = query.Count{N: n, Exact: done || beyond || !reached.IsZero() && bound <= reached.Ref().Due}
	}
	return counts, nil
}
