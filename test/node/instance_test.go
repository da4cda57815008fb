package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	requests = "requests"
	target   = "target"
	// limit is what a test waits for at most that would else hang: dozens of instances and
	// their brokers start at once on a machine that others use.
	limit = 2 * time.Minute
)

// Brokers are fakes here; Main lets more of the parallel tests wait at once.
func TestMain(m *testing.M) { kafkatest.Main(m) }

func fake(t *testing.T, cluster string) *kfake.Cluster {
	t.Helper()
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ClusterID(cluster), kfake.SeedTopics(2, requests, target),
		kfake.GroupMinSessionTimeout(time.Second))
	return c
}

func schedule(t *testing.T, cfg *config.Config, n int, in time.Duration) {
	t.Helper()
	cl := kafkatest.Client(t, kgo.SeedBrokers(cfg.Brokers...))
	for i := range n {
		rec, err := waterclock.Schedule(requests, fmt.Sprint("id", i), waterclock.After(in), waterclock.To(target),
			waterclock.Value([]byte("v")))
		if err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// readiness is /readyz as its readers know it.
type readiness struct {
	Phase  string
	Member bool
	Topics map[string]map[string]struct {
		State   string
		Pending int64
	}
}

func readyz(t *testing.T, in *rig.Instance) (int, readiness) {
	t.Helper()
	status, body := in.Readyz()
	var answer struct {
		Ready  bool
		Detail readiness
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("/readyz answers %d %q: %v", status, body, err)
	}
	if answer.Ready != (status == http.StatusOK) {
		t.Errorf("status %d with %s", status, body)
	}
	return status, answer.Detail
}

// /readyz says what an instance waits for, and then each partition with what is
// pending in it. Stopped and started on its directory it has its timers again
// without reading the changelog from the start.
func TestReadinessAndDirectoryAcrossARestart(t *testing.T) {
	const timers = 200
	cfg := rig.Config(t, []string{rig.FreeAddr(t)}, requests) // nobody listens there
	lost := rig.Serve(t, cfg, node.Options{})
	if status, r := readyz(t, lost); status == http.StatusOK || r.Phase == "" || r.Member {
		t.Errorf("without a broker: %d %+v, want not ready, not a member, and a phase", status, r)
	}
	if err := lost.Stop(); err != nil {
		t.Errorf("stopped while no broker can be reached: %v", err)
	}

	cfg.Brokers = fake(t, "one").ListenAddrs()
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(2, limit)
	schedule(t, cfg, timers, time.Hour)
	pending := func(in *rig.Instance) (n int64) {
		status, r := readyz(t, in)
		if status != http.StatusOK || !r.Member || r.Phase != "" || len(r.Topics[requests]) != 2 {
			t.Fatalf("running: %d %+v", status, r)
		}
		for _, p := range r.Topics[requests] {
			n += p.Pending
		}
		return n
	}
	await.Until(t, limit, "all timers are pending", func() bool { return pending(in) == timers })
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}

	again := rig.Serve(t, cfg, node.Options{})
	again.Ready(2, limit)
	if n := pending(again); n != timers {
		t.Errorf("%d timers pending after the restart, want %d", n, timers)
	}
	// The claims of two partitions with their markers, and nothing of the timers.
	if n := again.Metric("waterclock_replayed_offsets_total"); n > 20 {
		t.Errorf("%v changelog offsets replayed after an orderly stop", n)
	}
}

// A data directory of another cluster is refused.
func TestDirectoryOfAnotherClusterIsRefused(t *testing.T) {
	cfg := rig.Config(t, fake(t, "one").ListenAddrs(), requests)
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(2, limit)
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	cfg.Brokers = fake(t, "two").ListenAddrs()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := node.RunWith(ctx, cfg, slog.New(slog.DiscardHandler), node.Options{})
	if err == nil || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("started with the directory of another cluster: %v", err)
	}
}

// A second instance on the same directory is refused; the first goes on.
func TestDirectoryInUseIsRefused(t *testing.T) {
	cfg := rig.Config(t, fake(t, "one").ListenAddrs(), requests)
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(2, limit)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := node.RunWith(ctx, cfg, slog.New(slog.DiscardHandler), node.Options{})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second instance started on the directory: %v", err)
	}
	in.Ready(2, limit)
}

// Topics says what is missing, makes it when told to, and is content then.
func TestTopics(t *testing.T) {
	cfg := rig.Config(t, fake(t, "one").ListenAddrs(), requests)
	var out strings.Builder
	if err := commands.Topics(t.Context(), cfg, false, &out); err == nil {
		t.Errorf("content with missing topics:\n%s", &out)
	}
	for _, name := range []string{requests + ".waterclock.changelog", requests + ".waterclock.dead-letters"} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("%s is not named:\n%s", name, &out)
		}
	}
	for _, create := range []bool{true, false} {
		out.Reset()
		if err := commands.Topics(t.Context(), cfg, create, &out); err != nil {
			t.Errorf("create %v: %v:\n%s", create, err, &out)
		}
		if !strings.Contains(out.String(), "cleanup.policy") || strings.Contains(out.String(), "WRONG") {
			t.Errorf("create %v prints:\n%s", create, &out)
		}
	}
	cfg.Requests = []string{"nowhere"}
	if err := commands.Topics(t.Context(), cfg, true, &out); err == nil {
		t.Error("content with a request topic that does not exist")
	}
}
