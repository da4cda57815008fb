package sick

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/service"
)

// moveTo leaves one replica of a topic's only partition, on a broker.
func moveTo(t *testing.T, cl *kgo.Client, topic string, broker int32) {
	t.Helper()
	adm := kadm.NewClient(cl)
	if _, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "min.insync.replicas", Value: kadm.StringPtr("1")}}, topic); err != nil {
		t.Fatal(err)
	}
	req := make(kadm.AlterPartitionAssignmentsReq)
	req.Assign(topic, 0, []int32{broker})
	resp, err := adm.AlterPartitionAssignments(t.Context(), req)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatalf("move %s: %v", topic, err)
	}
	until(t, topic+" is moved", patience, func() bool {
		m, err := adm.Metadata(t.Context(), topic)
		p := m.Topics[topic].Partitions[0]
		return err == nil && p.Leader == broker && len(p.Replicas) == 1
	})
}

// hanging counts the transactions that a partition shows open.
func hanging(t *testing.T, cl *kgo.Client, topic string) (n int) {
	t.Helper()
	var set kadm.TopicsSet
	set.Add(topic, 0)
	d, err := kadm.NewClient(cl).DescribeProducers(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range d.SortedProducers() {
		if p.CurrentTxnStartOffset >= 0 {
			n++
		}
	}
	return n
}

// forgetOutcomes makes the coordinator forget how transactions ended.
func forgetOutcomes(t *testing.T, c *kafkatest.Cluster, group string) {
	t.Helper()
	listed, err := c.Admin(t).ListTransactions(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for id := range listed {
		if !strings.HasPrefix(id, emitter.TransactionalIDPrefix(group)) {
			continue
		}
		if _, _, err := c.Client(t, kgo.TransactionalID(id)).ProducerID(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// DESIGN 5, number 29: a step ends, committed or aborted, while the changelog
// partition has no leader, and its owner is gone before the leader is back. The
// coordinator does not know any more how it ended. The next take finds out from
// the changelog and the committed offset, and writes the marker.
func Test29MarkerLostOnTheChangelogTheNextTakeRepairsIt(t *testing.T) {
	c := kafkatest.Start(t, 3)
	for _, x := range []struct {
		name   string
		commit bool
	}{{"committed", true}, {"aborted", false}} {
		t.Run(x.name, func(t *testing.T) {
			requests := kafkatest.Topic(t)
			target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-out")
			changelog := delaytopics.Changelog(requests)
			cfg := rig.Config(t, c.Seeds(), requests)
			cfg.TransactionTimeout = shortTransaction
			victim := bystander(t, c, cfg.Group)
			onBroker(t, c, requests, int32((victim+1)%3)) // one replica, hence the changelog too
			wire := kafkatest.NewWire()
			t.Cleanup(wire.Close)
			a, _ := rig.ServeLogged(t, cfg, service.Options{Dial: wire.Dial})
			a.Ready(1, patience)
			cl := c.Client(t)
			moveTo(t, cl, changelog, int32(victim))
			out := kafkatest.Collect(t, c, target)
			for i := range warm {
				send(t, cl, timer(requests, target, fmt.Sprint("warm-", i), time.Now()))
				out.WaitFor(i+1, patience)
			}

			const n = 20
			due := time.Now().Add(3 * time.Second)
			var recs []*kgo.Record
			for i := range n {
				recs = append(recs, timer(requests, target, fmt.Sprint("id-", i), due))
			}
			send(t, cl, recs...)
			until(t, "all pending", patience, func() bool { return a.Metric("waterclock_pending_timers") == n })
			var fault *kafkatest.Fault
			if x.commit {
				fault = wire.Hold(kmsg.EndTxn.Int16())
			} else {
				fault = wire.DropRequest(kmsg.EndTxn.Int16(), kafkatest.Every)
			}
			if err := fault.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.Stop(victim)
			leaderless(t, cl, changelog, victim)
			if x.commit {
				fault.Release()
				out.WaitFor(warm+1, patience) // the step is committed: its emissions are there
			} else {
				until(t, "the step resolved", patience, func() bool { return a.Metric("waterclock_steps_resolved_total") > 0 })
			}
			before := len(out.Records())
			if err := a.Stop(); err != nil {
				t.Errorf("the first owner ended with %v", err)
			}
			fault.Release()
			forgetOutcomes(t, c, cfg.Group)
			c.Restart(victim)
			until(t, "a leader", patience, func() bool {
				m, err := kadm.NewClient(cl).Metadata(t.Context(), changelog)
				return err == nil && m.Topics[changelog].Partitions[0].Leader >= 0
			})
			if hanging(t, cl, changelog) == 0 {
				t.Fatal("no marker was lost: this test shows nothing")
			}

			next := *cfg
			next.DataDir = t.TempDir()
			b, log := rig.ServeLogged(t, &next, service.Options{})
			took := b.Ready(1, patience)
			if got := len(log.Lines("wrote a marker that was lost")); got != 1 {
				t.Errorf("%d markers written", got)
			}
			send(t, cl, timer(requests, target, "behind", time.Now()))
			checkAll(t, out, warm+n+1)
			t.Logf("%d emissions before the next take, which was live after %s; markers written: %v", before, took, b.Metric("waterclock_markers_written_total"))
		})
	}
}
