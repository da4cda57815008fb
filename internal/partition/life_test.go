package partition

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/ownership"
)

// A lane claims a source and asks it a moment later. If the partition fails and is acquired again in between, the lane
// asks a lane of the former acquisition, whose planners still have the timers that the present ones have loaded again.
func TestALaneOfAFormerAcquisitionSealsNothing(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.schedule(1, -10)
	c.deliver(1)
	c.work()
	c.asked.Leave()
	c.p.life.Steps.Join(c.p.newLane(c.s.keeper.store))
	if late := c.asked.Seal("late", &emitter.Room{Entries: 10, Bytes: 1 << 20}); late != nil {
		t.Errorf("%d emissions and %d records are sealed that the present acquisition seals too", len(late.Emissions),
			len(late.Records))
	}
}

// Once the step has ended, Drain returns immediately.
func TestDrainWaitsForTheStep(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.schedule(1, -10)
	c.deliver(1)
	c.work()
	c.seal(10)
	drained := make(chan struct{})
	go func() { c.p.Drain(); close(drained) }()
	leaving := func() bool { _, owned := c.p.life.Serving(); return !owned }
	await.Within(20*time.Second, leaving)
	select {
	case <-drained:
		t.Error("drained before the step has ended")
	default:
	}
	c.commit()
	select {
	case <-drained:
	case <-time.After(ownership.DrainTimeout / 2):
		t.Error("not drained although the step has ended")
	}
	c.schedule(2, -10)
	c.deliver(1)
	c.work()
	c.seal(10)
	if c.share != nil {
		t.Error("a revoked partition seals")
	}
}
