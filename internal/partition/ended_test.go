package partition

import (
	"runtime"
	"testing"
	"weak"
)

// leave ends the acquisition as serve does.
func (c *core) leave() {
	c.p.Questions.close()
	c.p.life.Steps.Leave(c.s.lane)
	c.p.leave(c.s)
	c.s, c.fires = nil, nil
}

// The budgets of an acquisition that has ended are zero. So nothing of it may be held until the next one, which may
// be far away: a partition that has failed for good has none.
func TestNothingIsHeldOfAnAcquisitionThatHasEnded(t *testing.T) {
	c := newCore(t, newGround(t), 1<<20, 1000)
	c.schedule(1, 10_000)
	c.deliver(1)
	c.work()
	planner := weak.Make(c.s.plans.planners[0])
	c.leave()
	for range 5 {
		runtime.GC()
	}
	if planner.Value() != nil {
		t.Error("the planner of an acquisition that has ended is still held, and in no budget")
	}
	runtime.KeepAlive(c)
}
