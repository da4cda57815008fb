package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/statestore"
	"github.com/waterclock/waterclock/test/rig"
)

// delete.retention.ms is lowered while two owners run, and a partition comes back to one of them, whose view
// of it is three hours old: within the bound that it started with, and beyond that of now. Tombstones that
// the view lacks may be gone, so it is wiped. The view of its other partition, just as old when it
// acquired that under the old bound, is believed.
func TestRetentionIsLoweredAndAPartitionComesBack(t *testing.T) {
	t.Parallel()
	const age, timers = 3 * time.Hour, 20
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, requests, target))
	first := rig.Config(t, c.ListenAddrs(), requests)
	in := rig.Serve(t, first, node.Options{})
	schedule(t, first, timers, 100*time.Hour)
	await.Until(t, limit, "all pending", func() bool { return in.Metric("waterclock_pending_timers") == timers })
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	inSync(t, first.DataDir, func(k *statestore.Handle, m statestore.Meta) error {
		if err := k.Live(m.InSync.Add(-age), func() (time.Duration, error) { return 24 * time.Hour, nil }); err != nil {
			return err
		}
		return k.Apply(&statestore.Batch{Position: m.Position, Changelog: m.Changelog})
	})

	second := rig.Config(t, c.ListenAddrs(), requests)
	other := rig.Serve(t, second, node.Options{})
	other.Ready(2, limit)
	schedule(t, second, timers, 100*time.Hour) // what the old view lacks
	live := func(in *rig.Instance, n float64) func() bool {
		return func() bool { return in.Metric("waterclock_partitions", "state", "live") == n }
	}
	in, log := rig.ServeLogged(t, first, node.Options{})
	await.Until(t, limit, "each has a partition", func() bool { return live(in, 1)() && live(other, 1)() })
	if wiped := log.Lines("wiping the local view"); len(wiped) > 0 {
		t.Fatalf("within the bound: %s", wiped)
	}
	kafkatest.SetTopic(t, kadm.NewClient(cl), topics.Changelog(requests), "delete.retention.ms",
		fmt.Sprint((4 * time.Hour).Milliseconds()))
	await.For(t, 2*time.Second) // for so long settings that were just read count
	if err := other.Stop(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, limit, "the partition is back", live(in, 2))
	if wiped := log.Lines("wiping the local view"); len(wiped) != 1 {
		t.Errorf("%d views were wiped, want that of the partition that came back: %s", len(wiped), wiped)
	}
	if n := in.Metric("waterclock_pending_timers"); n != timers {
		t.Errorf("%v timers are pending, want %d", n, timers)
	}
}
