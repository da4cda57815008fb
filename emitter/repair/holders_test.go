package repair

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// FindHolders reports the producer whose transaction begins at an offset, as far as the brokers tell. A missing
// permission counts as an answer, only for the partitions that it concerns.
func TestFindHolders(t *testing.T) {
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "t", "denied"))
	begun := time.Now().Add(-time.Second)
	producer := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("billing"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(t, producer.BeginTransaction())
	for _, topic := range []string{"t", "denied"} {
		must(t, producer.ProduceSync(t.Context(), &kgo.Record{Topic: topic}).FirstErr())
	}
	held, other, denied := timer.TopicPartition{Topic: "t"}, timer.TopicPartition{Topic: "t", Partition: 1},
		timer.TopicPartition{Topic: "denied"}
	at := map[timer.TopicPartition]int64{held: 0, other: 0, denied: 0}
	id, _, err := producer.ProducerID(t.Context())
	must(t, err)

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
	if h := found[held]; h.ProducerID != id || h.TransactionalID != "billing" || h.Began.Before(begun) ||
		h.Began.After(time.Now().Add(time.Second)) || h.Err != nil {
		t.Errorf("held: %+v", h)
	}
	if h, ok := found[other]; !ok || h.ProducerID != -1 || h.Err != nil {
		t.Errorf("nobody: %+v, %v", h, ok)
	}
	if h := found[denied]; h.ProducerID != -1 || !errors.Is(h.Err, kerr.TopicAuthorizationFailed) {
		t.Errorf("denied: %+v", h)
	}

	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeTransactions}, Err: kerr.TransactionalIDAuthorizationFailed,
		Count: -1})
	if h := FindHolders(t.Context(), cl, at)[held]; h.ProducerID != id || h.TransactionalID != "billing" ||
		!h.Began.IsZero() || h.Err != nil {
		t.Errorf("without an answer of its coordinator: %+v", h)
	}
	c.ControlKey(int16(kmsg.ListTransactions), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return kreq.ResponseKind(), nil, true // the broker lists only what the caller may describe
	})
	if h := FindHolders(t.Context(), cl, at)[held]; h.ProducerID != id || h.TransactionalID != "" ||
		!h.Began.IsZero() || h.Err != nil {
		t.Errorf("without the right to its name: %+v", h)
	}
}

// An unresponsive broker hides nothing that others know: all brokers are asked which coordinator has a producer.
func TestFindHoldersWithAnUnresponsiveBroker(t *testing.T) {
	t.Parallel()
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "t"))
	producer := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("billing"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(t, producer.BeginTransaction())
	if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: "t"}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	id, _, err := producer.ProducerID(t.Context())
	must(t, err)
	c.ControlKey(int16(kmsg.DescribeProducers), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.DescribeProducersResponse)
		topic, p, d := kmsg.NewDescribeProducersResponseTopic(), kmsg.NewDescribeProducersResponseTopicPartition(),
			kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		d.ProducerID, d.CurrentTxnStartOffset = id, 0
		p.ActiveProducers, topic.Topic = append(p.ActiveProducers, d), "t"
		topic.Partitions = append(topic.Partitions, p)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	var coordinator atomic.Int32
	coordinator.Store(c.CoordinatorFor("billing"))
	c.ControlKey(int16(kmsg.ListTransactions), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if c.CurrentNode() != coordinator.Load() {
			c.SleepControl(func() { <-t.Context().Done() })
		}
		return nil, nil, false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	held := timer.TopicPartition{Topic: "t"}
	if h := FindHolders(ctx, cl, map[timer.TopicPartition]int64{held: 0})[held]; h.ProducerID != id ||
		h.TransactionalID != "billing" {
		t.Errorf("%+v, the producer is %d", h, id)
	}
}
