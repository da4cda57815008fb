package partition

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/partition/planner"
)

// leave ends the acquisition as serve does.
func (c *core) leave() {
	c.p.Questions.Close()
	c.asked.Leave()
	c.s.keeper.stop()
	c.p.served.Store(nil)
	c.s, c.asked = nil, nil
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

// sealer is a lane that seals in another way.
type sealer struct {
	*lane
	seal func(string, *emitter.Room) *emitter.Share
}

func (s sealer) Seal(step string, room *emitter.Room) *emitter.Share { return s.seal(step, room) }

// A committed step is in no budget, so nothing may hold it until the next step: an idle partition has none, and the
// lane keeps the share of the last one.
func TestACommittedStepHoldsNothing(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	for i := range 50 {
		c.schedule(i, 10_000)
	}
	c.deliver(50)
	c.work()
	var step weak.Pointer[planner.Step]
	var segment weak.Pointer[planner.Segment]
	c.steps++
	c.asked.Leave()
	c.asked = c.p.life.Steps.Join(sealer{c.s.lane, func(name string, room *emitter.Room) *emitter.Share {
		taken, _ := c.s.lane.step(*room)
		step, segment = weak.Make(taken), weak.Make(taken.Segments[0])
		s := &sealedStep{l: c.s.lane, step: taken}
		s.build(name)
		return s.share
	}})
	c.share = c.asked.Seal("step", &emitter.Room{Entries: 100, Bytes: 1 << 20})
	share := c.share
	c.commit()
	c.checkpoint()
	for range 5 {
		runtime.GC()
	}
	if step.Value() != nil || segment.Value() != nil {
		t.Error("a committed step is still held")
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(share)
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
