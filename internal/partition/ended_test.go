package partition

import (
	"runtime"
	"testing"
	"weak"

	"github.com/waterclock/waterclock/internal/planner"
)

// leave ends the acquisition as serve does.
func (c *core) leave() {
	c.p.Questions.close()
	c.p.life.Steps.Leave(c.s.lane)
	c.s.keeper.stop()
	c.p.served.Store(nil)
	c.s, c.fires = nil, nil
}

// The budgets of an acquisition that has ended are zero. So nothing of it may be held until the next one, which may
// be far away: a partition that has failed for good has none.
func TestNothingIsHeldOfAnAcquisitionThatHasEnded(t *testing.T) {
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

// A step that is folded is in no budget, so nobody may hold it until the next one: an idle partition has none.
func TestNothingIsHeldOfAStepThatIsFolded(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	for i := range 50 {
		c.schedule(i, 10_000)
	}
	c.deliver(50)
	c.work()
	c.seal(100)
	c.commit(true)
	var steps []weak.Pointer[planner.Step]
	var segments []weak.Pointer[planner.Segment]
	for _, j := range c.s.lane.handover.jobs {
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
			t.Error("a step that is folded is still held")
		}
	}
	for _, s := range segments {
		if s.Value() != nil {
			t.Error("a segment that is folded is still held")
		}
	}
	runtime.KeepAlive(c)
}
