package partition

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// The moment at which an offset was read is known to within arrivalGrain, also after the clock was set back. An offset
// before the first or beyond the last has none.
func TestArrivalsTellWhenAnOffsetWasRead(t *testing.T) {
	a := newArrivals(100)
	a.read(110, 1000)
	a.read(120, 1000+arrivalGrain-1)
	a.read(130, 1000+arrivalGrain)
	a.read(140, 500) // the clock was set back
	a.read(150, 500+arrivalGrain)
	for offset, want := range map[int64]int64{
		0: math.MinInt64, 99: math.MinInt64, 100: 1000, 119: 1000, 120: 1000 + arrivalGrain, 129: 1000 + arrivalGrain,
		130: 500, 139: 500, 140: 500 + arrivalGrain, 150: math.MinInt64, -5: math.MinInt64,
	} {
		if got := a.at(offset); got != want {
			t.Errorf("offset %d was read at %d, want %d", offset, got, want)
		}
	}
	for i := range int64(3 * maxArrivals) {
		a.read(200+i, 10_000+i*arrivalGrain)
		if got := a.at(199 + i); i > 0 && got != 10_000+i*arrivalGrain {
			t.Fatalf("what was read last was read at %d, want %d", got, 10_000+i*arrivalGrain)
		}
	}
	if len(a.list) > maxArrivals || a.at(150) != math.MinInt64 {
		t.Errorf("%d arrivals are remembered, and the first was read at %d", len(a.list), a.at(150))
	}
}

// Timers that are late when they are read, or that were missed while no instance ran, are not late by our own doing.
// Those that we seal late are, and only then do firings get more of a step, even while missed timers are in front of
// them.
func TestOwnLateness(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, roomy)
	reg := prometheus.NewRegistry()
	c.o.Metrics = NewMetrics(reg)
	c.process()
	c.acquire()
	c.o.Metrics.Serve("r")
	c.work()
	c.load()
	own := func(what string, n uint64, sum float64) {
		t.Helper()
		c.commit()
		c.apply()
		if h := histogram(t, reg, "waterclock_own_lateness_seconds", ""); h.GetSampleCount() != n ||
			math.Abs(h.GetSampleSum()-sum) > 1e-9 {
			t.Errorf("%s: %d firings, %v s; want %d and %v", what, h.GetSampleCount(), h.GetSampleSum(), n, sum)
		}
	}
	plan := func(id int, in int64) {
		c.schedule(id, in)
		c.pass(100) // until it is read
		c.deliver(1)
		c.work()
	}
	plan(1, 1000)
	c.seal(10)
	own("not due", 0, 0)
	c.pass(900 + 300)
	c.seal(10)
	own("sealed late", 1, 0.3)
	plan(2, 0)
	if c.s.lane.late(c.now) {
		t.Error("what was due when it was read, just now, is late by our own doing")
	}
	if c.pass(20); !c.s.lane.late(c.now) {
		t.Error("what was read 20 ms ago, and could be sealed then, is not late")
	}
	c.seal(1)
	c.commit()
	c.apply()
	c.seal(10)
	own("past due when it was read", 2, 0.32)
	plan(3, 1000)
	c.seal(10)
	own("not due", 2, 0.32)
	c.s.lane.arrivals.opened.Store(c.now + 1000)
	c.pass(1000)
	if c.s.lane.late(c.now) {
		t.Error("what was missed while nobody ran is late by our own doing")
	}
	if c.pass(200); !c.s.lane.late(c.now) {
		t.Error("200 ms after the catch-up barrier opened what has fallen due since waits behind what was missed, " +
			"and nothing is late")
	}
	c.seal(10)
	own("missed while nobody ran", 2, 0.32)
	c.finish()
}

// If the clock is set back after the catch-up barrier opened, our own lateness still shows.
func TestOwnLatenessAfterTheClockIsSetBack(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, roomy)
	c.work()
	c.load()
	c.pass(-3_600_000)
	c.schedule(1, 1000)
	c.deliver(1)
	c.work()
	c.step(10)
	if c.pass(1000); c.s.lane.late(c.now) {
		t.Error("what is due just now is late")
	}
	if c.pass(300); !c.s.lane.late(c.now) {
		t.Error("what was due 300 ms ago is not late by our own doing")
	}
	c.finish()
}
