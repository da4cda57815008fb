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
	d := c.s.keeper.checkpoints
	begins := func(limit int64) bool {
		t.Helper()
		c.p.o.Memory.Dirty = budget.Alone(limit)
		c.s.keeper.checkpoints.beginIfDue(t.Context())
		return d.writing
	}
	if begins(c.s.keeper.checkpoints.dirtyBytes() + 1) {
		t.Error("begun before dirty timers had used their memory")
	}
	if !begins(c.s.keeper.checkpoints.dirtyBytes()) {
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

// While a checkpoint is written, as much again may be committed. Then commits wait.
func TestNothingIsAppliedWhileMemoryForDirtyTimersIsFull(t *testing.T) {
	c := newLazyCore(t)
	step := func(id int) int {
		c.schedule(id, 100_000)
		c.turn(0)
		return len(c.s.keeper.handover.steps)
	}
	step(1)
	c.p.o.Memory.Dirty = budget.Alone(c.s.keeper.checkpoints.dirtyBytes())
	c.freeze()
	if n := step(2); n != 0 {
		t.Fatalf("%d steps wait although nothing is dirty", n)
	}
	if n := step(3); n != 1 {
		t.Fatalf("%d steps wait for the checkpoint, want 1", n)
	}
	c.store()
	c.thaw()
	for range 2 {
		c.apply()
	}
	if n := len(c.s.keeper.handover.steps); n != 0 {
		t.Fatalf("%d steps wait behind the checkpoint", n)
	}
	c.finish()
}

// A caller that asks for a checkpoint is told when it ends: the next one if one is under way, at once if nothing has
// changed, and at the end of the partition.
func TestCallersOfCheckpointAreAnswered(t *testing.T) {
	c := newLazyCore(t)
	ask := func() chan struct{} {
		answered := make(chan struct{})
		asked := len(c.s.keeper.checkpoints.asked)
		go func() { c.p.Checkpoint(t.Context()); close(answered) }()
		await.Within(10*time.Second, func() bool {
			return len(c.s.keeper.checkpoints.asked) > asked || c.s.keeper.checkpoints.running.Err() != nil
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
	c.s.keeper.checkpoints.running, stop = context.WithCancel(t.Context())
	first := ask()
	c.s.keeper.checkpoints.beginIfDue(t.Context())
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
	c.s.keeper.checkpoints.beginIfDue(t.Context())
	c.store()
	c.thaw()
	within(second, "to the next checkpoint")
	third := ask()
	stop()
	within(third, "at the end")
	c.finish()
}

// If a checkpoint fails the partition is acquired again. Steps that were committed by then, and wait to be applied, are
// counted all the same.
func TestWhatIsCommittedIsCountedThoughACheckpointFails(t *testing.T) {
	c := newLazyCore(t)
	reg := prometheus.NewRegistry()
	reg.MustRegister(c.g.metrics.outcomes)
	c.schedule(0, 100_000)
	c.turn(0)
	c.freeze()
	const waiting = 3
	for id := range waiting {
		c.schedule(1+id, 100_000)
		c.deliver(1)
		c.work()
		c.seal(5)
		c.commit()
	}
	c.s.keeper.checkpoints.done <- errors.New("no space left on the device")
	if _, err := c.s.keeper.round(t.Context()); err == nil {
		t.Error("the partition goes on after a checkpoint that failed")
	}
	c.write = nil
	c.s.keeper.stop()
	if got := outcomesIn(t, reg)["scheduled"]; got != 1+waiting {
		t.Errorf("%d requests are counted as scheduled, want %d", got, 1+waiting)
	}
	c.acquire()
	c.finish()
}

// If the token of an owner dies in the middle of a life, no step is left half stored: a step whose application has
// begun is stored only as a whole.
func TestATokenThatDiesLeavesNoStepOut(t *testing.T) {
	c := newLazyCore(t)
	c.schedule(1, 100_000)
	c.turn(0)
	for id := 2; id < 4; id++ {
		c.schedule(id, 100_000)
		c.deliver(1)
		c.work()
		c.seal(5)
		c.commit()
	}
	c.p.o.BeforeApply = func(string, int32) { c.o.Token.Refused(errors.New("lost")) }
	c.s.keeper.applyNext()
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
	full := func(id int) {
		for i := range 4 {
			c.schedule(id+i, 100_000)
			c.deliver(1)
			c.work()
			c.seal(5)
			c.commit()
		}
	}
	full(10)
	for i := 2; i < 6; i++ {
		_, err := c.s.keeper.round(t.Context())
		c.ok(err)
		if n := len(c.s.keeper.handover.steps); n != 0 {
			t.Errorf("%d steps wait for the end of the next checkpoint, want none behind that of the last", n)
		}
		full(i * 10)
		c.store()
	}
	if n := len(c.s.keeper.parking.counts); n != 0 {
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
	}
	c.checkpoint()
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
	for _, x := range c.s.keeper.parking.toPark.list {
		for _, l := range x.what {
			waiting += len(l.Timers)
		}
	}
	if most := 1 + (loadBytes+int(c.p.o.Memory.Dirty.Limit()))/size; waiting == 0 || waiting > most {
		t.Errorf("%d timers in memory wait to be parked, want at most %d", waiting, most)
	}
	c.store()
	rounds()
	if n := c.p.parked.n.Load(); n != timers {
		t.Errorf("%d timers are parked behind the checkpoint, want %d", n, timers)
	}
	c.finish()
}

// Steps may be committed as fast as they are applied, for as long as there is load. A checkpoint begins nevertheless
// when dirty timers have used their memory, and the next round applies the rest.
func TestACheckpointBeginsWhileStepsKeepComing(t *testing.T) {
	c := newLazyCore(t)
	c.p.o.Memory.Dirty = budget.Alone(1)
	step := func(id int) {
		c.schedule(id, 50_000)
		c.takes()
		c.commit()
	}
	const steps = 5 * maxUnapplied
	applied := 0
	c.p.o.BeforeApply = func(string, int32) {
		if applied++; applied < steps {
			step(applied)
		}
	}
	step(0)
	_, err := c.s.keeper.round(t.Context())
	c.ok(err)
	if c.write == nil || applied > maxUnapplied {
		t.Errorf("%d steps are applied in one round, want %d at most; a checkpoint has begun: %v", applied,
			maxUnapplied, c.write != nil)
	}
	for len(c.p.life.Wake) > 0 {
		<-c.p.life.Wake
		_, err := c.s.keeper.round(t.Context())
		c.ok(err)
		if c.write != nil {
			c.store()
			c.p.life.Wake.Send() // by whoever has written it
		}
	}
	if applied != steps {
		t.Errorf("%d steps are applied when nobody wakes it any more, want %d", applied, steps)
	}
	c.finish()
}
