package corpus

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const timeoutMillis = 10_000

// Produce writes raw to a partition, whatever it is. Its error is the leader's answer, see package kerr, or says why
// the leader could not be asked. id is the topic's; the leader is asked once.
func Produce(ctx context.Context, cl *kgo.Client, topic string, id [16]byte, partition int32, raw []byte) error {
	return produce(ctx, cl, nil, topic, id, partition, raw)
}

// Transact writes a case within a transaction of the given ID, which it ends. Its error is the leader's answer to the
// batch, and then the transaction is aborted; otherwise commit decides how it ends.
func Transact(
	ctx context.Context, cl *kgo.Client, txnID, topic string, id [16]byte, partition int32,
	c Case, w Writer, commit bool,
) error {
	begin := kmsg.NewPtrInitProducerIDRequest()
	begin.TransactionalID, begin.TransactionTimeoutMillis = &txnID, 60_000
	begin.ProducerID, begin.ProducerEpoch = -1, -1
	who, err := begin.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(who.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("get a producer ID: %w", err)
	}
	w.ID, w.Epoch, w.Sequence, w.Transactional = who.ProducerID, who.ProducerEpoch, 0, true
	taken := produce(ctx, cl, &txnID, topic, id, partition, c.Batch(w))
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch = txnID, who.ProducerID, who.ProducerEpoch
	end.Commit = commit && taken == nil
	ended, err := end.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(ended.ErrorCode)
	}
	if taken == nil && err != nil {
		return fmt.Errorf("end the transaction: %w", err)
	}
	return taken
}

// produce writes raw. With transactions of version 2 that adds the partition to the transaction.
func produce(
	ctx context.Context, cl *kgo.Client, txnID *string, topic string, id [16]byte, partition int32, raw []byte,
) error {
	leader, err := leaderOf(ctx, cl, topic, partition)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = txnID, -1, timeoutMillis
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, id
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, raw
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl.Broker(int(leader)))
	if err != nil {
		return fmt.Errorf("ask broker %d: %w", leader, err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return fmt.Errorf("broker %d answers for %d topics", leader, len(resp.Topics))
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// leaderOf is a partition's leader, which is asked for if the client does not know it.
func leaderOf(ctx context.Context, cl *kgo.Client, topic string, partition int32) (int32, error) {
	if leader, _, err := cl.PartitionLeader(topic, partition); err == nil && leader >= 0 {
		return leader, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, fmt.Errorf("look for %s: %w", topic, err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.Partition == partition && p.Leader >= 0 {
				return p.Leader, nil
			}
		}
	}
	return 0, fmt.Errorf("no leader of %s-%d", topic, partition)
}
