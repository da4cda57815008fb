package intake

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock"
)

// begin is when the tests of meters begin.
var begin = time.UnixMilli(now)

func TestMeter(t *testing.T) {
	const ms = time.Millisecond
	type arrival struct {
		stamp, now time.Duration // since begin
		n          int           // how many come at once
		want       int           // how many of them are within the rate
	}
	for _, c := range []struct {
		name     string
		rate     float64
		caughtUp bool // everything is read at each arrival
		arrivals []arrival
	}{
		{"a second's worth at once", 10, true,
			[]arrival{{0, 0, 25, 10}, {100 * ms, 100 * ms, 5, 1}, {5 * time.Second, 5 * time.Second, 25, 10}}},
		{"less than one a second", 0.5, true,
			[]arrival{{0, 0, 3, 1}, {time.Second, time.Second, 1, 0}, {2 * time.Second, 2 * time.Second, 2, 1}}},
		{"a backlog that was within the rate", 10, false, []arrival{
			{-50 * time.Second, 0, 10, 10}, {-49 * time.Second, 0, 10, 10}, {-48 * time.Second, 0, 10, 10},
			{-10 * time.Second, 0, 10, 10}, {0, 0, 10, 10},
		}},
		{"a backlog that was not", 10, false,
			[]arrival{{-50 * time.Second, 0, 30, 10}, {-49 * time.Second, 0, 30, 10}}},
		{"timestamps out of order", 10, false, []arrival{{0, 0, 5, 5}, {-time.Hour, 0, 5, 5}, {-time.Hour, 0, 5, 0}}},
		{"timestamps in the future", 10, true,
			[]arrival{{time.Hour, 0, 20, 10}, {2 * time.Hour, 0, 5, 0}, {time.Second, time.Second, 20, 10}}},
		{"timestamps in the past, all read", 10, true, []arrival{{0, 0, 10, 10}, {-time.Hour, time.Second, 20, 10}}},
		{"no timestamps", 10, true, []arrival{{-begin.Sub(time.UnixMilli(-1)), 0, 20, 10},
			{-begin.Sub(time.UnixMilli(-1)), time.Second, 20, 10}}},
		{"a clock that is set back", 10, true,
			[]arrival{{0, time.Hour, 20, 10}, {0, 0, 20, 10}, {0, time.Second, 20, 10}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMeter(c.rate)
			for i, a := range c.arrivals {
				if c.caughtUp {
					m.caughtUp(begin.Add(a.now))
				}
				got := 0
				for range a.n {
					if m.admit(begin.Add(a.stamp), begin.Add(a.now)) {
						got++
					}
				}
				if got != a.want {
					t.Errorf("arrival %d: %d admitted, want %d", i, got, a.want)
				}
			}
		})
	}
}

// TestMeterBounds: whatever timestamps say, no more than the rate is admitted over the time that passes while
// everything is read. A producer that keeps to the rate is never refused, however late its requests are read.
func TestMeterBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0.01, 1000).Draw(t, "rate")
		m := newMeter(rate)
		now, admitted := begin, 0
		for range rapid.IntRange(1, 200).Draw(t, "arrivals") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "pause")))
			m.caughtUp(now)
			stamp := now.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "stamp")))
			if m.admit(stamp, now) {
				admitted++
			}
		}
		if most := rate*(now.Sub(begin)+burst).Seconds() + 1; float64(admitted) > most {
			t.Fatalf("%d admitted in %s at %v a second, at most %v may be", admitted, now.Sub(begin), rate, most)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0.01, 1000).Draw(t, "rate")
		m := newMeter(rate)
		stamp := begin
		now := begin.Add(365 * 24 * time.Hour)
		for i := range rapid.IntRange(1, 200).Draw(t, "requests") {
			if !m.admit(stamp, now) {
				t.Fatalf("request %d is refused", i)
			}
			stamp = stamp.Add(m.between + time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "pause")))
		}
	})
}

func TestMeterDelays(t *testing.T) {
	m := newMeter(10)
	var wait time.Duration
	for range 110 { // a burst of 10, and 100 more
		wait = m.delay(begin, begin)
	}
	// When the wait is over one request is within the rate, and no more.
	if wait != 10*time.Second+100*time.Millisecond {
		t.Errorf("wait %s after 110 requests at 10 a second", wait)
	}
	later := begin.Add(wait)
	if got := m.delay(later, later); got != 100*time.Millisecond {
		t.Errorf("the one after that waits %s", got)
	}
	if got := newMeter(10).delay(begin.Add(-time.Hour), begin); got != 0 {
		t.Errorf("one of an hour ago has the next one wait %s", got)
	}
}

// TestValidateOverQuota: a request that a meter did not admit is refused if it schedules and nothing else is wrong with
// it; a cancel never is.
func TestValidateOverQuota(t *testing.T) {
	over := func(r *kgo.Record) *kgo.Record {
		markOver(r)
		return r
	}
	good := []string{"timer-at", "1700000000000", "timer-target-topic", "ok"}
	rules := testRules()
	for _, c := range []struct {
		name string
		rec  *kgo.Record
		want waterclock.Reason
	}{
		{"within", request(body, good...), ""},
		{"over", over(request(body, good...)), waterclock.ReasonOverQuota},
		{"over, and bad", over(request(body, "timer-at", "x")), waterclock.ReasonBadTime},
		{"a cancel", over(request(nil)), ""},
	} {
		_, _, refusal := rules.Validate(c.rec, now)
		if got := refusal; got == nil && c.want != "" || got != nil && got.Reason != string(c.want) {
			t.Errorf("%s: %+v, want %q", c.name, got, c.want)
		}
	}
	rules = testRules()
	rules.Dialect, rules.DefaultTarget = RabbitMQ, "ok"
	if _, _, refusal := rules.Validate(over(request(body, "x-delay", "1")), now); refusal == nil ||
		refusal.Reason != string(waterclock.ReasonOverQuota) {
		t.Errorf("in a dialect: %+v", refusal)
	}
}

// TestRulesFull: a partition that has its share of pending timers accepts no more.
func TestRulesFull(t *testing.T) {
	r := testRules()
	if refusal := r.Full(1 << 40); refusal != nil {
		t.Errorf("without a limit: %+v", refusal)
	}
	r.Quota.Pending = 10
	if refusal := r.Full(9); refusal != nil {
		t.Errorf("below it: %+v", refusal)
	}
	if refusal := r.Full(10); refusal == nil || refusal.Reason != string(waterclock.ReasonOverQuota) {
		t.Errorf("at it: %+v", refusal)
	}
}

// TestRulesAreReplaced: the newest rules apply, and cached verdicts of the older ones do not.
func TestRulesAreReplaced(t *testing.T) {
	rules := testRules()
	validate := func(want waterclock.Reason) {
		t.Helper()
		_, _, refusal := rules.Validate(request(body, "timer-at", "1700000000000", "timer-target-topic", "ok"), now)
		if refusal == nil && want != "" || refusal != nil && refusal.Reason != string(want) {
			t.Errorf("got %+v, want %q", refusal, want)
		}
	}
	validate("")
	strict := testRules()
	strict.Allow = func(string) bool { return false }
	rules.Replace(strict)
	validate(waterclock.ReasonTargetNotAllowed)
	small := testRules()
	small.Limits.ValueBytes = 1
	rules.Replace(small)
	validate(waterclock.ReasonValueTooLarge)
	if rules.Current() != small {
		t.Error("other rules hold")
	}
	rules.Replace(testRules())
	validate("")
}
