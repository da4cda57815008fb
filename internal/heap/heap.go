package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// Room is how large a heap may grow before it is collected, whatever is in use.
	Room = 192 << 20
	// Percent is how much garbage there may be in a larger one, in percent of what is
	// in use, up to half as large again: Go's own 100 doubles the peak of a process whose
	// queues are full.
	Percent = 40
	// LeastPercent is how much there may be in one that is larger still.
	LeastPercent = 20
	// maxPercent bounds how much garbage there may be with little in use: what is in use may
	// have grown a lot in one cycle, and then counts with the percentage of before.
	maxPercent = 400
	// liveBytes is what the last collection found in use.
	liveBytes = "/gc/heap/live:bytes"
)

// Tune sets it all up for the process; outside is how many bytes are in use that
// Go's heap does not hold.
func Tune(outside int64) {
	room := int64(Room)
	if limit := limitOf(os.DirFS("/")); limit > 0 {
		room = min(room, limit/4)
		if os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(softLimit(limit, outside))
		}
	}
	if os.Getenv("GOGC") == "" {
		g := &governor{room: uint64(room), set: func(percent int) { debug.SetGCPercent(percent) }}
		g.adjust(0)
		g.watch()
	}
}

// softLimit is what the runtime is told: what is outside, and a tenth for stacks of
// threads, buffers of the kernel and whatever else counts, is not its own.
func softLimit(limit, outside int64) int64 {
	return max(limit/2, limit-limit/10-outside)
}

// governor follows what is in use: its adjust is called after each collection, by a
// goroutine of the runtime's. Until it has run, milliseconds later, on a starved machine
// more, the percentage of before counts: see maxPercent.
type governor struct {
	room uint64
	now  int // percentage that is set
	set  func(percent int)
}

func (g *governor) adjust(live uint64) {
	percent := percentOf(live, g.room)
	near := percent > g.now-g.now/10 && percent < g.now+g.now/10
	if percent == g.now || near && percent != Percent {
		return // setting it stops the world
	}
	g.now = percent
	g.set(percent)
}

// percentOf is the percentage by which a heap with so much in use grows: to room, if
// that is more than Percent; by Percent, as long as that leads to half as much again;
// and by LeastPercent at least.
func percentOf(live, room uint64) int {
	return min(maxPercent, max(percentTo(room, live), min(Percent, percentTo(room+room/2, live)), LeastPercent))
}

// percentTo is the percentage by which a heap with so much in use grows to size.
func percentTo(size, live uint64) int {
	if live >= size {
		return 0
	}
	return int((size - live) * 100 / max(live, 1))
}

// sentinel dies with each collection.
type sentinel struct{ _ *sentinel }

// watch has adjust called after the next collection, and each one after that.
func (g *governor) watch() {
	runtime.AddCleanup(&sentinel{}, func(g *governor) {
		live := []metrics.Sample{{Name: liveBytes}}
		metrics.Read(live)
		g.adjust(live[0].Value.Uint64())
		g.watch()
	}, g)
}
