package questions

import (
	"context"
	"fmt"
	"slices"

	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/statestore"
)

// maxCountRows is how many rows of the store are looked at for one count. A thousand rows take some 300 µs.
const maxCountRows = 1_000_000

// Count counts the pending timers that a filter matches. Without a filter that costs nothing; otherwise it takes one
// scan, of at most limit rows of the store, or of maxCountRows if limit is less than 1 or larger. Errors are those of
// Get.
func (q *Questions) Count(ctx context.Context, f query.Filter, limit int) (query.Count, error) {
	a, err := q.begin(ctx)
	if err != nil {
		return query.Count{}, err
	}
	if f == (query.Filter{}) {
		return query.Count{N: a.Planners.Pending(), Exact: true}, a.confirm(ctx, nil)
	}
	var n int64
	done := true
	err = a.counting(ctx, &f, func(*timer.Timer) { n++ }, func(s *scan) (err error) {
		if limit > 0 {
			s.rows = min(limit, maxCountRows)
		}
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
	s := NewSlot(a.q.o.Scans)
	return a.read(ctx, a.counts, s, func(r *reading) error {
		err := r.each(ctx, s, func(x timer.Change) {
			if t := planner.TimerOf(&x); t != nil && f.Match(&query.Timer{Timer: t, State: query.StateOf(t, "")}) {
				fn(t)
			}
		})
		if err != nil {
			return err
		}
		return rows(&scan{reading: r, partition: a.q.partition(), f: f, rows: maxCountRows, slot: s})
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
		return nil, fmt.Errorf("count until %d: instants not ascending", bounds)
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
		counts[i] = query.Count{N: n, Exact: done || beyond || !reached.IsZero() && bound <= reached.Ref.Due}
	}
	return counts, nil
}
