package unhealthy

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// onBroker creates a topic whose one partition has one replica, on a broker.
func onBroker(t *testing.T, c *kafkatest.Cluster, topic string, broker int32) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, -1, -1
	a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	a.Replicas = []int32{broker}
	rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
	cfg := kmsg.NewCreateTopicsRequestTopicConfig()
	cfg.Name, cfg.Value = "min.insync.replicas", kmsg.StringPtr("1")
	rt.Configs = append(rt.Configs, cfg)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(t.Context(), c.Client(t))
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("create %s: %v %v", topic, err, resp)
	}
}

// bystander is a broker that coordinates neither the group nor its transactions.
func bystander(t *testing.T, c *kafkatest.Cluster, group string) int {
	t.Helper()
	adm := c.Admin(t)
	busy := map[int32]bool{}
	await.Until(t, patience, "coordinators", func() bool {
		id := repair.TransactionalIDPrefix(group) + "any" // __transaction_state has one partition
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
		await.Until(t, patience, topic+" has no leader", func() bool {
			resp, err := req.RequestWith(t.Context(), cl.Broker(i))
			return err == nil && len(resp.Topics) == 1 && len(resp.Topics[0].Partitions) == 1 &&
				resp.Topics[0].Partitions[0].Leader < 0
		})
	}
}

// moveTo leaves one replica of a topic's only partition, on a broker.
func moveTo(t *testing.T, cl *kgo.Client, topic string, broker int32) {
	t.Helper()
	adm := kadm.NewClient(cl)
	kafkatest.SetTopic(t, adm, topic, "min.insync.replicas", "1")
	kafkatest.AssignFirst(t, adm, []int32{broker}, topic)
	await.Until(t, patience, topic+" is moved", func() bool {
		m, err := adm.Metadata(t.Context(), topic)
		p := m.Topics[topic].Partitions[0]
		return err == nil && p.Leader == broker && len(p.Replicas) == 1
	})
}

// openOn counts the transactions that a partition shows open.
func openOn(t *testing.T, cl *kgo.Client, topic string) (n int) {
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
		if !strings.HasPrefix(id, repair.TransactionalIDPrefix(group)) {
			continue
		}
		if _, _, err := c.Client(t, kgo.TransactionalID(id)).ProducerID(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
