package node_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// Metrics show a transaction of another producer that is open on a request topic, and a changelog that accepts nothing.
func TestTroublesAreShown(t *testing.T) {
	t.Parallel()
	c := fake(t, "one")
	in := rig.Serve(t, rig.Config(t, c.ListenAddrs(), requests), node.Options{})
	in.Ready(2, limit)
	shown := func(name string, labels ...string) {
		t.Helper()
		await.Until(t, limit, name, func() bool { return in.Metric(name, labels...) > 0 })
	}
	open := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("another"))
	if err := open.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	rec, err := waterclock.Cancel(requests, "id")
	if err != nil {
		t.Fatal(err)
	}
	if err := open.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
		t.Fatal(err)
	}
	shown("waterclock_intake_held_seconds")
	if err := open.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}

	refuses := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: requests + ".waterclock.changelog",
		Err: kerr.NotEnoughReplicas, Count: -1})
	schedule, err := waterclock.Schedule(requests, "id", waterclock.After(limit), waterclock.To(target))
	if err != nil {
		t.Fatal(err)
	}
	if err := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...)).ProduceSync(
		t.Context(), schedule).FirstErr(); err != nil {
		t.Fatal(err)
	}
	shown("waterclock_partitions", "state", "stalled")
	if refuses.Hits() == 0 {
		t.Error("the changelog has refused nothing")
	}
	refuses.Remove()
}
