package partition

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/timer"
)

// newLazyCore is a core whose checkpoints are controlled by the test.
func newLazyCore(t *testing.T) *core {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.lazy = true
	return c
}

// A checkpoint begins when dirty timers have used their memory, or when someone wants one.
func TestACheckpointBeginsAtItsBytes(t *testing.T) {
	c := newLazyCore(t)
	c.schedule(1, 100_000)
	c.turn(0)
	d := c.s.checkpoints
	begins := func(limit int64) bool {
		t.Helper()
		c.p.o.Memory.Dirty = budget.Alone(limit)
		c.s.checkpoints.beginIfDue(t.Context())
		return d.writing
	}
	if begins(c.s.subs.planners[0].Stats().DirtyBytes + 1) {
		t.Error("begun before dirty timers had used their memory")
	}
	if !begins(c.s.subs.planners[0].Stats().DirtyBytes) {
		t.Error("not begun although dirty timers have used their memory")
	}
	c.checkpoint()
	if begins(0) {
		t.Error("begun although nothing has changed")
	}
	to := timer.TopicPartition{Topic: targetTopic, Partition: intake.Murmur2Partition([]byte("id2"), 3)}
	c.brokers.unresponsive[to] = true
	c.o.Health.Suspect(to)
	c.schedule(2, -10) // it is held, and is to be parked
	c.turn(0)
	if d.ended = time.Now(); begins(1 << 20) {
		t.Error("begun for a timer to be parked directly behind another checkpoint")
	}
	if d.ended = time.Now().Add(-checkpointPause); !begins(1 << 20) {
		t.Error("not begun although a timer is to be parked")
	}
	c.checkpoint()
	c.finish()
}

// While a checkpoint is written, as much again may be committed. Then nothing is sealed until the next one begins,
// which wakes the lanes.
func TestNothingIsSealedWhileMemoryForDirtyTimersIsFull(t *testing.T) {
	c := newLazyCore(t)
	c.schedule(1, 100_000)
	c.turn(0)
	c.p.o.Memory.Dirty = budget.Alone(1)
	c.freeze()
	c.schedule(2, 100_000)
	if !c.turn(0) {
		t.Fatal("nothing is sealed although nothing is dirty")
	}
	c.schedule(3, 100_000)
	if c.turn(0) {
		t.Fatal("sealed while memory for dirty timers is full")
	}
	if !c.s.checkpoints.holds.Load() || len(c.p.life.Wake) == 0 {
		t.Error("nothing wakes the keeper, or the lane when the keeper has begun a checkpoint")
	}
	c.store()
	_, err := c.s.keeper.round(t.Context())
	c.ok(err)
	if c.write == nil || c.s.checkpoints.holds.Load() || !c.turn(0) {
		t.Error("nothing is sealed although the next checkpoint has begun")
	}
	c.finish()
}

// A caller that asks for a checkpoint is told when it ends: the next one if one is under way, immediately if nothing
// has changed, and at the end of the partition.
func TestCallersOfCheckpointAreAnswered(t *testing.T) {
	c := newLazyCore(t)
	ask := func() chan struct{} {
		answered := make(chan struct{})
		asked := len(c.s.checkpoints.asked)
		go func() { c.p.Checkpoint(t.Context()); close(answered) }()
		await.Within(10*time.Second, func() bool {
			return len(c.s.checkpoints.asked) > asked || c.s.checkpoints.running.Err() != nil
		})
		return answered
	}
	within := func(answered chan struct{}, what string) {
		t.Helper()
		select {
		case <-answered:
		case <-time.After(10 * time.Second):
			t.Fatalf("no answer %s", what)
		}
	}
	within(ask(), "while it is taken")
	var stop context.CancelFunc
	c.s.checkpoints.running, stop = context.WithCancel(t.Context())
	first := ask()
	c.s.checkpoints.beginIfDue(t.Context())
	within(first, "though nothing has changed")
	c.schedule(1, 100_000)
	c.turn(0)
	c.freeze()
	second := ask()
	c.store()
	select {
	case <-second:
		t.Fatal("answered by a checkpoint that had begun before")
	default:
	}
	c.schedule(2, 100_000)
	c.turn(0)
	c.thaw()
	c.s.checkpoints.beginIfDue(t.Context())
	c.store()
	c.thaw()
	within(second, "to the next checkpoint")
	third := ask()
	stop()
	within(third, "at the end")
	c.finish()
}

// If a checkpoint fails the partition is acquired again. Everything that is committed by then is counted all the same.
func TestWhatIsCommittedIsCountedThoughACheckpointFails(t *testing.T) {
	c := newLazyCore(t)
	reg := prometheus.NewRegistry()
	reg.MustRegister(c.g.metrics.outcomes)
	c.schedule(0, 100_000)
	c.turn(0)
	c.freeze()
	c.schedule(1, 100_000)
	c.turn(0)
	c.s.checkpoints.done <- errors.New("no space left on the device")
	if _, err := c.s.keeper.round(t.Context()); err == nil {
		t.Error("the partition goes on after a checkpoint that failed")
	}
	c.write = nil
	c.s.keeper.stop()
	if got := outcomesIn(t, reg)["scheduled"]; got != 2 {
		t.Errorf("%d requests are counted as scheduled, want 2", got)
	}
	c.acquire()
	c.finish()
}

// If the token of an owner dies between the commit of a step and its application, the step is applied and stored all
// the same.
func TestATokenThatDiesLeavesNoStepOut(t *testing.T) {
	c := newLazyCore(t)
	c.schedule(1, 100_000)
	c.p.o.BeforeCheckpoint = func(string, int32) { c.o.Token.Refused(errors.New("lost")) }
	c.turn(0)
	c.settle()
	c.acquire()
	c.finish()
}

// If the next checkpoint begins as soon as one has ended, work that waits for the end of a checkpoint is done between
// the two.
func TestDelayedWorkRunsBetweenTwoCheckpoints(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.p.o.Memory.Dirty = budget.Alone(1)
	parked := c.schedule(0, 10)
	c.turn(0)
	c.checkpoint()
	c.parkDue(c.due(parked))
	c.pass(10)
	c.look(time.Second)
	c.lazy = true
	for i := range 5 {
		c.schedule(10+i, 100_000)
		c.takes()
		c.commit()
		_, err := c.s.keeper.round(t.Context())
		c.ok(err)
		c.store()
	}
	if n := len(c.parkedBy()); n != 0 {
		t.Error("what is parked stays so while each checkpoint is followed by the next")
	}
	c.finish()
}

// While a checkpoint is written nothing is parked. Loads must not pile up timers for unhealthy targets in memory.
func TestLoadsWaitForParking(t *testing.T) {
	runs.NotRaced(t)
	c := newLazyCore(t)
	const timers, size = 120, 100 << 10
	for id := range timers {
		c.schedule(id, 100_000).Value = make([]byte, size)
	}
	for c.turn(0) {
		c.checkpoint()
	}
	for k := range int32(3) {
		to := timer.TopicPartition{Topic: targetTopic, Partition: k}
		c.brokers.unresponsive[to] = true
		c.o.Health.Suspect(to)
	}
	c.schedule(timers, 300_000)
	c.turn(0)
	c.freeze()
	c.pass(100_000)
	rounds := func() {
		for range timers {
			_, err := c.s.keeper.round(t.Context())
			c.ok(err)
			c.seal(5)
			c.commit()
		}
	}
	rounds()
	waiting := 0
	for _, held := range c.s.subs.all[0].toPark {
		for _, l := range held {
			waiting += len(l.Timers)
		}
	}
	if most := 1 + (loadBytes+int(c.p.o.Memory.Dirty.Limit()))/size; waiting == 0 || waiting > most {
		t.Errorf("%d timers in memory wait to be parked, want at most %d", waiting, most)
	}
	c.store()
	rounds()
	parked := int64(0)
	for _, n := range c.parkedBy() {
		parked += n
	}
	if parked != timers {
		t.Errorf("%d timers are parked behind the checkpoint, want %d", parked, timers)
	}
	c.finish()
}
