package partlog

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Timestamps with a meaning of their own in ListOffsets, and its isolation
// levels (Kafka protocol, ListOffsetsRequest).
const (
	earliest int64 = -2
	latest   int64 = -1

	readUncommitted int8 = 0
	readCommitted   int8 = 1
)

// Bounds returns where the log of t begins, the offset below which no
// transaction is open, and the offset of the next record to be written. They
// are asked for in this order, so start <= lastStable <= highWatermark, each as
// of some moment during the call. A leader that is away is waited for until ctx
// ends; a topic that is gone is an ErrTopicGone after DefaultLimits.
func Bounds(ctx context.Context, cl *kgo.Client, t Target) (start, lastStable, highWatermark int64, err error) {
	r := newRoute(cl, t, DefaultLimits())
	err = r.do(ctx, func(ctx context.Context, br *kgo.Broker) (err error) {
		start, lastStable, highWatermark, err = r.bounds(ctx, br)
		return err
	})
	return start, lastStable, highWatermark, err
}

func (r *route) bounds(ctx context.Context, br *kgo.Broker) (start, lastStable, highWatermark int64, err error) {
	if start, err = r.listOffset(ctx, br, earliest, readUncommitted); err != nil {
		return
	}
	if lastStable, err = r.listOffset(ctx, br, latest, readCommitted); err != nil {
		return
	}
	highWatermark, err = r.listOffset(ctx, br, latest, readUncommitted)
	return
}

func (r *route) listOffset(ctx context.Context, br *kgo.Broker, at int64, isolation int8) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = isolation
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = r.t.Topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition = r.t.Partition
	rp.Timestamp = at
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)

	kresp, err := br.Request(ctx, req)
	if err != nil {
		return 0, err
	}
	resp := kresp.(*kmsg.ListOffsetsResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, kerr.UnknownTopicOrPartition
	}
	p := &resp.Topics[0].Partitions[0]
	return p.Offset, kerr.ErrorForCode(p.ErrorCode)
}
