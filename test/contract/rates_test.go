package contract

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// TestAPacedTarget: what fires at once goes to the target at its rate, by the emissions' timestamps, and to another
// target immediately. A cancel that is read in time wins, and what is too late expires. A changed rate takes effect
// while the instance runs.
func TestAPacedTarget(t *testing.T) {
	t.Parallel()
	const (
		n    = 1000
		rate = 100
	)
	s := newSetup(t, kafkatest.Shared(t), 4, 2)
	free := s.target("free", 1)
	cfg := s.Config()
	cfg.Targets = append(cfg.Targets, free)
	cfg.TargetRates = []config.TargetRate{{Glob: s.Target, N: rate, Unit: "s"}}
	reload := make(chan *config.Config)
	in := s.serve(cfg, 4, node.Options{Reload: reload})
	s.Out = kafkatest.Collect(t, s.Cluster, s.Target, free)
	due := time.Now().Add(5 * time.Second)
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, s.schedule(fmt.Sprint("paced-", i), "v", due.UnixMilli()).request)
	}
	for i := range 50 {
		recs = append(recs, s.timer(free, fmt.Sprint("free-", i), "v", due.UnixMilli()+500).request)
	}
	last := s.schedule("cancelled", "v", due.UnixMilli()+600).request
	late := s.schedule("late", "v", due.UnixMilli()+700).request
	late.Headers = append(late.Headers, header("timer-max-late", "2s"))
	s.Send(append(recs, last, late)...)
	at := func(topic string) (all []time.Time) {
		for _, r := range s.Out.Records() {
			if r.Topic == topic {
				all = append(all, r.Timestamp)
			}
		}
		slices.SortFunc(all, time.Time.Compare)
		return all
	}
	s.until("deferred timers are counted", func() bool {
		return in.Metric("waterclock_deferred_timers", "target", s.Target) > n/4
	})
	s.Send(s.Cancel("cancelled"))
	s.until("the other target has all", func() bool { return len(at(free)) == 50 })
	if sent := len(at(s.Target)); sent >= n {
		t.Errorf("all %d were sent when another target had its own", sent)
	}
	s.until("everything", func() bool { return len(at(s.Target)) >= n })
	all := at(s.Target)
	if len(all) > n {
		t.Fatalf("%d were sent, want %d: the cancelled one or the late one is among them", len(all), n)
	}
	// The first second is the burst. A busy machine may be slower.
	second := all[n-1].Sub(all[rate]).Seconds()
	if got := float64(n-1-rate) / second; got < 0.5*rate {
		t.Errorf("%g a second, want %d", got, rate)
	}
	for i := range all {
		for j := i + rate; j < n; j++ {
			if took := all[j].Sub(all[i]).Seconds(); float64(j-i+1) > rate*took+rate+2 {
				t.Fatalf("%d in %g s, at most %d a second and as many at once", j-i+1, took, rate)
			}
		}
	}
	t.Logf("%d in %s", n, all[n-1].Sub(all[0]))
	s.until("nothing is deferred", func() bool {
		return in.Metric("waterclock_deferred_timers", "target", s.Target) <= 0
	})
	if got := in.Metric("waterclock_outcomes_total", "outcome", "expired"); got != 1 {
		t.Errorf("%g expired, want 1", got)
	}

	next := *cfg
	next.TargetRates = nil
	reload <- &next
	reload <- &next // taken over when the second one is taken
	var more []*kgo.Record
	due = time.Now().Add(-time.Second)
	for i := range n {
		more = append(more, s.schedule(fmt.Sprint("free-now-", i), "v", due.UnixMilli()).request)
	}
	begun := time.Now()
	s.Send(more...)
	s.until("all without a rate", func() bool { return len(at(s.Target)) == 2*n })
	t.Logf("%d without a rate in %s", n, time.Since(begun))
}

// TestDeferredTimers: a timer that waits for the rate of its target is shown as such, by the API, by status and by a
// metric, and until when it waits. It is cancelled, moved, paused, resumed, triggered and expires like any other, and
// fires when the rate is taken away.
func TestDeferredTimers(t *testing.T) {
	t.Parallel()
	const maxLate = 30 * time.Second
	waterclock := rig.Binary(t)
	m := &moves{setup: newSetup(t, kafkatest.Shared(t), 4, 2)}
	cfg := m.policy(func(p *config.Policy) {
		p.Events, p.TargetRates = true, []config.TargetRate{{Topic: m.Requests, Glob: m.Target, N: 1, Unit: "h"}}
	})
	cfg.API = "127.0.0.1:0"
	reload := make(chan *config.Config)
	in := m.serve(cfg, 4, node.Options{Reload: reload})
	m.Caller = in.API()
	m.Out = kafkatest.Collect(t, m.Cluster, m.Target)
	all := []string{"cancelled", "moved", "paused", "triggered", "stays", "late"}
	for _, id := range all {
		fields := `"after":"1s"`
		if id == "late" {
			fields += fmt.Sprintf(`,"maxLate":"%s"`, maxLate)
		}
		m.put(id, fields)
	}
	is := func(id, state string) {
		t.Helper()
		m.until(id+" is "+state, func() bool { return m.Get(m.path(id)).Is(200, "").Body["state"] == state })
	}
	for _, id := range all {
		is(id, "deferred")
	}
	list := m.Get("/v1/topics/"+m.Requests+"/timers?state=deferred").Is(200, "").Items("timers")
	if len(list) != len(all) || list[0]["state"] != "deferred" {
		t.Errorf("%d of %d are listed as deferred: %v", len(list), len(all), list)
	}
	if parked := m.Get("/v1/topics/"+m.Requests+"/timers?state=parked").Is(200, "").Items("timers"); len(parked) > 0 {
		t.Errorf("listed as parked: %v", parked)
	}
	deferred := func() map[string]any {
		for _, d := range m.Get("/v1/cluster").Is(200, "").Items("deferredTargets") {
			if d["target"] == m.Target {
				return d
			}
		}
		return nil
	}
	var seen map[string]any
	m.until("the cluster shows them", func() bool {
		seen = deferred()
		return seen["deferred"] == float64(len(all))
	})
	oldest, through := dueOf(t, seen["oldestDue"]), dueOf(t, seen["through"])
	if in := time.Until(through); in < 4*time.Hour || in > 7*time.Hour || time.Until(oldest) > 0 ||
		seen["burst"] != 1.0 || seen["topic"] != m.Requests {
		t.Errorf("at one an hour %v", seen)
	}
	m.awaitMetric(float64(len(all)), "waterclock_deferred_timers", "target", m.Target)
	out, err := exec.CommandContext(t.Context(), waterclock, "status", "--url", m.URL).CombinedOutput()
	if want := fmt.Sprintf("deferred for %s, which has", m.Target); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("status: %v, want %q in\n%s", err, want, out)
	}

	m.Call("DELETE", m.path("cancelled"), "").Is(200, "cancelled")
	m.Get(m.path("cancelled")).Is(404, "not-found")
	m.patch("moved", `{"after":"1h"}`).Is(200, "moved")
	is("moved", "pending")
	m.Call("POST", m.path("paused", "/pause"), "").Is(200, "paused")
	is("paused", "paused")
	m.Call("POST", m.path("paused", "/resume"), "").Is(200, "resumed")
	is("paused", "deferred")
	m.Call("POST", m.path("triggered", "/trigger"), "").Is(200, "triggered")
	is("triggered", "deferred")
	// The last one comes first.
	if got := m.events("late", 2); !slices.Equal(got, []string{"expired", "scheduled"}) {
		t.Errorf("events of a timer that expires while it is deferred: %v", got)
	}
	m.Get(m.path("late")).Is(404, "not-found")
	m.awaitMetric(1, "waterclock_outcomes_total", "outcome", "expired")
	if sent := m.Out.Records(); len(sent) > 0 {
		t.Errorf("%d were sent", len(sent))
	}

	next := *cfg
	next.Tenants = nil
	reload <- &next
	reload <- &next // taken over when the second one is taken
	m.until("the others fire", func() bool { return len(m.Out.Records()) == 3 })
	m.awaitMetric(0, "waterclock_deferred_timers", "target", m.Target)
	m.until("nothing is deferred", func() bool { return deferred() == nil })
	if got := m.events("triggered", 3); !slices.Equal(got, []string{"fired", "triggered", "scheduled"}) {
		t.Errorf("events of a timer that is triggered while it is deferred: %v", got)
	}
}
