package partition

import (
	"testing"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/timer"
)

// takeAll plans everything in the log.
func (c *core) takeAll() {
	c.t.Helper()
	for c.given < len(c.requests) {
		c.deliver(100)
	}
	c.work()
}

// A recurring timer that is triggered fires outside its schedule, as often as it is triggered, each time with another
// event ID. It stays paused if it was.
func TestTriggerOfARecurringTimer(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.request(0, 1, waterclock.HeaderEvery, "1h", waterclock.HeaderTargetTopic, targetTopic)
	events := map[string]bool{}
	for _, what := range []string{waterclock.HeaderTrigger, waterclock.HeaderPause, waterclock.HeaderTrigger,
		waterclock.HeaderTrigger, waterclock.HeaderResume} {
		c.steer(1, what)
		c.takeAll()
		for range 3 {
			c.load()
			if c.seal(10); c.share == nil {
				continue
			}
			for _, e := range c.share.Emissions {
				r := e.Record
				if header(r, waterclock.HeaderOccurrence) != "0" || header(r, waterclock.HeaderSource) != "r/0/0" ||
					events[header(r, waterclock.HeaderEvent)] {
					t.Errorf("it fires as %v", r.Headers)
				}
				events[header(r, waterclock.HeaderEvent)] = true
			}
			c.share.Emissions = nil // the model covers only timers that do not recur
			c.commit()
			c.apply()
		}
	}
	is := c.fold(1 << 60)["id1"]
	if len(events) != 3 || is == nil || is.Steering != nil || is.Occurrence != 1 || is.Due != c.now+3_600_000 {
		t.Errorf("%d events; pending is %+v", len(events), is)
	}
}

// A request that steers is small but holds a timer that may be large. A batch has only as
// many of them as their timers fit into it, and the memory of the timers counts.
func TestLargeTimersAreSteeredInSmallBatches(t *testing.T) {
	const timers, size = 8, 100_000
	for limit, perBatch := range map[int]int{0: 1, maxBatchBytes / 4: 4, 2 * maxBatchBytes: 1} {
		c := newCore(t, newSetup(t), 1<<30, 1000)
		c.o.Rules.Limits.RecordBytes = limit
		c.s.backlog.intake, c.s.backlog.emitted = budget.Alone(1<<30), budget.Alone(1<<30)
		for id := range timers {
			c.schedule(id, 1000).Value = make([]byte, size)
		}
		c.takeAll()
		for c.turn(0) {
		}
		for id := range timers {
			c.steer(id, waterclock.HeaderPause)
		}
		c.takeAll()
		if held := c.s.backlog.onTheirWay().Bytes; held < timers*size {
			t.Errorf("%d bytes are on their way, at least %d are held", held, timers*size)
		}
		for steps := 0; ; steps++ {
			if c.seal(1); c.share == nil {
				if steps != timers/perBatch {
					t.Errorf("limit %d: %d steps of a batch each, want %d", limit, steps, timers/perBatch)
				}
				break
			}
			c.commit()
			c.apply()
		}
		if on := c.s.backlog.onTheirWay(); on != (timer.Size{}) {
			t.Errorf("on their way at the end: %+v", on)
		}
		for _, is := range c.fold(1 << 60) {
			if !is.IsPaused() || is.Ref().Compare(timer.Ref{Due: 1 << 62}) < 0 {
				t.Errorf("pending: %+v at %v", is.Steering, is.Ref())
			}
		}
	}
}
