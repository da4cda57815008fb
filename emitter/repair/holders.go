package repair

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

// Holder is the producer whose open transaction begins at a given offset of a partition.
type Holder struct {
	ProducerID      int64     // -1: there is none, or Err says why it is unknown
	TransactionalID string    // "": unknown; the coordinator tells it only with Describe on the ID
	Began           time.Time // by its coordinator's clock; zero: unknown
	Err             error     // why it is unknown, for example a missing permission to read the topic
}

// FindHolders finds the producers whose open transactions begin at the given offsets, with at most three requests to
// each broker. Each request gets a share of the time that ctx has left, so that a silent broker does not use it all.
// Partitions whose leaders do not answer in time are left out.
func FindHolders(ctx context.Context, cl *kgo.Client,
	at map[timer.TopicPartition]int64) map[timer.TopicPartition]Holder {
	found := make(map[timer.TopicPartition]Holder, len(at))
	ids := make(map[int64]struct{})
	asking, cancel := part(ctx, 4)
	defer cancel()
	// Not through kadm: it turns a missing permission on one topic into an error of the whole broker.
	for _, shard := range cl.RequestSharded(asking, describeProducers(at)) {
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
	// If a coordinator is not allowed to tell, or does not answer, the ID has no name or the name no time.
	adm := kadm.NewClient(cl)
	asking, cancel = part(ctx, 3)
	defer cancel()
	listed, _ := adm.ListTransactions(asking, slices.Collect(maps.Keys(ids)), []string{"Ongoing"})
	names := make(map[int64]string, len(listed))
	for name, txn := range listed {
		names[txn.ProducerID] = name
	}
	if len(names) == 0 {
		return found
	}
	asking, cancel = part(ctx, 2)
	defer cancel()
	begun, _ := adm.DescribeTransactions(asking, listed.TransactionalIDs()...)
	for tp, h := range found {
		if h.ProducerID < 0 {
			continue
		}
		h.TransactionalID = names[h.ProducerID]
		if txn := begun[h.TransactionalID]; txn.Err == nil && txn.ProducerID == h.ProducerID && txn.StartTimestamp > 0 {
			h.Began = time.UnixMilli(txn.StartTimestamp)
		}
		found[tp] = h
	}
	return found
}

// part returns a context that has one of n equal parts of the time that ctx has left.
func part(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	end, limited := ctx.Deadline()
	if !limited {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/time.Duration(n))
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
