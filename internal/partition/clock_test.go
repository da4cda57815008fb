package partition

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// The clock is ahead, a target refuses it, and timers are parked that are not due when the clock is right again. Such
// timers need no admission, which would be wasted on them for hours, and they fire when they are due.
func TestParkedTimersWaitForTheirTimeAfterASetBack(t *testing.T) {
	runs.NotRaced(t)
	const n, hours = 3000, 2 * 3600_000
	c := newCore(t, newSetup(t), 1<<30, roomy)
	c.room = n
	for i := range n {
		c.schedule(i, hours/2)
	}
	c.acquire() // all of these are in the log at the acquisition
	c.pass(hours)
	for c.schedule(n, 0); c.given < n; { // the last one keeps the catch-up barrier shut
		c.deliver(min(500, n-c.given))
		c.work()
		c.seal(roomy)
		c.commit()
		c.apply()
	}
	c.parkDue(c.now - hours/2)
	c.acquire()
	for range 3 { // the horizon passes the parked timers
		c.load()
		c.work()
		c.work()
	}
	to := timer.TopicPartition{Topic: targetTopic}
	c.look(time.Minute) // the probe finds the target healthy: one timer may pass
	c.now -= hours
	c.ok(c.s.keeper.parking.unpark())
	if left := c.parkedBy()[to]; left > 0 {
		t.Errorf("%d timers are still parked that are not due", left)
	}
	c.work()
	if c.seal(roomy); c.share != nil && len(c.share.Emissions) > 0 {
		t.Error("fires before its time")
	}
	c.commit()
	c.now += hours
	c.finish()
}

// sleeper counts how often a lane without a reason to be awake seals.
type sleeper struct{ seals atomic.Int64 }

func (s *sleeper) Seal(string, *emitter.Room) *emitter.Share { s.seals.Add(1); return nil }
func (s *sleeper) Wait() time.Duration                       { return time.Hour }

func (s *sleeper) until(t *testing.T, seals int64) {
	t.Helper()
	await.Until(t, 20*time.Second, fmt.Sprint("the lane seals ", seals, " times"),
		func() bool { return s.seals.Load() >= seals })
}

// The clock is set ahead while the lane sleeps until a timer is due: it does not go on sleeping, although no timer
// comes that falls due earlier.
func TestSetAheadWakesTheLane(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, roomy)
	c.work() // the catch-up barrier
	c.load()
	c.schedule(1, 20_000)
	c.deliver(1)
	c.work()
	c.seal(roomy)
	c.commit()
	c.apply()
	if c.seal(roomy); c.share != nil || c.s.lane.Wait() == 0 || c.s.lane.Wait() > 20*time.Second {
		t.Fatalf("sleeps for %s", c.s.lane.Wait())
	}
	c.now += 60_000
	var s sleeper
	var ends sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer ends.Wait()
	defer cancel()
	c.o.Lanes.Remove(c.asked) // it is only woken, and seals nothing
	c.o.Lanes.Add(&s)
	ends.Go(func() { _ = c.o.Lanes.Run(ctx) })
	s.until(t, 2) // when it begins, and because a source was added
	ends.Go(func() { _ = c.s.keeper.loop(ctx) })
	s.until(t, 3)
}

// The clock was set back. A triggered timer is not due yet and comes first. Due timers behind it still count as missed,
// and are not left to a load, which does not know that.
func TestATriggerThatIsNotDueYetHidesNoneThatIs(t *testing.T) {
	triggered := &timer.Timer{Due: 5, Offset: 1, Steering: &timer.Steering{Triggered: true, By: 9, At: 2000}}
	missed, ahead := &timer.Timer{Due: 1000, Offset: 2}, &timer.Timer{Due: 1001, Offset: 3}
	due, later := dueAt([]*timer.Timer{triggered, missed, ahead}, 1000)
	if !slices.Equal(due, []*timer.Timer{missed}) || !slices.Equal(later, []*timer.Timer{triggered, ahead}) {
		t.Errorf("due are %v, later %v", due, later)
	}
}

// A recurring timer that is due is triggered, so two of its firings are in one step. The clock is set back to between
// the due time and the trigger: the first firing is rolled back, and with it the second one, which is planned on it.
// None of them may have a place among the emissions.
func TestAFiringIsRolledBackWithTheOneBeforeIt(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, roomy)
	c.work() // the catch-up barrier
	c.load()
	due := c.now + 1000
	c.request(0, 1, waterclock.HeaderEvery, "10s", waterclock.HeaderAt, strconv.FormatInt(due, 10),
		waterclock.HeaderTargetTopic, targetTopic)
	c.deliver(1)
	c.work()
	c.seal(roomy)
	c.commit()
	c.apply()
	c.now = due + 1000
	c.steer(1, waterclock.HeaderTrigger)
	c.deliver(1)
	c.work()
	c.seal(roomy)
	if n := len(c.share.Emissions); n != 2 {
		t.Fatalf("%d firings in a step, want that of the trigger and that of the schedule", n)
	}
	c.abort()
	c.now = due + 500
	c.seal(roomy)
	if n := len(c.share.Emissions); n != 0 {
		t.Fatalf("%d firings in a step, and nothing is due", n)
	}
	c.commit()
	c.apply()
	c.now = due + 1000
	if c.seal(roomy); len(c.share.Emissions) != 2 {
		t.Fatalf("%d firings when both are due again, want 2", len(c.share.Emissions))
	}
}
