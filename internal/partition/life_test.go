package partition

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/ownership"
)

// A partition fails with entries planned and not sealed, and is acquired again under the same token. What was planned
// before belongs to no acquisition. If it were sealed before the claim, it would be applied to a store that has
// replayed it. The new acquisition would fail too, and so on as long as there is something to do.
func TestAcquiredAgainSealsNothingOfBefore(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.schedule(1, -10)
	c.deliver(1)
	c.work()
	if c.s.backlog.onTheirWay().Entries == 0 {
		t.Fatal("nothing is planned")
	}
	c.p.life.Steps.Leave(c.s.lane)
	c.p.life = ownership.New(c.o.Options, c.o.Metrics)
	again := c.p.newLane(c.s.store)
	c.p.life.Steps.Join(again)
	if share := again.Seal("early", &emitter.Room{Entries: 10, Bytes: 1 << 20}); share != nil {
		t.Errorf("before its claim a partition seals %d records and %d emissions planned by an earlier acquisition",
			len(share.Records), len(share.Emissions))
	}
}

// A lane claims a source and asks it a moment later. If the partition fails and is acquired again in between, the lane
// asks a lane of the former acquisition, whose planners still have what the present ones have loaded again.
func TestALaneOfAFormerAcquisitionSealsNothing(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.schedule(1, -10)
	c.deliver(1)
	c.work()
	c.p.life.Steps.Leave(c.s.lane)
	c.p.life.Steps.Join(c.p.newLane(c.s.store))
	if late := c.s.lane.Seal("late", &emitter.Room{Entries: 10, Bytes: 1 << 20}); late != nil {
		t.Errorf("%d emissions and %d records are sealed that the present acquisition seals too", len(late.Emissions),
			len(late.Records))
	}
}

// Once the step has ended and is applied, Drain returns at once.
func TestDrainWaitsForTheStepAndItsApply(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.schedule(1, -10)
	c.deliver(1)
	c.work()
	c.seal(10)
	drained := make(chan struct{})
	go func() { c.p.Drain(); close(drained) }()
	leaving := func() bool { _, leaving := c.p.life.Serving(); return leaving }
	await.Within(20*time.Second, leaving)
	c.commit(true)
	select {
	case <-drained:
		t.Error("drained before the committed step was applied")
	default:
	}
	c.apply()
	select {
	case <-drained:
	case <-time.After(ownership.DrainTimeout / 2):
		t.Error("not drained although the step is applied")
	}
	c.schedule(2, -10)
	c.deliver(1)
	c.work()
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
		before  func(c *core) // committed earlier, in separate steps
		during  func(c *core) // in the one step
		records []string      // the timer's records in that step: put or tombstone
		fires   int
	}{
		{"scheduled and fired, not there before: nothing", nil, func(c *core) { c.schedule(id, -1) }, nil, 1},
		{"scheduled and cancelled, not there before: nothing", nil,
			func(c *core) { c.schedule(id, 1000); c.cancel(id) }, nil, 0},
		{"cancelled, not there: nothing", nil, func(c *core) { c.cancel(id) }, nil, 0},
		{"scheduled: a put", nil, func(c *core) { c.schedule(id, 1000) }, []string{"put"}, 0},
		{"fired, there before: a tombstone", func(c *core) { c.schedule(id, 1000) }, func(c *core) { c.now += 1000 },
			[]string{"tombstone"}, 1},
		{"replaced and fired, there before: a tombstone", func(c *core) { c.schedule(id, 1000) },
			func(c *core) { c.schedule(id, -1) }, []string{"tombstone"}, 1},
		{"cancelled, there before: a tombstone", func(c *core) { c.schedule(id, 1000) }, func(c *core) { c.cancel(id) },
			[]string{"tombstone"}, 0},
		{"replaced: one put", func(c *core) { c.schedule(id, 1000) },
			func(c *core) { c.schedule(id, 2000); c.schedule(id, 3000) }, []string{"put"}, 0},
		{"fired and scheduled again: one put", func(c *core) { c.schedule(id, 5) }, func(c *core) {
			c.now += 10
			c.seal(100) // fires
			c.abort()
			c.schedule(id, 1000)
		}, []string{"put"}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCore(t, newSetup(t), 1<<20, 1000)
			c.work() // the catch-up barrier
			c.load()
			c.work()
			step := func() {
				c.deliver(10)
				c.work()
				c.seal(100)
			}
			if tc.before != nil {
				tc.before(c)
				step()
				// The step is committed but not applied: computing its net change must not need the store.
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

// A planner whose memory is full lowers its horizon to a place that is not due for loading yet. The next load must
// begin there, not where the last one ended.
func TestEvictedFarAheadIsLoadedAgain(t *testing.T) {
	c := newCore(t, newSetup(t), 600, 1000)
	c.work() // the catch-up barrier
	c.load() // reaches the end of the window
	c.work()
	for i := range 20 {
		c.schedule(i, 20_000+int64(i)*100)
	}
	c.deliver(20)
	c.work()
	c.seal(100)
	c.commit(true)
	c.apply()
	c.work()
	if n, _ := c.s.subs.size(); n >= 20 {
		t.Fatalf("%d items in memory: nothing was evicted", n)
	}
	for i := range 10 { // memory is free again before a load has noticed that it was full
		c.cancel(i)
	}
	c.deliver(10)
	c.work()
	c.load() // not yet: nothing is due to be loaded for 5 s
	c.finish()
}

// Timers admitted from the parked rows may lie above the horizon of a planner that has not loaded that far. Forgetting
// some of them must not raise the horizon: loads would skip the rows in between, and these would not fire before the
// next acquisition.
func TestForgettingAdmittedTimersLosesNoRows(t *testing.T) {
	c := newCore(t, newSetup(t), 1000, 1000)
	for i := range 4 {
		c.schedule(i, -10_000)
	}
	for i := range 8 {
		c.schedule(10+i, -5_000)
	}
	c.schedule(50, -20_000)
	c.acquire() // gated by all of these
	c.deliver(12)
	c.work()
	c.seal(100)
	c.commit(true)
	c.apply()
	c.acquire()
	c.parkDue(c.now - 5_000)
	c.ok(c.s.keeper.parking.unpark()) // the target is healthy again
	c.work()
	c.deliver(1)
	c.work() // the request makes the planner forget
	c.finish()
}
