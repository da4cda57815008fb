package partition

import (
	"math"
	"slices"
	"sync"

	"github.com/waterclock/waterclock/internal/planner"
)

const (
	// arrivalGrain is how far apart two arrivals are at least, in ms.
	arrivalGrain = 8
	// maxArrivals is how many are remembered: those of half a minute at least.
	maxArrivals = 4096
)

// arrivals remembers when requests were read, by their offsets. A firing can be no earlier than its
// request was read: only what comes after that is lateness of our own. mu guards all of it.
type arrivals struct {
	mu   sync.Mutex
	list []arrival // in order of both fields
}

// arrival says that the requests below an offset, from that of the arrival before it on, were read at a
// moment, or up to arrivalGrain behind it.
type arrival struct {
	below int64
	at    int64 // Unix ms
}

// begin says that requests are read from an offset on.
func (a *arrivals) begin(from int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = []arrival{{from, math.MinInt64}}
}

// read notes that everything below an offset is read by now.
func (a *arrivals) read(below, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.list)
	if n > 1 && now < a.list[n-1].at+arrivalGrain { // the clock may have gone back: that counts as no time
		a.list[n-1].below = below
		return
	}
	if n == maxArrivals {
		a.list = slices.Delete(a.list, 0, n/2)
	}
	a.list = append(a.list, arrival{below, now})
}

// at returns when the request at an offset was read; long ago if that is not remembered, as of a timer that was
// moved here.
func (a *arrivals) at(offset int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, _ := slices.BinarySearchFunc(a.list, offset, func(x arrival, offset int64) int {
		if x.below <= offset {
			return -1
		}
		return 1
	})
	if i == 0 || i == len(a.list) { // before the first one all is long ago
		return math.MinInt64
	}
	return a.list[i].at
}

// late reports whether timers wait, in any sub, that are late by our own doing: they ought to have been sealed
// before. It looks at what fires next. What was missed while nobody ran counts from when the gate opened: what has
// fallen due since then waits behind it, for timers fire in the order of their due times.
func (p *Partition) late(now int64) bool {
	return p.plans.any(func(x *planner.Planner) bool {
		at, ok := x.First(now)
		return ok && now-max(at.Due, p.arrivals.at(at.Generation()), p.opened.Load()) > arrivalGrain
	})
}

// ownLateness tells of the firings of a step, sealed at a moment, how late they are by our own doing: since
// they were due, or since their requests were read. Neither what was missed while nobody
// ran counts, nor what has waited for its target or for a request that steered it.
func (p *Partition) ownLateness(own *tally, sealed int64, e *planner.Entry) {
	due := e.Emit.FiresAt()
	if due <= p.opened.Load() || e.Tag != nil || e.Emit.Steering != nil {
		return
	}
	if sealed-due > arrivalGrain {
		due = max(due, p.arrivals.at(e.Emit.Offset))
	}
	own.add(max(0, sealed-due))
}
