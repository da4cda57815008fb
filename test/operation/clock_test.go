package operation

import (
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// The offset of this machine's clock from the broker's is known at the acquisition, and
// followed while the partition is live.
func TestClockOffset(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 1, nil)
	target := c.CreateTopic(t, 1, nil, requests+"-out")
	var ahead atomic.Int64
	in := rig.Serve(t, rig.Config(t, c.Seeds(), requests), node.Options{
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	in.Ready(1, time.Minute)
	offset := func() float64 { return in.Metric("waterclock_clock_offset_seconds") }
	if got := offset(); math.Abs(got) > 0.5 {
		t.Errorf("offset %v s at the acquisition, want about 0", got)
	}
	ahead.Store(int64(3 * time.Second))
	rig.Send(t, c.Client(t), timers(requests, target, "id-", 1, time.Now(), 0, nil)...)
	await.Until(t, time.Minute, "an offset of about 3 s", func() bool { return math.Abs(offset()-3) < 0.5 })
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
	in := rig.Serve(t, rig.Config(t, c.Seeds(), requests), node.Options{
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
			kafkatest.Inexact(t, "%s fired %s before its time had come again", r.Key, early)
		}
	}
	out.Quiet(time.Second)
	rig.Exactly(t, out.Records(), n)
	if got := in.Metric("waterclock_clock_jumps_total", "direction", "back"); got != 1 {
		t.Errorf("%v jumps back are counted", got)
	}
	in.Balanced(0)
}

// shifted is an instance whose clock is off.
type shifted struct {
	*rig.Instance
	c        *kafkatest.Cluster
	requests string
	ahead    atomic.Int64
	letters  *kafkatest.Collector
}

func newShifted(t *testing.T, ahead time.Duration) *shifted {
	t.Helper()
	s := &shifted{c: kafkatest.Shared(t)}
	s.requests = s.c.CreateTopic(t, 1, nil)
	s.ahead.Store(int64(ahead))
	s.Instance = rig.Serve(t, rig.Config(t, s.c.Seeds(), s.requests), node.Options{
		Now: func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) },
	})
	s.Ready(1, time.Minute)
	s.letters = kafkatest.Collect(t, s.c, s.requests+".waterclock.dead-letters")
	return s
}

// target makes a target topic, which is collected.
func (s *shifted) target(t *testing.T, name string, configs map[string]*string) (string, *kafkatest.Collector) {
	t.Helper()
	topic := s.c.CreateTopic(t, 3, configs, s.requests+"-"+name)
	return topic, kafkatest.Collect(t, s.c, topic)
}

// readyz is the status, and whether the text says all of that.
func (s *shifted) readyz(parts ...string) (status int, says bool, text string) {
	status, text = s.Readyz()
	says = true
	for _, part := range parts {
		says = says && strings.Contains(text, part)
	}
	return status, says, text
}

func (s *shifted) refused() float64 { return s.Metric("waterclock_clock_refused_targets") }

// An owner whose clock is two hours ahead: the brokers refuse what it fires, which
// says nothing about the timers. They wait, whatever else goes on: a topic with
// the brokers' timestamps, cancels, refusals of bad requests. /readyz shows both
// clocks. When the clock is set right each fires once, at its time.
func TestOwnersClockHoursAhead(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const hours, n = 2 * time.Hour, 40
	s := newShifted(t, hours)
	target, out := s.target(t, "out", nil)
	stamped, outStamped := s.target(t, "stamped", map[string]*string{"message.timestamp.type": new("LogAppendTime")})
	cl := s.c.Client(t)
	start := time.Now()
	soon := start.Add(40 * time.Second) // an hour and more ago, by the owner
	rig.Send(t, cl, timers(s.requests, target, "past-", n, start, 0, nil)...)
	rig.Send(t, cl, timers(s.requests, target, "soon-", n, soon, 0, nil)...)
	rig.Send(t, cl, timers(s.requests, stamped, "stamped-", n, start, 0, nil)...)
	await.Until(t, time.Minute, "the clock is refused", func() bool { return s.refused() == 3 })
	rig.Exactly(t, outStamped.WaitFor(n, time.Minute), n)
	await.Until(t, time.Minute, "all others are parked",
		func() bool { return s.Metric("waterclock_parked_timers") == 2*n })
	// A minute apart at the most: the hour and the minute tell.
	utc := time.Now().UTC()
	if status, says,
		text := s.readyz(target+"/", "refuse the time of this machine, "+utc.Add(hours).Format("2006-01-02T15:"),
		"by the brokers it is "+utc.Format("2006-01-02T15:")); status != 503 || !says && utc.Minute() != 59 {
		t.Errorf("readyz is %d: %s", status, text)
	}
	bad := timers(s.requests, target, "bad-", 1, start, 0, nil)
	bad[0].Headers = bad[0].Headers[1:]
	rig.Send(t, cl, bad...)
	for _, r := range timers(s.requests, target, "soon-", n/2, soon, 0, nil) {
		r.Value, r.Headers = nil, nil // a cancel
		rig.Send(t, cl, r)
	}
	s.letters.WaitFor(1, time.Minute)
	s.Balanced(n + n/2)
	if got := len(out.Records()); got > 0 {
		t.Errorf("%d emissions that the brokers refuse", got)
	}

	s.ahead.Store(0)
	await.Until(t, time.Minute, "the clock is right", func() bool { return s.refused() == 0 })
	t.Logf("the clock is right %s before the later ones are due", time.Until(soon).Round(time.Second))
	await.Until(t, 10*time.Second, "ready", func() bool { status, _, _ := s.readyz(); return status == 200 })
	rig.Exactly(t, out.WaitFor(n+n/2, 2*time.Minute), n+n/2)
	for _, r := range out.Records() {
		if due := r.Header("waterclock-due"); due > strconv.FormatInt(r.Timestamp.UnixMilli(), 10) ||
			due > strconv.FormatInt(r.At.UnixMilli(), 10) {
			t.Errorf("%s is due %s and came with timestamp %d at %d", r.Key, due, r.Timestamp.UnixMilli(),
				r.At.UnixMilli())
		}
	}
	out.Quiet(time.Second)
	if got := len(s.letters.Records()); got != 1 {
		t.Errorf("%d dead letters, want that of the bad request", got)
	}
	s.Balanced(0)
}

// An owner whose clock is two hours behind: its timers are not due, and nothing is
// refused. What it fires then has its time, and the metric shows how far it is off.
func TestOwnersClockHoursBehind(t *testing.T) {
	t.Parallel()
	const hours, n = 2 * time.Hour, 20
	s := newShifted(t, -hours)
	target, out := s.target(t, "out", nil)
	start := time.Now()
	cl := s.c.Client(t)
	rig.Send(t, cl, timers(s.requests, target, "now-", n, start, 0, nil)...)
	rig.Send(t, cl, timers(s.requests, target, "past-", n, start.Add(-hours-time.Minute), 0, nil)...)
	for _, r := range out.WaitFor(n, time.Minute) {
		if off := r.At.Sub(r.Timestamp) - hours; off.Abs() > time.Minute || !strings.HasPrefix(string(r.Key), "past-") {
			t.Errorf("%s fired with timestamp %s", r.Key, r.Timestamp)
		}
	}
	s.Balanced(n)
	if got := s.Metric("waterclock_clock_offset_seconds") + hours.Seconds(); math.Abs(got) > 60 {
		t.Errorf("the offset is shown %v s wrong", got)
	}
	s.ahead.Store(0)
	rig.Exactly(t, out.WaitFor(2*n, time.Minute), 2*n)
	out.Quiet(time.Second)
	if got := len(s.letters.Records()); got > 0 || s.refused() != 0 {
		t.Errorf("%d dead letters, %v targets refuse the clock", got, s.refused())
	}
	s.Balanced(0)
}

// A topic that allows no clock to be off by seconds is unhealthy while one is, and
// nobody else: the instance is ready, and says why that topic gets nothing.
func TestTargetThatAllowsNoClockToBeOff(t *testing.T) {
	t.Parallel()
	const off, n = 20 * time.Second, 20
	s := newShifted(t, off)
	strict, outStrict := s.target(t, "strict", map[string]*string{"message.timestamp.after.max.ms": new("5000")})
	target, out := s.target(t, "out", nil)
	cl := s.c.Client(t)
	rig.Send(t, cl, timers(s.requests, strict, "strict-", n, time.Now(), 0, nil)...)
	await.Until(t, time.Minute, "the topic is unhealthy", func() bool { return s.refused() == 3 })
	rig.Send(t, cl, timers(s.requests, target, "id-", n, time.Now(), 0, nil)...)
	rig.Exactly(t, out.WaitFor(n, time.Minute), n)
	if status, says, text := s.readyz(strict+"/", "message.timestamp.after.max.ms"); status != 200 || !says {
		t.Errorf("readyz is %d: %s", status, text)
	}
	s.ahead.Store(0)
	rig.Exactly(t, outStrict.WaitFor(n, time.Minute), n)
	if got := len(s.letters.Records()); got > 0 {
		t.Errorf("%d dead letters", got)
	}
	s.Balanced(0)
}
