package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// An instance says how many timers fall due soon, also after a restart: with its directory, and without.
func TestDueWithin(t *testing.T) {
	t.Parallel()
	cfg := rig.Config(t, fake(t, "one").ListenAddrs(), requests)
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(2, limit)
	cl, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	add := func(n int, in time.Duration) {
		for i := range n {
			rec, err := waterclock.Schedule(requests, fmt.Sprint(in, i), waterclock.After(in), waterclock.To(target))
			if err != nil {
				t.Fatal(err)
			}
			if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(3, 5*time.Minute+30*time.Second)
	add(4, 50*time.Minute)
	add(5, 3*time.Hour)
	due := func(window string, n int) {
		t.Helper()
		line := fmt.Sprintf("waterclock_due_within{topic=%q,window=%q} %d\n", requests, window, n)
		await.Until(t, limit, line, func() bool { return strings.Contains(in.Metrics(), line) })
	}
	for _, directory := range []string{"", cfg.DataDir, t.TempDir()} {
		if directory != "" {
			if err := in.Stop(); err != nil {
				t.Fatal(err)
			}
			cfg.DataDir = directory
			in = rig.Serve(t, cfg, node.Options{})
		}
		in.Balanced(12)
		due("10s", 0)
		due("1m", 0)
		due("10m", 3)
		due("1h", 7)
	}
	rec, err := waterclock.Cancel(requests, fmt.Sprint(50*time.Minute, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
		t.Fatal(err)
	}
	due("1h", 6)
	for _, name := range []string{"waterclock_lanes_busy_seconds_total", "waterclock_transactions_filled_total",
		"waterclock_lanes_allowed", "waterclock_planning_wait_seconds"} {
		await.Until(t, limit, name, func() bool { return in.Metric(name) > 0 })
	}
	if !strings.Contains(in.Metrics(), "waterclock_planning_seconds_total{") {
		t.Error("planning is not shown")
	}
}
