package recurring

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/test/rig"
)

// The owner is killed, and comes back when occurrences have been missed: with its
// directory, and without.
func TestKilledAndRestartedAfterMissedOccurrences(t *testing.T) {
	t.Parallel()
	rig.Binary(t)
	for _, directory := range []struct {
		name string
		kept bool
	}{{"with its directory", true}, {"without its directory", false}} {
		t.Run(directory.name, func(t *testing.T) {
			t.Parallel()
			w := newSetup(t)
			dir := t.TempDir()
			start := func() *rig.Process {
				return rig.Start(t, rig.Arguments(w.Cluster.Seeds(), w.Requests, dir, "--instance-id", "one",
					"--session-timeout", session.String())...)
			}
			p := start()
			p.Ready(1, patience)
			first := w.soon(2 * time.Second)
			until := first.Add(22 * time.Second)
			var recs []*kgo.Record
			for _, policy := range policies {
				recs = append(recs,
					w.recurring("every-"+policy, "v", first, "timer-catch-up", policy, "timer-until", millis(until)),
					w.request("cron-"+policy, "v", "timer-cron", "* * * * * *", "timer-zone", "Africa/Lagos",
						"timer-catch-up", policy, "timer-until", millis(until)))
			}
			w.Send(recs...)
			for _, policy := range policies {
				w.fired("every-"+policy, 3)
				w.fired("cron-"+policy, 3)
			}
			o := outage{from: time.Now().Add(-every)} // what was under way may be lost
			p.Kill()
			w.at(time.Now().Add(4 * every))
			if !directory.kept {
				dir = t.TempDir()
			}
			o.over = time.Now()
			p = start()
			p.Ready(1, patience)
			if o.to = time.Now(); o.to.After(until.Add(-2 * every)) {
				t.Fatal("the machine is too slow for this test")
			}
			t.Logf("live again %s after the start", o.to.Sub(o.over).Round(time.Millisecond))
			w.at(until)
			p.Balanced(0)
			w.Out.Quiet(quiet)
			by := w.firings()
			w.contiguous("every-all", by["every-all"], first.UnixMilli(), 23)
			for _, policy := range policies {
				w.caughtUp("every-"+policy, policy, by["every-"+policy], by["every-all"], o, until)
				w.caughtUp("cron-"+policy, policy, by["cron-"+policy], by["every-all"], o, until)
			}
		})
	}
}
