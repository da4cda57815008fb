package emitter

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/timer"
)

// Holder is the producer whose open transaction begins at some offset of a partition.
type Holder struct {
	ProducerID      int64     // -1: there is none, or Err says why it is not known
	TransactionalID string    // "" unless its coordinator tells, which takes Describe on the ID
	Began           time.Time // by its coordinator's clock; zero: not known
	Err             error     // the leader does not tell, for want of Read on the topic or otherwise
}

// FindHolders asks whose open transactions begin at offsets of partitions, with three requests
// to each broker at most. Partitions whose leaders do not answer before ctx ends are left out.
func FindHolders(ctx context.Context, cl *kgo.Client, at map[timer.TopicPartition]int64) map[timer.TopicPartition]Holder {
	found := make(map[timer.TopicPartition]Holder, len(at))
	ids := make(map[int64]struct{})
	// The request itself: kadm makes one topic that may not be read an error of a whole broker.
	for _, shard := range cl.RequestSharded(ctx, describeProducers(at)) {
		resp, ok := shard.Resp.(*kmsg.DescribeProducersResponse)
		if shard.Err != nil || !ok {
			continue
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				tp := timer.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				h := Holder{ProducerID: -1, Err: kerr.ErrorForCode(p.ErrorCode)}
				for _, d := range p.ActiveProducers {
					if d.CurrentTxnStartOffset == at[tp] {
						h.ProducerID = d.ProducerID
						ids[d.ProducerID] = struct{}{}
					}
				}
				found[tp] = h
			}
		}
	}
	if len(ids) == 0 {
		return found
	}
	// A coordinator that may not tell, or does not answer, leaves a number without a name.
	adm := kadm.NewClient(cl)
	listed, _ := adm.ListTransactions(ctx, slices.Collect(maps.Keys(ids)), []string{"Ongoing"})
	begun := make(map[int64]kadm.DescribedTransaction)
	if names := listed.TransactionalIDs(); len(names) > 0 {
		txns, _ := adm.DescribeTransactions(ctx, names...)
		for _, txn := range txns {
			if txn.Err == nil {
				begun[txn.ProducerID] = txn
			}
		}
	}
	for tp, h := range found {
		if txn, ok := begun[h.ProducerID]; ok && h.ProducerID >= 0 {
			h.TransactionalID = txn.TxnID
			if txn.StartTimestamp > 0 {
				h.Began = time.UnixMilli(txn.StartTimestamp)
			}
			found[tp] = h
		}
	}
	return found
}

func describeProducers(of map[timer.TopicPartition]int64) *kmsg.DescribeProducersRequest {
	topics := make(map[string][]int32)
	for tp := range of {
		topics[tp.Topic] = append(topics[tp.Topic], tp.Partition)
	}
	req := kmsg.NewPtrDescribeProducersRequest()
	for name, partitions := range topics {
		t := kmsg.NewDescribeProducersRequestTopic()
		t.Topic, t.Partitions = name, partitions
		req.Topics = append(req.Topics, t)
	}
	return req
}
