package partition

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/partition/upcoming"
)

// forecast reads what the forecast wants to read, and compares its result with the fold of the changelog.
func (c *core) forecast() {
	c.t.Helper()
	f := c.s.keeper.forecast
	for f.scan(context.Background()) {
	}
	if len(c.s.keeper.handover.steps) > 0 || c.unheard {
		return // it lacks a step that the changelog has
	}
	got, complete := f.within()
	if !complete {
		c.g.seen["not all counted"]++
		return
	}
	c.g.seen["all counted"]++
	var most, least upcoming.Due // without parked timers, which the clock may have made due later again
	parked := c.parkedIDs()
	for id, t := range c.fold(c.end) {
		for i, d := range upcoming.Windows {
			until := c.now + d.Milliseconds()
			if !t.Ref().IsPending() || t.Ref().Due < c.now-999 || t.Ref().Due > until+999 {
				continue
			}
			most[i]++
			if second := upcoming.Second(t.Ref().Due); second >= upcoming.Second(c.high) && second < upcoming.Second(
				until) && !parked[id] {
				least[i]++
			}
		}
	}
	for i, n := range got {
		if n < least[i] || n > most[i] {
			c.t.Fatalf("%d timers are said to fall due within %s, want %d to %d", n, upcoming.Windows[i],
				least[i], most[i])
		}
	}
}

// parkedIDs returns the IDs of timers that the store has parked.
func (c *core) parkedIDs() map[string]bool {
	ids, all := [][]byte{}, map[string]bool{}
	for id := range c.fold(c.end) {
		ids = append(ids, []byte(id))
	}
	_, parked, err := c.s.keeper.store.GetAll(ids)
	c.ok(err)
	for i, id := range ids {
		all[string(id)] = parked[i]
	}
	return all
}

// TestForecastAgainstModel compares the forecast with the changelog, whatever happens to a partition: see
// TestPartitionAgainstModel.
func TestForecastAgainstModel(t *testing.T) {
	g := newSetup(t)
	rapid.Check(t, func(t *rapid.T) {
		c := newCoreOf(t, g, rapid.SampledFrom([]int64{250, 1 << 20}).Draw(t, "wheel bytes"), 1000,
			rapid.SampledFrom([]int{1, 3}).Draw(t, "sub-partitions"))
		c.lazy = true
		c.o.Memory.Dirty = budget.Alone(rapid.SampledFrom([]int64{1, 2000, 1 << 20}).Draw(t, "dirty bytes"))
		c.p.o.Memory.Dirty = c.o.Memory.Dirty
		all := c.actions()
		all["much later"] = func(t *rapid.T) { c.pass(rapid.Int64Range(60_000, 6_000_000).Draw(t, "ms")) }
		all["long"] = func(t *rapid.T) {
			c.schedule(rapid.IntRange(0, 5).Draw(t, "id"), rapid.Int64Range(0, 4_500_000).Draw(t, "in"))
		}
		all[""] = func(*rapid.T) { c.forecast() }
		t.Repeat(all)
		c.finish()
		c.forecast()
	})
	if g.seen["all counted"] < 4*g.seen["not all counted"] {
		t.Errorf("it was complete %d times, and %d times it was not", g.seen["all counted"], g.seen["not all counted"])
	}
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
		c.forecast()
		due, complete := c.s.keeper.forecast.within()
		if want := (upcoming.Due{0, 0, timers / 2, timers}); due != want || !complete {
			t.Errorf("acquired %v: due %v, complete %v, want %v", acquired, due, complete, want)
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
		c.forecast()
		if due, _ := c.s.keeper.forecast.within(); due[2] != 0 || due[3] != want {
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
