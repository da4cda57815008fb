package bench

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
)

// named is a run on topics that are there, and perhaps served by somebody.
func named(t *testing.T) (SteadyConfig, *kadm.Client) {
	t.Helper()
	l := DefaultSteady()
	l.Common, l.Rates, l.Duration, l.Least, l.Spread = common(t), []float64{1000}, 200*time.Millisecond, 0,
		10*time.Millisecond
	l.PassRecords = 50 // and so few timers to warm up
	l.Local, l.Requests, l.Target = false, "requests", "target"
	cl := kafkatest.Client(t, kgo.SeedBrokers(l.Cluster.Brokers...))
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopics(t.Context(), 2, 1, nil, "requests", "target"); err != nil {
		t.Fatal(err)
	}
	return l, adm
}

// serveNamed runs an instance beside the bench, and returns its end.
func serveNamed(t *testing.T, l SteadyConfig, group, targets string) (stop func()) {
	t.Helper()
	cfg := *l.Cluster
	cfg.Requests, cfg.Targets, cfg.Group, cfg.DataDir, cfg.HTTP = []string{"requests"}, []string{targets}, group,
		t.TempDir(), "127.0.0.1:0"
	ctx, cancel := context.WithCancel(context.Background())
	started, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- node.RunWith(ctx, &cfg, slog.New(slog.DiscardHandler),
			node.Options{Started: func(http string) { started <- http }})
	}()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("instance: %v", err)
		}
	}
	if err := awaitReady(t.Context(), <-started, 2); err != nil {
		t.Fatal(err)
	}
	return stop
}

func written(t *testing.T, adm *kadm.Client) (n int64) {
	t.Helper()
	ends, err := adm.ListEndOffsets(t.Context(), "requests")
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

// A topic that nobody serves, or nobody who allows the target, or another group, is said within seconds, and no timers
// are written.
func TestRequestTopicThatNobodyServes(t *testing.T) {
	t.Parallel()
	l, adm := named(t)
	l.Timeout = 4 * time.Second
	fails := func(name, want string) {
		t.Helper()
		begin, before := time.Now(), written(t, adm)
		_, err := Run(t.Context(), &l)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if took, n := time.Since(begin), written(t, adm)-before; took > 10*time.Second || n > 2 {
			t.Errorf("%s: said after %s, %d requests written", name, took, n)
		}
	}
	fails("never served", "requests has never been served as a request topic")
	stop := serveNamed(t, l, "waterclock", "other")
	fails("target not allowed", "the instances that serve requests reject timers for target: target-not-allowed: ")
	l.Cluster.Group = "another"
	l.Target = "other"
	fails("another group", "give the group of the instances with --group")
	stop()
	fails("served no more", "request not processed yet")
}

// What was scheduled on a topic of others and did not fire is cancelled.
func TestLeftoversAreCancelled(t *testing.T) {
	runs.NotRaced(t)
	t.Parallel()
	l, adm := named(t)
	stop := serveNamed(t, l, l.Cluster.Group, "*")
	defer stop()
	life := LifeConfig{Common: l.Common, Timers: 200, Lives: Lives{Least: time.Hour}}
	life.Timeout = 10 * time.Second
	reports, err := Run(t.Context(), &life)
	if len(reports) != 1 || phaseOf(t, reports[0], "life").Exact.Lost != 200 {
		t.Fatalf("%v, %+v: want 200 timers that are not due in the run", err, reports)
	}
	// The probe, what warms up, the timers, and a cancel for each of these.
	if n := written(t, adm); n != 1+50+400 {
		t.Errorf("%d requests written, want 451", n)
	}
}
