package brokers

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// onBroker makes topics of one partition that have one replica, on a broker.
func onBroker(s *rig.Setup, broker int32, topics ...string) {
	s.Helper()
	for _, topic := range topics {
		s.Cluster.CreateTopic(s, 1, nil, topic)
	}
	moveTo(s, broker, topics...)
}

// moveTo leaves one replica of the only partition of topics, on a broker.
func moveTo(s *rig.Setup, broker int32, topics ...string) {
	s.Helper()
	for _, topic := range topics {
		kafkatest.SetTopic(s, s.Admin, topic, "min.insync.replicas", "1")
	}
	kafkatest.AssignFirst(s, s.Admin, []int32{broker}, topics...)
	for _, topic := range topics {
		await.Until(s, rig.Patience, topic+" is moved", func() bool {
			m, err := s.Admin.Metadata(s.Context(), topic)
			p := m.Topics[topic].Partitions[0]
			return err == nil && p.Leader == broker && len(p.Replicas) == 1
		})
	}
}

// coordinators are the brokers that coordinate the group, and its transactions.
func coordinators(s *rig.Setup) (group, transactions int32) {
	s.Helper()
	await.Until(s, rig.Patience, "coordinators", func() bool {
		id := repair.TransactionalIDPrefix(s.Group()) + "any" // __transaction_state has one partition
		txn := s.Admin.FindTxnCoordinators(s.Context(), id)[id]
		grp := s.Admin.FindGroupCoordinators(s.Context(), s.Group())[s.Group()]
		group, transactions = grp.NodeID, txn.NodeID
		return txn.Err == nil && grp.Err == nil
	})
	return group, transactions
}

// bystander is a broker of three that coordinates neither the group nor its transactions.
func bystander(s *rig.Setup) int32 {
	s.Helper()
	group, transactions := coordinators(s)
	for i := range int32(3) {
		if i != group && i != transactions {
			return i
		}
	}
	return -1 // three brokers, two coordinators
}

// leaderless waits until every broker but one knows that nobody leads the only partition of a topic.
func leaderless(s *rig.Setup, topic string, without int32) {
	s.Helper()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, rt)
	for i := range int32(3) {
		if i == without {
			continue
		}
		await.Until(s, rig.Patience, topic+" has no leader", func() bool {
			resp, err := req.RequestWith(s.Context(), s.Client.Broker(int(i)))
			return err == nil && len(resp.Topics) == 1 && len(resp.Topics[0].Partitions) == 1 &&
				resp.Topics[0].Partitions[0].Leader < 0
		})
	}
}

// openOn counts the transactions that a partition shows open.
func openOn(s *rig.Setup, topic string) (n int) {
	s.Helper()
	var set kadm.TopicsSet
	set.Add(topic, 0)
	d, err := s.Admin.DescribeProducers(s.Context(), set)
	if err != nil {
		s.Fatal(err)
	}
	for _, p := range d.SortedProducers() {
		if p.CurrentTxnStartOffset >= 0 {
			n++
		}
	}
	return n
}

// forgetOutcomes makes the coordinator forget how transactions ended.
func forgetOutcomes(s *rig.Setup) {
	s.Helper()
	listed, err := s.Admin.ListTransactions(s.Context(), nil, nil)
	if err != nil {
		s.Fatal(err)
	}
	for id := range listed {
		if !strings.HasPrefix(id, repair.TransactionalIDPrefix(s.Group())) {
			continue
		}
		if _, _, err := s.Cluster.Client(s.T, kgo.TransactionalID(id)).ProducerID(s.Context()); err != nil {
			s.Fatal(err)
		}
	}
}
