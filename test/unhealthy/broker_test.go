package unhealthy

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// stream sends 100 timers a second, to the targets in turn, due half a second
// later.
func stream(t *testing.T, cl *kgo.Client, requests string, targets ...string) *rig.Stream {
	return rig.StartBursts(t, cl, burst, burstEvery, func(n int) *kgo.Record {
		return rig.Timer(requests, targets[n%len(targets)], fmt.Sprint("id-", n), time.Now().Add(500*time.Millisecond))
	})
}

// silence is the longest time without a record on a topic between two instants.
func silence(records []kafkatest.Received, topic string, from, to time.Time) (longest time.Duration) {
	last := from
	for _, r := range records {
		if r.Topic == topic && r.At.After(last) && r.At.Before(to) {
			longest = max(longest, r.At.Sub(last))
			last = r.At
		}
	}
	return max(longest, to.Sub(last))
}

// trips are what an instance says when it holds targets to be unhealthy.
func trips(log *rig.Log) int {
	return len(log.Lines("target partition is unhealthy")) + len(log.Lines("several target partitions fail"))
}

// The broker that coordinates the transactions is away for
// 10 s. Steps wait for it, and no target is to blame.
func TestCoordinatorAwayTripsNoBreaker(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Three(t)
	requests := kafkatest.Topic(t)
	cfg := rig.Config(t, c.Seeds(), requests)
	coordinator := int(coordinatorOf(t, c, cfg.Group))
	others := []int32{int32((coordinator + 1) % 3), int32((coordinator + 2) % 3)}
	onBroker(t, c, requests, others[0])
	var targets []string
	for i := range 4 {
		targets = append(targets, fmt.Sprintf("%s-%d", requests, i))
		onBroker(t, c, targets[i], others[i%2])
	}
	in, log := rig.ServeLogged(t, cfg, node.Options{})
	in.Ready(1, patience)
	moveTo(t, c.Client(t), requests+".waterclock.changelog", others[1])
	out := kafkatest.Collect(t, c, targets...)
	load := stream(t, c.Client(t), requests, targets...)
	out.WaitFor(100, patience)

	paused := time.Now()
	c.Pause(coordinator)
	select {
	case <-time.After(10 * time.Second):
	case <-t.Context().Done():
	}
	c.Resume(coordinator)
	resumed := time.Now()
	out.WaitFor(len(out.Records())+200, patience)
	n := load.Stop()
	if got := trips(log); got != 0 {
		t.Errorf("breakers tripped %d times", got)
	}
	if in.Metric("waterclock_parked_timers") != 0 {
		t.Errorf("timers are parked")
	}
	checkAll(t, out, n)
	gap := silence(out.Records(), targets[0], paused, resumed.Add(2*time.Second))
	t.Logf("coordinator away %s: longest gap of a target %s; steps aborted %v, resolved %v", resumed.Sub(paused), gap,
		in.Metric("waterclock_transactions_total", "outcome", "aborted"), in.Metric(
			"waterclock_transactions_resolved_total"))
	if gap < 2*time.Second {
		t.Errorf("no gap: this test shows nothing")
	}
}

// coordinatorOf is the broker that coordinates a group's transactions.
func coordinatorOf(t *testing.T, c *kafkatest.Cluster, group string) (node int32) {
	t.Helper()
	adm := c.Admin(t)
	await.Until(t, patience, "a coordinator", func() bool {
		id := repair.TransactionalIDPrefix(group) + "any" // __transaction_state has one partition
		found := adm.FindTxnCoordinators(t.Context(), id)[id]
		node = found.NodeID
		return found.Err == nil
	})
	return node
}
