package partition

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/waterclock/waterclock/internal/partition/planner"
)

// leave ends the acquisition as serve does.
func (c *core) leave() {
	c.p.Questions.Close()
	c.p.life.Steps.Leave(c.s.lane)
	c.s.keeper.stop()
	c.p.served.Store(nil)
	c.s = nil
}

// The budgets of an acquisition that has ended are zero. So nothing of it may be held until the next one, which may
// be far away: a partition that has failed for good has none.
func TestAnEndedAcquisitionHoldsNothing(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.schedule(1, 10_000)
	c.deliver(1)
	c.work()
	before := weak.Make(c.s.subs.planners[0])
	c.leave()
	for range 5 {
		runtime.GC()
	}
	if before.Value() != nil {
		t.Error("the planner of an acquisition that has ended is still held, and in no budget")
	}
	runtime.KeepAlive(c)
}

// An applied step is in no budget, so nothing may hold it until the next step: an idle partition has none.
func TestAnAppliedStepHoldsNothing(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	for i := range 50 {
		c.schedule(i, 10_000)
	}
	c.deliver(50)
	c.work()
	c.seal(100)
	c.commit()
	var steps []weak.Pointer[planner.Step]
	var segments []weak.Pointer[planner.Segment]
	for _, j := range c.s.lane.handover.steps {
		steps = append(steps, weak.Make(j.step))
		for _, s := range j.step.Segments {
			segments = append(segments, weak.Make(s))
		}
	}
	c.apply()
	c.checkpoint()
	c.share = nil
	for range 5 {
		runtime.GC()
	}
	for _, s := range steps {
		if s.Value() != nil {
			t.Error("a step that is applied is still held")
		}
	}
	for _, s := range segments {
		if s.Value() != nil {
			t.Error("a segment that is applied is still held")
		}
	}
	runtime.KeepAlive(c)
}

// A keeper that cannot read the parked timers waits for no target. If it did, the target's breaker would never close.
func TestAKeeperThatFailsToOpenWaitsForNothing(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.schedule(1, 10_000)
	c.schedule(2, 20_000)
	c.takes()
	c.commit()
	c.apply()
	c.parkDue(c.now + 10_000)
	other, _, _, err := c.s.keeper.store.Scan(planner.Lowest, planner.Highest, 10, 1<<20)
	c.ok(err)
	c.ok(c.s.keeper.store.Park("zzz, which is no partition", other))
	c.s.keeper.parking.waiter.Close()
	s := c.p.newServed(c.p.newLane(c.s.keeper.store), c.position, 2)
	if err := s.keeper.open(); err == nil {
		t.Fatal("it is open")
	}
	c.heal()
	for range 10 {
		c.look(10 * time.Minute)
	}
	if !c.o.Health.AllHealthy() {
		t.Error("a breaker does not close")
	}
}
