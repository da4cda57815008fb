package partition

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/emitter"
)

// The clock is set back by less than timers are ahead: each fires at its own
// time, not with the first of those that were scheduled since.
func TestSetBackEachTimerFiresAtItsTime(t *testing.T) {
	c := newCore(t, newGround(t), 1, 1<<20, roomy)
	c.work(0) // the gate
	c.load()
	c.work(0)
	c.schedule(0, 0)
	c.deliver(1)
	c.work(0) // the clock was here
	c.now -= 5000
	const n = 10
	for i := range n {
		c.schedule(1+i, 100*int64(i))
	}
	c.deliver(n)
	for i := range n {
		for range 3 { // the first one is un-planned before anything is sealed
			c.work(0)
			c.seal(roomy)
			c.commit(true)
			c.apply()
		}
		if got := len(c.emitted); got != i+1 {
			t.Fatalf("%d timers have fired %d ms after the first, want %d", got, 100*i, i+1)
		}
		c.pass(100)
	}
	c.finish()
}

// The clock is set back between plan and seal: what is not due any more is
// un-planned, and may be cancelled; the rest of the step goes on.
func TestSetBackBetweenPlanAndSeal(t *testing.T) {
	c := newCore(t, newGround(t), 1, 1<<20, roomy)
	c.work(0) // the gate
	c.load()
	c.work(0)
	c.schedule(1, -10)
	c.schedule(2, 50)
	c.schedule(3, 50)
	c.pass(60)
	c.deliver(3)
	c.work(0) // all are planned to fire
	c.now -= 60
	if c.seal(roomy); c.share != nil {
		t.Fatal("sealed before the worker has taken firings back")
	}
	c.cancel(3)
	c.deliver(1)
	c.work(0)
	c.seal(roomy)
	if c.share == nil || len(c.share.Emissions) != 1 {
		t.Fatalf("sealed %v, want the one that is due", c.share)
	}
	c.commit(true)
	c.apply()
	c.work(0)
	c.pass(60)
	for range 3 {
		c.work(0)
		c.seal(roomy)
		c.commit(true)
		c.apply()
	}
	if len(c.emitted) != 2 {
		t.Errorf("%d timers have fired, want 2: one is cancelled", len(c.emitted))
	}
	c.finish()
}

// A target refuses the clock, which is ahead, and takes what fires at its word:
// timers are parked that are not due when the clock is right again. They take no
// grant, as nothing would come of it for hours, and fire when they are due.
func TestSetBackWhatIsParkedWaitsForItsTime(t *testing.T) {
	const n, hours = 3000, 2 * 3600_000
	c := newCore(t, newGround(t), 2, 1<<30, roomy)
	for i := range n {
		c.schedule(i, hours/2)
	}
	c.pass(hours)
	for c.given < n {
		c.deliver(500)
		c.p.workers[0].open, c.p.workers[1].open = false, false
		c.seal(500)
		for i := range c.p.workers {
			c.ok(c.p.workers[i].read())
		}
		c.seal(roomy)
		c.commit(true)
		c.apply()
	}
	c.parkDue(c.now - hours/2)
	c.take()
	for range 3 { // horizons pass what is parked
		c.load()
		c.work(0)
		c.work(1)
	}
	to := emitter.TargetPartition{Topic: targetTopic}
	c.look(time.Minute) // the probe finds the target well: one may pass
	c.now -= hours
	c.ok(c.p.unpark())
	if left := c.p.parkedTargets[to]; left > 0 {
		t.Errorf("%d timers are still parked that are not due", left)
	}
	for i := range c.p.workers {
		c.work(i)
	}
	if c.seal(roomy); c.share != nil && len(c.share.Emissions) > 0 {
		t.Error("fires before its time")
	}
	c.commit(true)
	c.now += hours
	c.finish()
}
