package partition

import (
	"context"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/partition/upcoming"
)

// forecast does the scans that the forecast asks for, and returns how many timers fall due.
func (c *core) forecast() upcoming.Due {
	c.t.Helper()
	f := c.s.forecast
	for f.scan(context.Background()) {
	}
	due, complete := f.within()
	if !complete {
		c.t.Fatal("not all timers are counted")
	}
	return due
}

// A partition with many timers in one second is counted after an acquisition, whatever its planners have in memory.
func TestForecastAfterAcquisition(t *testing.T) {
	g := newSetup(t)
	const timers = 2*turnRows + 100
	c := newCore(t, g, 1000, 100_000)
	for id := range timers {
		c.schedule(id, 90_000+int64(id%2)*int64(30*time.Minute/time.Millisecond))
	}
	c.room = 500
	for c.position < c.requests[timers-1].Offset {
		c.deliver(500)
		c.turn(0)
	}
	for _, acquired := range []bool{false, true} {
		if acquired {
			c.acquire()
		}
		if due, want := c.forecast(), (upcoming.Due{0, 0, timers / 2, timers}); due != want {
			t.Errorf("acquired %v: due %v, want %v", acquired, due, want)
		}
	}
}

// A paused timer is not due until it is resumed.
func TestForecastOfPausedTimers(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.schedule(1, 1_800_000)
	see := func(want int64) {
		t.Helper()
		c.takeAll()
		c.turn(0)
		if due := c.forecast(); due[2] != 0 || due[3] != want {
			t.Errorf("due: %v, want %d", due, want)
		}
	}
	see(1)
	c.steer(1, "timer-pause")
	see(0)
	c.steer(1, "timer-resume")
	see(1)
	c.cancel(1)
	see(0)
}
