package operation

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

// The clock is set while timers sleep. Set back, they wait until the time has come again; set ahead, those that are due
// by it fire then, and not when the sleep would have ended. Nothing fires before it is due by the clock of its owner.
func TestClockIsSetWhileTimersSleep(t *testing.T) {
	t.Parallel()
	const n = 20
	for _, v := range []struct {
		direction string
		due, jump time.Duration
		within    time.Duration // of the jump
	}{
		{"back", 6 * time.Second, -4 * time.Second, limit},
		// Within what wheels are loaded for: nothing else wakes the workers.
		{"ahead", 11 * time.Second, 12 * time.Second, 9 * time.Second},
	} {
		t.Run(v.direction, func(t *testing.T) {
			t.Parallel()
			s := onKafka(t, 2, 1).serves()
			due := time.Now().Add(v.due)
			s.Send(s.Timers("id-", n, due, 500*time.Millisecond)...)
			s.Balanced(n)
			if time.Now().After(due) {
				t.Fatal("the machine is too slow for this test")
			}
			s.ahead.Store(int64(v.jump))
			for _, r := range s.Out.WaitFor(n, v.within) {
				var at int64
				if _, err := fmt.Sscan(r.Header("waterclock-due"), &at); err != nil || r.Timestamp.UnixMilli() < at ||
					r.At.Add(v.jump).UnixMilli() < at {
					kafkatest.Inexact(t, "early by the owner's clock: %s due %d, timestamp %s, came %s", r.Key, at,
						r.Timestamp, r.At)
				}
			}
			s.Out.Quiet(time.Second)
			ids := make(map[string]bool)
			for _, r := range s.Out.Records() {
				ids[string(r.Key)] = true
			}
			if records := s.Out.Records(); len(ids) != n || len(records) != n {
				kafkatest.Inexact(t, "%d emissions of %d timers", len(records), len(ids))
			}
			s.counts(1, "waterclock_clock_jumps_total", "direction", v.direction)
			s.Balanced(0)
		})
	}
}

// shifted is an instance whose clock is off.
type shifted struct {
	*scene
	letters *kafkatest.Collector
}

func newShifted(t *testing.T, ahead time.Duration) *shifted {
	t.Helper()
	s := &shifted{scene: onKafka(t, 1, 3)}
	s.ahead.Store(int64(ahead))
	s.serve()
	s.letters = kafkatest.Collect(t, s.Cluster, topics.DeadLetters(s.Requests))
	return s
}

// target makes another target topic, with settings given as name, value.
func (s *shifted) target(name string, settings ...string) (string, *kafkatest.Collector) {
	s.Helper()
	topic := s.Topic(s.Requests+"-"+name, 3, settings...)
	return topic, kafkatest.Collect(s, s.Cluster, topic)
}

// to sends n timers for a topic, with the IDs prefix0, prefix1 and so on.
func (s *shifted) to(topic, prefix string, n int, due time.Time) {
	s.Helper()
	for i := range n {
		rig.Send(s, s.Client, rig.Timer(s.Requests, topic, fmt.Sprint(prefix, i), due))
	}
}

const refusing = "waterclock_clock_refused_targets"

// An owner whose clock is two hours behind: its timers are not due, and nothing is refused. What it fires then has its
// time. The metric shows how far the clock is off, when partitions are acquired and from then on.
func TestOwnersClockHoursBehind(t *testing.T) {
	t.Parallel()
	const hours, n = 2 * time.Hour, 20
	s := newShifted(t, -hours)
	off := func() float64 { return s.Metric("waterclock_clock_offset_seconds") }
	if got := off() + hours.Seconds(); math.Abs(got) > 60 {
		t.Errorf("the offset is shown %v s wrong at the acquisition", got)
	}
	start := time.Now()
	s.to(s.Target, "now-", n, start)
	s.to(s.Target, "past-", n, start.Add(-hours-time.Minute))
	for _, r := range s.Out.WaitFor(n, limit) {
		if off := r.At.Sub(r.Timestamp) - hours; off.Abs() > time.Minute || !strings.HasPrefix(string(r.Key), "past-") {
			t.Errorf("%s fired with timestamp %s", r.Key, r.Timestamp)
		}
	}
	s.Balanced(n)
	s.ahead.Store(0)
	s.counts(1, "waterclock_clock_jumps_total", "direction", "ahead") // the clocks are compared by the next step
	s.to(s.Target, "then-", 1, time.Now())
	rig.Exactly(t, s.Out.WaitFor(2*n+1, limit), 2*n+1)
	s.until("no offset is shown", func() bool { return math.Abs(off()) < 0.5 })
	s.Out.Quiet(time.Second)
	if got := len(s.letters.Records()); got > 0 || s.Metric(refusing) != 0 {
		t.Errorf("%d dead letters, %v targets refuse the clock", got, s.Metric(refusing))
	}
	s.Balanced(0)
}

// Targets that allow no clock to be off by seconds are unhealthy while one is, unless they have the brokers'
// timestamps, and nobody else is: the instance is ready, and says why that topic gets nothing. What is for it waits,
// and says nothing about its timers: they can be cancelled, and bad requests are refused meanwhile. When the clock is
// right each fires once, at its time.
func TestTargetThatAllowsNoClockToBeOff(t *testing.T) {
	t.Parallel()
	const off, n = 20 * time.Second, 20
	s := newShifted(t, off)
	strict, outStrict := s.target("strict", "message.timestamp.after.max.ms", "5000")
	stamped, outStamped := s.target("stamped", "message.timestamp.after.max.ms", "5000",
		"message.timestamp.type", "LogAppendTime")
	s.to(strict, "strict-", n, time.Now())
	s.counts(3, refusing)
	s.to(s.Target, "id-", n, time.Now())
	s.to(stamped, "stamped-", n, time.Now())
	rig.Exactly(t, s.Out.WaitFor(n, limit), n)
	rig.Exactly(t, outStamped.WaitFor(n, limit), n)
	if status, text := s.Readyz(); status != 200 || !strings.Contains(text, strict+"/") ||
		!strings.Contains(text, "message.timestamp.after.max.ms") {
		t.Errorf("readyz is %d: %s", status, text)
	}
	for i := range n / 2 {
		s.Send(s.Cancel(fmt.Sprint("strict-", i)))
	}
	s.Send(s.Request("bad", "v", "timer-target-topic", s.Target))
	s.letters.WaitFor(1, limit)
	s.Balanced(n / 2)
	s.ahead.Store(0)
	rig.Exactly(t, outStrict.WaitFor(n/2, limit), n/2)
	outStrict.Quiet(time.Second)
	if got := len(s.letters.Records()); got != 1 {
		t.Errorf("%d dead letters, want that of the bad request", got)
	}
	s.Balanced(0)
}
