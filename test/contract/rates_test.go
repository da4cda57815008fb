package contract

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
)

// TestAPacedTarget: what fires at once goes to the target at its rate, by the emissions' timestamps, and to another
// target immediately. A cancel that is read in time wins, and what is too late expires. A changed rate takes effect
// while the instance runs.
func TestAPacedTarget(t *testing.T) {
	t.Parallel()
	const (
		n    = 600
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
	s.until("everything", func() bool { return len(at(s.Target)) == n })
	all := at(s.Target)
	// The first second is the burst. A busy machine may be slower, never faster.
	second := all[n-1].Sub(all[100]).Seconds()
	if got := float64(n-101) / second; got > 1.02*rate || got < 0.5*rate {
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
