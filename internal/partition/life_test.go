package partition

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/emitter"
)

// A partition fails with entries planned and not sealed, and is taken again
// under the same token. What was planned before belongs to no take: sealed
// before the claim it would be applied to a store that has replayed it, which
// fails the new take too, and so on as long as there is something to do.
func TestTakenAgainSealsNothingOfBefore(t *testing.T) {
	c := newCore(t, newGround(t), 1, 1<<20, 1000)
	c.schedule(1, -10)
	c.deliver(1)
	c.work(0)
	if n, _ := c.p.tracker.Fill(); n == 0 {
		t.Fatal("nothing is planned")
	}
	c.p.fail(errors.New("the store had a hiccup"))
	c.p.leaveLane()
	c.p.reset()
	c.p.joinLane()
	if share := c.p.Seal("early", &emitter.Room{Entries: 10, Bytes: 1 << 20}); share != nil {
		t.Errorf("before its claim a partition seals %d records and %d emissions planned by an earlier take", len(share.Records), len(share.Emissions))
	}
}

// A step that does not end delays a revocation by drainTimeout and no more.
func TestDrainGivesUpOnAStuckStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Partition{inFlight: true, inLane: true}
		p.idle = sync.NewCond(&p.mu)
		start := time.Now()
		p.Drain()
		if took := time.Since(start); took != drainTimeout {
			t.Errorf("drained after %s, want %s", took, drainTimeout)
		}
		if p.Seal("late", &emitter.Room{Entries: 1, Bytes: 1}) != nil {
			t.Error("a revoked partition seals")
		}
	})
}

// Once the step has ended and is applied, Drain returns at once.
func TestDrainWaitsForTheStepAndItsApply(t *testing.T) {
	c := newCore(t, newGround(t), 1, 1<<20, 1000)
	c.schedule(1, -10)
	c.deliver(1)
	c.work(0)
	c.seal(10)
	drained := make(chan struct{})
	go func() { c.p.Drain(); close(drained) }()
	begun := func() bool {
		c.p.mu.Lock()
		defer c.p.mu.Unlock()
		return c.p.draining
	}
	for end := time.Now().Add(20 * time.Second); !begun() && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	c.commit(true)
	select {
	case <-drained:
		t.Error("drained before the committed step was applied")
	default:
	}
	c.apply()
	select {
	case <-drained:
	case <-time.After(drainTimeout / 2):
		t.Error("not drained although the step is applied")
	}
	c.schedule(2, -10)
	c.deliver(1)
	c.work(0)
	c.seal(10)
	if c.share != nil {
		t.Error("a revoked partition seals")
	}
}

// The net change of an ID in one step.
func TestNetChange(t *testing.T) {
	const id = 3
	for _, tc := range []struct {
		name    string
		before  func(c *core) // committed in steps of its own
		during  func(c *core) // in one step
		records []string      // of the timer in that step: put or tombstone
		fires   int
	}{
		{"scheduled and fired, not there before: nothing", nil, func(c *core) { c.schedule(id, -1) }, nil, 1},
		{"scheduled and cancelled, not there before: nothing", nil, func(c *core) { c.schedule(id, 1000); c.cancel(id) }, nil, 0},
		{"cancelled, not there: nothing", nil, func(c *core) { c.cancel(id) }, nil, 0},
		{"scheduled: a put", nil, func(c *core) { c.schedule(id, 1000) }, []string{"put"}, 0},
		{"fired, there before: a tombstone", func(c *core) { c.schedule(id, 1000) }, func(c *core) { c.now += 1000 }, []string{"tombstone"}, 1},
		{"replaced and fired, there before: a tombstone", func(c *core) { c.schedule(id, 1000) }, func(c *core) { c.schedule(id, -1) }, []string{"tombstone"}, 1},
		{"cancelled, there before: a tombstone", func(c *core) { c.schedule(id, 1000) }, func(c *core) { c.cancel(id) }, []string{"tombstone"}, 0},
		{"replaced: one put", func(c *core) { c.schedule(id, 1000) }, func(c *core) { c.schedule(id, 2000); c.schedule(id, 3000) }, []string{"put"}, 0},
		{"fired and scheduled again: one put", func(c *core) { c.schedule(id, 5) }, func(c *core) {
			c.now += 10
			c.work(0) // fires
			c.schedule(id, 1000)
		}, []string{"put"}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCore(t, newGround(t), 1, 1<<20, 1000)
			c.work(0) // the gate
			c.load()
			c.work(0)
			step := func() {
				c.deliver(10)
				c.work(0)
				c.seal(100)
			}
			if tc.before != nil {
				tc.before(c)
				step()
				// Committed and not applied: nets must not need the store.
				c.commit(true)
			}
			tc.during(c)
			step()
			if c.share == nil {
				t.Fatal("nothing is sealed")
			}
			var got []string
			for _, r := range c.share.Records {
				switch {
				case r.Key[0] != 1:
				case r.Value == nil:
					got = append(got, "tombstone")
				default:
					got = append(got, "put")
				}
			}
			if len(got) != len(tc.records) || len(got) == 1 && got[0] != tc.records[0] {
				t.Errorf("the step writes %v, want %v", got, tc.records)
			}
			if n := len(c.share.Emissions); n != tc.fires {
				t.Errorf("%d emissions, want %d", n, tc.fires)
			}
			c.commit(true)
			c.finish()
		})
	}
}

// A worker whose wheel is full lowers its horizon to a place that is not due for
// loading yet. The next load must begin there, not where the last one ended.
func TestEvictedFarAheadIsLoadedAgain(t *testing.T) {
	c := newCore(t, newGround(t), 1, 600, 1000)
	c.work(0) // the gate
	c.load()  // reaches the end of the window
	c.work(0)
	for i := range 20 {
		c.schedule(i, 20_000+int64(i)*100)
	}
	c.deliver(20)
	c.work(0)
	c.seal(100)
	c.commit(true)
	c.apply()
	c.work(0)
	if n := len(c.p.workers[0].items); n >= 20 {
		t.Fatalf("%d items in memory: nothing was evicted", n)
	}
	for i := range 10 { // memory is free again before a load has seen that it was not
		c.cancel(i)
	}
	c.deliver(10)
	c.work(0)
	if w := c.p.workers[0]; w.full || w.lowered == highest {
		t.Fatalf("full %v, lowered to %v: the test did not make its interleaving", w.full, w.lowered)
	}
	c.load() // not yet: nothing is due to be loaded for 5 s
	c.finish()
}

// What is let pass from the parked rows may lie above the horizon of a worker
// that has not loaded so far. Forgetting some of it must not raise the horizon:
// the rows between would be passed over by the loads, and fire after the next
// take at the earliest.
func TestForgettingGrantedTimersLosesNoRows(t *testing.T) {
	c := newCore(t, newGround(t), 1, 1000, 1000)
	for i := range 4 {
		c.schedule(i, -10_000)
	}
	for i := range 8 {
		c.schedule(10+i, -5_000)
	}
	c.schedule(50, -20_000)
	c.take() // gated by all of these
	c.deliver(12)
	c.work(0)
	c.seal(100)
	c.commit(true)
	c.apply()
	c.take()
	c.parkDue(c.now - 5_000)
	c.ok(c.p.unpark()) // the target is well again
	c.work(0)
	c.deliver(1)
	c.work(0) // the request makes the wheel forget
	c.finish()
}
