package recurring

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// behind is how far the clock of owners is behind whose target is to fail.
const behind = 5 * time.Second

// takes says whether the target takes writes of an owner whose clock is behind: only
// while the topic allows a clock to be off. No replica need be stopped for it.
func (s *setup) takes(yes bool) {
	s.Helper()
	limit := behind / 2
	if yes {
		limit = time.Hour
	}
	kafkatest.SetTopic(s, s.Cluster.Admin(s.T), s.Target, "message.timestamp.before.max.ms",
		fmt.Sprint(limit.Milliseconds()))
}

// parked waits until that many timers are parked.
func (s *setup) parked(in *rig.Instance, n float64) {
	s.Helper()
	await.Until(s, patience, "timers are parked", func() bool { return in.Metric("waterclock_parked_timers") == n })
}

// A target takes no writes for some seconds: the occurrences due before its breaker
// closes were missed. Each policy has it for itself, and all have it together.
func TestTargetFailsAndComesBack(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	for name, of := range map[string][]string{"together": policies, "latest": {"latest"}, "none": {"none"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSetup(t)
			w.behind = behind
			witness := w.Cluster.CreateTopic(t, 1, nil, w.Requests+"-witness")
			in, log := rig.ServeLogged(t, w.config(), node.Options{Now: w.now})
			in.Ready(1, patience)
			first := w.soon(2 * time.Second)
			until := first.Add(32 * every)
			var recs []*kgo.Record
			for _, policy := range of {
				recs = append(recs, w.recurring(policy, "v", first, "timer-catch-up", policy, "timer-until",
					millis(until)))
			}
			other := w.recurring("witness", "v", first, "timer-catch-up", "all", "timer-until", millis(until))
			other.Headers[0].Value = []byte(witness)
			seen := *w
			seen.Out = kafkatest.Collect(t, w.Cluster, witness)
			w.Send(append(recs, other)...)
			for _, policy := range of {
				w.fired(policy, 3)
			}
			o := outage{from: w.now().Add(-every)}
			w.takes(false)
			w.parked(in, float64(len(of)))
			w.at(w.now().Add(2 * every))
			o.over = w.now()
			w.takes(true)
			await.Until(t, patience, "the target is healthy again", func() bool {
				return len(log.Lines("healthy again")) > 0 && in.Metric("waterclock_parked_timers") == 0
			})
			o.to = w.now()
			t.Logf("healthy again %s after it was fixed", o.to.Sub(o.over).Round(time.Millisecond))
			if o.to.After(until.Add(-2 * every)) {
				t.Error("the target is not healthy again before the end")
			}
			w.at(until)
			in.Balanced(0)
			w.Out.Quiet(quiet)
			by, all := w.firings(), seen.firings()["witness"]
			for _, policy := range of {
				w.caughtUp(policy, policy, by[policy], all, o, until)
			}
		})
	}
}

// What is parked for a target that takes nothing expires in its time, and does not
// wait for the target.
func TestParkedTimersExpireWithoutTheirTarget(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	w := newSetup(t)
	w.behind = behind
	in := rig.Serve(t, w.config(), node.Options{Now: w.now})
	in.Ready(1, patience)
	w.takes(false)
	first := w.soon(time.Second)
	const late, lasting, count = 30, 30, 3
	var recs []*kgo.Record
	for i := range late {
		recs = append(recs, w.request("late-"+millis(first)+string(rune('a'+i)), "v", "timer-at", millis(first),
			"timer-max-late", "6s"))
	}
	for i := range lasting {
		recs = append(recs, w.request("lasting-"+string(rune('a'+i)), "v", "timer-at", millis(first),
			"timer-max-late", "1h"))
	}
	recs = append(recs, w.recurring("all", "v", first, "timer-catch-up", "all", "timer-max-late", "6s",
		"timer-count", "3"))
	w.Send(recs...)
	w.parked(in, late+lasting+1)
	expired := func() float64 { return in.Metric("waterclock_outcomes_total", "outcome", "expired") }
	if got := expired(); got != 0 {
		t.Fatalf("%v have expired when all are parked: the machine is too slow for this test", got)
	}
	await.Until(t, patience, "what is parked expires", func() bool { return expired() == late+count })
	took := w.now().Sub(first.Add(6 * time.Second))
	t.Logf("expired within %s of the time", took.Round(time.Millisecond))
	in.Balanced(lasting)
	if got := len(w.Out.Records()); got != 0 {
		t.Errorf("%d emissions on a target that takes nothing", got)
	}
	w.takes(true)
	w.Out.WaitFor(lasting, patience)
	in.Balanced(0)
	w.Out.Quiet(quiet)
	if got := expired(); got != late+count {
		t.Errorf("%v have expired, want %d", got, late+count)
	}
}
