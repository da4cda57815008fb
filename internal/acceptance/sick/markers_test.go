package sick

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/service"
)

const (
	patience = time.Minute
	warm     = 8 // timers, more than there are transactional IDs
	// shortTransaction makes a client give up on an EndTxn after half of it.
	shortTransaction = 8 * time.Second
)

// timer is a request for one emission.
func timer(requests, target, id string, due time.Time) *kgo.Record {
	return &kgo.Record{Topic: requests, Key: []byte(id), Value: []byte("v"), Headers: []kgo.RecordHeader{
		{Key: "timer-at", Value: []byte(strconv.FormatInt(due.UnixMilli(), 10))}, {Key: "timer-target-topic", Value: []byte(target)},
	}}
}

// send writes requests.
func send(t *testing.T, cl *kgo.Client, recs ...*kgo.Record) {
	t.Helper()
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatalf("send: %v", err)
	}
}

// until polls for something that tells no one of its changes.
func until(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > limit {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// bystander is a broker that coordinates neither the group nor its transactions.
func bystander(t *testing.T, c *kafkatest.Cluster, group string) int {
	t.Helper()
	adm := c.Admin(t)
	busy := map[int32]bool{}
	until(t, "coordinators", patience, func() bool {
		id := emitter.TransactionalIDPrefix(group) + "any" // __transaction_state has one partition
		txn, grp := adm.FindTxnCoordinators(t.Context(), id)[id], adm.FindGroupCoordinators(t.Context(), group)[group]
		if txn.Err != nil || grp.Err != nil {
			return false
		}
		busy = map[int32]bool{txn.NodeID: true, grp.NodeID: true}
		return true
	})
	for i := range int32(3) {
		if !busy[i] {
			return int(i)
		}
	}
	return -1 // three brokers, two coordinators
}

// leaderless waits until every broker but one knows that nobody leads the only
// partition of a topic.
func leaderless(t *testing.T, cl *kgo.Client, topic string, without int) {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, rt)
	for i := range 3 {
		if i == without {
			continue
		}
		until(t, topic+" has no leader", patience, func() bool {
			resp, err := req.RequestWith(t.Context(), cl.Broker(i))
			return err == nil && len(resp.Topics) == 1 && len(resp.Topics[0].Partitions) == 1 && resp.Topics[0].Partitions[0].Leader < 0
		})
	}
}

// checkAll checks that each of n IDs was emitted once.
func checkAll(t *testing.T, out *kafkatest.Collector, n int) {
	t.Helper()
	out.WaitFor(n, patience)
	out.Quiet(time.Second)
	received := out.Records()
	byID := rig.Emissions(t, received)
	if len(byID) != n || len(received) != n {
		t.Errorf("%d IDs, %d emissions of %d", len(byID), len(received), n)
	}
}

// DESIGN 5, number 30: a transaction ends, committed or aborted, while a target
// that it wrote to has no leader, so the broker loses the marker (KAFKA-20734).
// What was committed appears when the leader is back, what was aborted never.
func Test30TransactionEndsWhileItsTargetIsLeaderless(t *testing.T) {
	c := kafkatest.Start(t, 3)
	for _, x := range []struct {
		name   string
		commit bool
	}{{"committed", true}, {"aborted", false}} {
		t.Run(x.name, func(t *testing.T) {
			requests := c.CreateTopic(t, 1, nil)
			cfg := rig.Config(t, c.Seeds(), requests)
			cfg.TransactionTimeout = shortTransaction
			victim := bystander(t, c, cfg.Group)
			healthy := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-healthy")
			sick := kafkatest.Topic(t) + "-sick"
			onBroker(t, c, sick, int32(victim))
			wire := kafkatest.NewWire()
			t.Cleanup(wire.Close)
			in, _ := rig.ServeLogged(t, cfg, service.Options{Dial: wire.Dial})
			in.Ready(1, patience)
			out := kafkatest.Collect(t, c, healthy, sick)
			cl := c.Client(t)
			for i := range warm { // every transactional ID has its markers there
				send(t, cl, timer(requests, sick, fmt.Sprint("warm-", i), time.Now()))
				out.WaitFor(i+1, patience)
			}

			const n = 20
			due := time.Now().Add(3 * time.Second)
			var recs []*kgo.Record
			for i := range n {
				recs = append(recs, timer(requests, sick, fmt.Sprint("s-", i), due), timer(requests, healthy, fmt.Sprint("h-", i), due))
			}
			send(t, cl, recs...)
			until(t, "all pending", patience, func() bool { return in.Metric("waterclock_pending_timers") == 2*n })
			var held *kafkatest.Fault
			release := func() {}
			if x.commit {
				held = wire.Hold(kmsg.EndTxn.Int16())
			} else {
				held = wire.DropRequest(kmsg.EndTxn.Int16(), kafkatest.Every)
				resolves := wire.Hold(kmsg.InitProducerID.Int16())
				release = resolves.Release
			}
			if err := held.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.Stop(victim)
			leaderless(t, cl, sick, victim)
			release()
			if x.commit {
				held.Release()
			} else {
				until(t, "the step resolved", patience, func() bool { return in.Metric("waterclock_steps_resolved_total") > 0 })
				held.Release()
			}
			until(t, "the alarm", patience, func() bool { return in.Metric("waterclock_missing_markers") > 0 })
			out.WaitFor(warm+n, patience) // the healthy ones
			c.Restart(victim)
			until(t, "a marker written", patience, func() bool { return in.Metric("waterclock_markers_written_total") > 0 })
			send(t, cl, timer(requests, sick, "behind", time.Now()))
			checkAll(t, out, warm+2*n+1)
			until(t, "the end of the alarm", patience, func() bool { return in.Metric("waterclock_missing_markers") == 0 })
			t.Logf("markers written: %v, steps aborted %v, resolved %v, IDs retired %v", in.Metric("waterclock_markers_written_total"),
				in.Metric("waterclock_steps_total", "outcome", "aborted"), in.Metric("waterclock_steps_resolved_total"), in.Metric("waterclock_transactional_ids_retired_total"))
		})
	}
}
