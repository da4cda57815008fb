package delaytopics

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kit/clocks"
)

// A record is refused for its timestamp only if it has none.
func TestValidateTime(t *testing.T) {
	for _, at := range []int64{0, time.Now().UnixMilli(), 1 << 60} {
		if refusal := validateTime(at); refusal != nil {
			t.Errorf("%d: %+v", at, refusal)
		}
	}
	if refusal := validateTime(-1); refusal == nil || refusal.Reason != string(waterclock.ReasonNoTimestamp) {
		t.Errorf("none: %+v", refusal)
	}
}

// The clock of this machine is set, the machine is suspended, a measurement is hours old, or a producer
// is ahead: no record becomes a dead letter for that, and each is passed on once the clock shows its
// time.
func TestNoClockMakesADeadLetter(t *testing.T) {
	g := newSetup(t)
	rapid.Check(t, func(t *rapid.T) {
		c := newCore(t, g)
		hours := func(what string) int64 {
			return rapid.Int64Range(-5, 5).Draw(t, what) * time.Hour.Milliseconds()
		}
		brokers := c.now // the right time, by which all producers go
		c.now += hours("off")
		last := int64(0)
		for range rapid.IntRange(1, 10).Draw(t, "rounds") {
			c.now += hours("set") // a suspended machine looks the same here
			before := clocks.At(time.UnixMilli(c.now))
			c.now += max(0, hours("read late"))
			c.o.Clocks.Measured(before, clocks.At(time.UnixMilli(c.now)), time.UnixMilli(brokers))
			brokers += 1000
			last = max(last, brokers+hours("producer"))
			c.write(last - c.now)
			c.deliver(1)
			if share := c.seal(100); share != nil {
				c.ends(emitter.Committed)
			}
		}
		if c.now = max(c.now, last) + delay; c.at < int64(len(c.log)) {
			if c.seal(100) == nil {
				t.Fatalf("nothing is passed on that is due")
			}
			c.ends(emitter.Committed)
		}
		if len(c.dead) > 0 || c.at < int64(len(c.log)) {
			t.Fatalf("of %d records %d are passed on, dead letters: %v", len(c.log), c.at, c.dead)
		}
	})
}

// A timestamp that lies as far ahead as possible is waited for, and not passed on early.
func TestNoTimestampIsSoFarAheadThatItIsPast(t *testing.T) {
	c := newCore(t, newSetup(t))
	for _, at := range []int64{math.MaxInt64, math.MaxInt64 - delay + 1} {
		c.write(at - c.now)
	}
	c.deliver(2)
	if share := c.seal(100); share != nil {
		t.Errorf("%d records are passed on whose time has not come", len(share.Emissions))
	}
	if got := c.p.Status(); got.Overdue != 0 {
		t.Errorf("overdue for %s", got.Overdue)
	}
	c.r.round()
}
