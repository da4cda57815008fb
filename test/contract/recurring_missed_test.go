package contract

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// The owner is killed, and comes back when occurrences have been missed: with its directory, and without. Each timer
// has what its policy lets fire, and an occurrence that would be emitted later than its timer allows is counted
// instead.
func TestKilledAndRestartedAfterMissedOccurrences(t *testing.T) {
	t.Parallel()
	rig.Binary(t)
	for name, kept := range map[string]bool{"with its directory": true, "without its directory": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecurrence(t)
			dir := t.TempDir()
			start := func() *rig.Process {
				p := rig.Start(t, rig.Arguments(r.Cluster.Seeds(), r.Requests, dir, "--instance-id", "one",
					"--session-timeout", session.String())...)
				p.Ready(1, patience)
				return p
			}
			p := start()
			first := r.soon(2 * time.Second)
			until := first.Add(22 * time.Second)
			r.Send(r.catching(first, until, policies...)...)
			const limit = 1500 // ms
			r.Send(r.recurring("in time", "v", first, "timer-catch-up", "all", "timer-until", millis(until),
				"timer-max-late", fmt.Sprint(limit, "ms")))
			for _, policy := range policies {
				r.Send(r.request("cron-"+policy, "v", "timer-cron", "* * * * * *", "timer-zone", "Africa/Lagos",
					"timer-catch-up", policy, "timer-until", millis(until)))
				r.fires(3, policy, "cron-"+policy)
			}
			o := outage{from: time.Now().Add(-every)} // what was under way may be lost
			p.Kill()
			r.at(time.Now().Add(4 * every))
			if !kept {
				dir = t.TempDir()
			}
			o.over = time.Now()
			p = start()
			if o.to = time.Now(); o.to.After(until.Add(-2 * every)) {
				t.Fatal("the machine is too slow for this test")
			}
			r.at(until)
			p.Balanced(0)
			r.Out.Quiet(quiet)
			by := r.firings()
			r.contiguous("all", by["all"], first.UnixMilli(), 23)
			r.numbered("in time", by["in time"], first.UnixMilli())
			for _, f := range by["in time"] {
				if f.stamp-f.due > limit { // as late as the limit is not later than it
					kafkatest.Inexact(t, "occurrence %d was emitted %d ms late", f.number, f.stamp-f.due)
				}
			}
			expired := p.Metric("waterclock_outcomes_total", "outcome", "expired")
			if n := len(by["in time"]); expired == 0 || n+int(expired) > 23 {
				t.Errorf("%d occurrences were emitted in time, %v have expired, of 23", n, expired)
			}
			for _, policy := range policies {
				r.caughtUp(policy, policy, by[policy], by["all"], o, until)
				r.caughtUp("cron-"+policy, policy, by["cron-"+policy], by["all"], o, until)
			}
		})
	}
}

// behind is how far the clock of owners is behind whose target is to fail.
const behind = 5 * time.Second

// newBehind is a recurrence whose instance has its clock behind, and with it the log of the instance.
func newBehind(t *testing.T) (*recurrence, *rig.Log) {
	t.Helper()
	r := newRecurrence(t)
	r.behind = behind
	var log *rig.Log
	r.in, log = rig.ServeLogged(t, r.config(), node.Options{Now: r.now})
	r.in.Ready(1, patience)
	return r, log
}

// takes says whether the target takes writes of an owner whose clock is behind: only while the topic allows a clock to
// be off. No replica need be stopped for it.
func (r *recurrence) takes(yes bool) {
	r.Helper()
	limit := behind / 2
	if yes {
		limit = time.Hour
	}
	kafkatest.SetTopic(r, r.Cluster.Admin(r.T), r.Target, "message.timestamp.before.max.ms",
		fmt.Sprint(limit.Milliseconds()))
}

// A target takes no writes for some seconds: the occurrences due before its breaker closes were missed. Each policy has
// it for itself, and all have it together.
func TestTargetFailsAndComesBack(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	for name, of := range map[string][]string{"together": policies, "latest": {"latest"}, "none": {"none"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, log := newBehind(t)
			witness := r.target("witness", 1) // takes everything
			r.Out = kafkatest.Collect(t, r.Cluster, r.Target, witness)
			first := r.soon(2 * time.Second)
			until := first.Add(32 * every)
			r.Send(append(r.catching(first, until, of...), r.Request("witness", "v", "timer-target-topic", witness,
				"timer-at", millis(first), "timer-every", every.String(), "timer-catch-up", "all", "timer-until",
				millis(until)))...)
			r.fires(3, of...)
			o := outage{from: r.now().Add(-every)}
			r.takes(false)
			r.awaitMetric(float64(len(of)), "waterclock_parked_timers")
			r.at(r.now().Add(2 * every))
			o.over = r.now()
			r.takes(true)
			r.until("the target is healthy again", func() bool { return len(log.Lines("healthy again")) > 0 })
			r.awaitMetric(0, "waterclock_parked_timers")
			o.to = r.now()
			if o.to.After(until.Add(-2 * every)) {
				t.Error("the target is not healthy again before the end")
			}
			r.at(until)
			by := r.over()
			for _, policy := range of {
				r.caughtUp(policy, policy, by[policy], by["witness"], o, until)
			}
		})
	}
}

// What is parked for a target that takes nothing expires in its time, and does not wait for the target.
func TestParkedTimersExpireWithoutTheirTarget(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	r, _ := newBehind(t)
	r.takes(false)
	first := r.soon(time.Second)
	const late, lasting, count = 30, 30, 3
	recs := []*kgo.Record{r.recurring("all", "v", first, "timer-catch-up", "all", "timer-max-late", "6s",
		"timer-count", fmt.Sprint(count))}
	for i := range late {
		recs = append(recs,
			r.request(fmt.Sprint("late-", i), "v", "timer-at", millis(first), "timer-max-late", "6s"),
			r.request(fmt.Sprint("lasting-", i), "v", "timer-at", millis(first), "timer-max-late", "1h"))
	}
	r.Send(recs...)
	r.awaitMetric(late+lasting+1, "waterclock_parked_timers")
	if got := r.in.Metric("waterclock_outcomes_total", "outcome", "expired"); got != 0 {
		t.Fatalf("%v have expired when all are parked: the machine is too slow for this test", got)
	}
	r.awaitMetric(late+count, "waterclock_outcomes_total", "outcome", "expired")
	r.in.Balanced(lasting)
	if got := len(r.Out.Records()); got != 0 {
		t.Errorf("%d emissions on a target that takes nothing", got)
	}
	r.takes(true)
	r.Out.WaitFor(lasting, patience)
	r.over()
	if got := r.in.Metric("waterclock_outcomes_total", "outcome", "expired"); got != late+count {
		t.Errorf("%v have expired, want %d", got, late+count)
	}
}
