package partition

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/waterclock/waterclock/internal/partition/planner"
)

const (
	// arrivalGrain is the least time between two arrivals, in ms. A timer that is late by no more than that is not
	// late.
	arrivalGrain = 8
	// maxArrivals is how many are remembered. Half of them are forgotten at a time, so they cover the last
	// 16 s at least.
	maxArrivals = 4096
)

// arrivals remembers when requests were read, by their offsets. No timer can fire before its request was
// read, so lateness by our own doing counts from then at the earliest.
type arrivals struct {
	opened atomic.Int64 // when the catch-up barrier opened, Unix ms: timers that were due by then were missed

	mu   sync.Mutex // guards list
	list []arrival  // by offset, and by time unless the clock was set back
}

// arrival says when the requests below an offset were read, from that of the previous arrival on: at that moment, or up
// to arrivalGrain later.
type arrival struct {
	below int64
	at    int64 // Unix ms
}

// newArrivals returns arrivals of requests that are read from an offset on.
func newArrivals(from int64) *arrivals {
	a := &arrivals{list: []arrival{{from, math.MinInt64}}}
	a.opened.Store(math.MaxInt64)
	return a
}

// read notes that everything below an offset is read by now.
func (a *arrivals) read(below, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.list)
	if n > 1 && now >= a.list[n-1].at && now < a.list[n-1].at+arrivalGrain { // sooner: the clock was set back
		a.list[n-1].below = below
		return
	}
	if n == maxArrivals {
		a.list = slices.Delete(a.list, 0, n/2)
	}
	a.list = append(a.list, arrival{below, now})
}

// at returns when the request at an offset was read, in Unix ms. It is math.MinInt64 if that is not
// remembered, or if the timer was moved here.
func (a *arrivals) at(offset int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, _ := slices.BinarySearchFunc(a.list, offset, func(x arrival, offset int64) int {
		if x.below <= offset {
			return -1
		}
		return 1
	})
	if i == 0 || i == len(a.list) {
		return math.MinInt64
	}
	return a.list[i].at
}

// ownDue returns from when on a firing counts as late by our own doing, given when its step was sealed (both in Unix
// ms): from its due time, or from when its request was read if that is later. ours is false for timers that were missed
// while no instance ran, that waited for their target, or that were steered.
func (a *arrivals) ownDue(sealed int64, e *planner.Entry) (due int64, ours bool) {
	due = e.Emit.FiresAt()
	if due <= a.opened.Load() || e.Tag != nil || e.Emit.Steering != nil {
		return 0, false
	}
	if sealed-due > arrivalGrain {
		due = max(due, a.at(e.Emit.Offset))
	}
	return due, true
}

// notOpenedAhead corrects the time at which the catch-up barrier opened, if the clock was set back since: timers that
// fall due from now on were not missed.
func (a *arrivals) notOpenedAhead(now int64) {
	if at := a.opened.Load(); now < at && at != math.MaxInt64 {
		a.opened.CompareAndSwap(at, now)
	}
}
