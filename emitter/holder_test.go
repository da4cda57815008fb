package emitter

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// Whose transaction begins at an offset is told, as far as the brokers tell it: a right that is
// missing is an answer, for the partitions that it is missing for alone.
func TestFindHolders(t *testing.T) {
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "t", "denied"))
	begun := time.Now().Add(-time.Second)
	producer, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("billing"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(producer.Close)
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"t", "denied"} {
		if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: topic}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	held, other, denied := timer.TopicPartition{Topic: "t"}, timer.TopicPartition{Topic: "t", Partition: 1}, timer.TopicPartition{Topic: "denied"}
	at := map[timer.TopicPartition]int64{held: 0, other: 0, denied: 0}
	id, _, err := producer.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	c.ControlKey(int16(kmsg.DescribeProducers), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.DescribeProducersRequest)
		resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
		for _, rt := range req.Topics {
			topic := kmsg.NewDescribeProducersResponseTopic()
			topic.Topic = rt.Topic
			for _, n := range rt.Partitions {
				p := kmsg.NewDescribeProducersResponseTopicPartition()
				p.Partition = n
				switch {
				case rt.Topic == "denied":
					p.ErrorCode = kerr.TopicAuthorizationFailed.Code
				case n == 0:
					d := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
					d.ProducerID, d.CurrentTxnStartOffset = id, 0
					p.ActiveProducers = append(p.ActiveProducers, d)
				}
				topic.Partitions = append(topic.Partitions, p)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
	found := FindHolders(t.Context(), cl, at)
	if h := found[held]; h.ProducerID != id || h.TransactionalID != "billing" || h.Began.Before(begun) || h.Began.After(time.Now().Add(time.Second)) || h.Err != nil {
		t.Errorf("held: %+v", h)
	}
	if h, ok := found[other]; !ok || h.ProducerID != -1 || h.Err != nil {
		t.Errorf("nobody: %+v, %v", h, ok)
	}
	if h := found[denied]; h.ProducerID != -1 || !errors.Is(h.Err, kerr.TopicAuthorizationFailed) {
		t.Errorf("denied: %+v", h)
	}

	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeTransactions}, Err: kerr.TransactionalIDAuthorizationFailed, Count: -1})
	if h := FindHolders(t.Context(), cl, at)[held]; h.ProducerID != id || h.TransactionalID != "" || !h.Began.IsZero() || h.Err != nil {
		t.Errorf("without the right to its name: %+v", h)
	}
}
