package operation

import (
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/service"
)

// The offset of this machine's clock from the broker's is known at the take, and
// followed while the partition is live.
func TestClockOffset(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 1, nil)
	target := c.CreateTopic(t, 1, nil, requests+"-out")
	var ahead atomic.Int64
	in := rig.Serve(t, rig.Config(t, c.Seeds(), requests), service.Options{
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	in.Ready(1, time.Minute)
	offset := func() float64 { return in.Metric("waterclock_clock_offset_seconds") }
	if got := offset(); math.Abs(got) > 0.5 {
		t.Errorf("offset %v s at the take, want about 0", got)
	}
	ahead.Store(int64(3 * time.Second))
	rig.Send(t, c.Client(t), timers(requests, target, "id-", 1, time.Now(), 0, nil)...)
	rig.Until(t, time.Minute, "an offset of about 3 s", func() bool { return math.Abs(offset()-3) < 0.5 })
}

// The clock is set back while timers sleep: they wait until the time has come
// again, by the clock of their owner.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 2, nil)
	target := c.CreateTopic(t, 1, nil, requests+"-out")
	out := kafkatest.Collect(t, c, target)
	var ahead atomic.Int64
	in := rig.Serve(t, rig.Config(t, c.Seeds(), requests), service.Options{
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	in.Ready(2, time.Minute)
	const n, jump = 20, 4 * time.Second
	due := time.Now().Add(6 * time.Second)
	rig.Send(t, c.Client(t), timers(requests, target, "id-", n, due, 500*time.Millisecond, nil)...)
	in.Balanced(n)
	if time.Now().After(due) {
		t.Fatal("the machine is too slow for this test")
	}
	ahead.Store(-int64(jump))
	for _, r := range out.WaitFor(n, time.Minute) {
		if early := due.Add(jump).Sub(r.At); early > 0 {
			t.Errorf("%s fired %s before its time had come again", r.Key, early)
		}
	}
	out.Quiet(time.Second)
	once(t, out.Records(), n)
	if got := in.Metric("waterclock_clock_jumps_total", "direction", "back"); got != 1 {
		t.Errorf("%v jumps back are counted", got)
	}
	in.Balanced(0)
}
