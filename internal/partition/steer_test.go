package partition

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

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

// A trigger that is planned while its timer fires finds nothing, unless that firing is
// rolled back. Then the timer is triggered. It fires once in both cases, and a
// conditional request behind it is decided by what happened to it.
func TestTriggerWhileItFires(t *testing.T) {
	for name, back := range map[string]bool{"fires": false, "rolled back": true} {
		t.Run(name, func(t *testing.T) {
			c := newCore(t, newSetup(t), 1<<20, 1000)
			c.tell()
			first := c.schedule(1, 10)
			c.takeAll()
			c.seal(10)
			c.commit(true)
			c.apply()
			c.load()
			c.pass(10)
			c.seal(10)
			if len(c.share.Emissions) != 1 {
				t.Fatal("it does not fire")
			}
			c.steer(1, waterclock.HeaderTrigger)
			second := c.schedule(1, 1000)
			under(second, waterclock.IfAbsent)
			c.takeAll()
			c.abort()
			if back {
				c.now -= 5 // the clock is set back
			}
			c.seal(100)
			got := c.types()
			c.commit(true)
			want := []string{"id1 fired", "id1 scheduled"}
			if back {
				want = []string{"id1 triggered", "id1 condition-not-met"}
			}
			if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
				t.Fatalf("got %q, want %q", got, want)
			}
			for range 3 {
				c.turn(0)
			}
			if c.emitted[first.Offset] != nil == back {
				t.Errorf("it has fired: %v", c.emitted[first.Offset] != nil)
			}
			c.finish()
		})
	}
}

// A paused timer stays paused through a crash and a restart, of the partition and of the
// whole process, parked or not. Cancels and replacements win against a pause, and against
// a trigger.
func TestPausedThroughRestarts(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	var first []*kgo.Record
	for id := range 5 {
		first = append(first, c.schedule(id, 10))
	}
	c.takeAll()
	c.seal(10)
	c.commit(true)
	c.apply()
	c.parkDue(c.due(first[0]))
	for id := range 5 {
		c.steer(id, waterclock.HeaderPause)
	}
	c.takeAll()
	c.seal(10)
	c.commit(false) // it dies without hearing of the commit
	c.acquire()
	c.pass(100)
	for range 3 {
		c.turn(0)
	}
	c.settle()
	c.p = nil
	c.process()
	c.acquire()
	for range 3 {
		c.turn(0)
	}
	if len(c.emitted) > 0 || c.s.keeper.store == nil {
		t.Fatalf("%d fire that are paused", len(c.emitted))
	}
	if _, bytes := c.s.subs.size(); bytes > 0 {
		t.Errorf("what is paused holds %d bytes of the wheel", bytes)
	}
	c.steer(0, waterclock.HeaderResume)
	c.steer(1, waterclock.HeaderTrigger)
	c.cancel(2)
	again := c.schedule(3, 5)
	c.steer(4, waterclock.HeaderTrigger)
	c.cancel(4)
	c.takeAll()
	c.pass(10)
	for range 3 {
		c.turn(0)
	}
	for r, fires := range map[*kgo.Record]bool{first[0]: true, first[1]: true, first[2]: false, first[3]: false,
		again: true, first[4]: false} {
		if c.emitted[r.Offset] != nil != fires {
			t.Errorf("request %d has fired: %v", r.Offset, !fires)
		}
	}
	if due := header(c.emitted[first[0].Offset], waterclock.HeaderDue); due != header(first[0], waterclock.HeaderAt) {
		t.Errorf("resumed, it is due at %s", due)
	}
	c.finish()
}

// A recurring timer that is triggered fires outside its schedule, as often as it is
// triggered, each time with another event ID. It stays paused if it was.
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
			c.commit(true)
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
			c.commit(true)
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
