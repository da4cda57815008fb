package node_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kit/memory"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/test/rig"
)

// Changelogs end in the open transaction of somebody else, so that their replays
// begin and do not go on. No more of them than may fold at the same time; but
// each gives its slot back when nothing moves, and a partition whose changelog
// is well is served meanwhile, however many others stand still.
func TestReplaysThatStandStillHoldNobodyUp(t *testing.T) {
	slots := min(max(2, runtime.GOMAXPROCS(0)), memory.Divide(memory.Minimum).Replays)
	n := 2*slots + 1
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(int32(n), requests), kfake.SeedTopics(1, target))
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	first := rig.Serve(t, cfg, node.Options{})
	schedule(t, cfg, 10*n, 100*time.Hour)
	await.Until(t, limit, "all pending", func() bool { return int(first.Metric("waterclock_pending_timers")) == 10*n })
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}

	well := int32(n) - 1
	x := hanging(t, c, well)
	cfg.DataDir = t.TempDir()
	in := rig.Serve(t, cfg, node.Options{})
	state := func(name string) int { return int(in.Metric("waterclock_partitions", "state", name)) }
	began := make(map[string]bool)
	most := 0
	await.Until(t, limit, "every replay has had a slot, and the one that can has gone through", func() bool {
		most = max(most, state(ownership.Replaying.String()))
		_, is := readyz(t, in)
		for p, status := range is.Topics[requests] {
			began[p] = began[p] || status.State == ownership.Replaying.String() ||
				status.State == ownership.Live.String()
		}
		return len(began) == n && all(began) && state(ownership.Live.String()) == 1
	})
	if most != slots {
		t.Errorf("up to %d replay at once, want %d", most, slots)
	}
	await.Until(t, limit, "every place was given back",
		func() bool { return state(ownership.Acquiring.String()) == n-1 })
	if err := x.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	in.Ready(n, limit)
}

func all(m map[string]bool) bool {
	for _, is := range m {
		if !is {
			return false
		}
	}
	return true
}

// hanging has an open transaction on the changelogs of all partitions below n.
// It looks like one of another group, which would see to it.
func hanging(t *testing.T, c *kfake.Cluster, n int32) *kgo.Client {
	t.Helper()
	cl := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("waterclock/elsewhere/x/0/1"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for p := range n {
		r := &kgo.Record{Topic: topics.Changelog(requests), Partition: p, Key: wire.TimerKey(nil, []byte("x"))}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return cl
}
