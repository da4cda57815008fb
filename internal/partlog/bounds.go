package partlog

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Timestamps with a meaning of their own in ListOffsets, and its isolation
// levels (Kafka protocol, ListOffsetsRequest).
const (
	newest   int64 = -3 // of all timestamps
	earliest int64 = -2
	latest   int64 = -1

	readUncommitted int8 = 0
	readCommitted   int8 = 1
)

// Bounds returns where the log of t begins, the offset below which no transaction is
// open, and the offset of the next record to be written. It asks for them in this
// order, so start <= lastStable <= highWatermark, each as of some moment during the
// call. It waits for a leader that is away until ctx ends. If the topic is gone, it
// returns an ErrTopicGone after the time of DefaultLimits.
func Bounds(ctx context.Context, cl *kgo.Client, t Log) (start, lastStable, highWatermark int64, err error) {
	l := newLeader(cl, t)
	err = l.do(ctx, func(ctx context.Context, br *kgo.Broker) (err error) {
		start, lastStable, highWatermark, err = l.bounds(ctx, br)
		return err
	})
	return start, lastStable, highWatermark, err
}

func (l *leader) bounds(ctx context.Context, br *kgo.Broker) (start, lastStable, highWatermark int64, err error) {
	if start, err = l.listOffset(ctx, br, earliest, readUncommitted); err != nil {
		return
	}
	if lastStable, err = l.listOffset(ctx, br, latest, readCommitted); err != nil {
		return
	}
	highWatermark, err = l.listOffset(ctx, br, latest, readUncommitted)
	return
}

// Newest returns the latest timestamp of the records of t, zero if it has none. With
// LogAppendTime the timestamp is at or before the leader's clock.
func Newest(ctx context.Context, cl *kgo.Client, t Log) (at time.Time, err error) {
	l := newLeader(cl, t)
	err = l.do(ctx, func(ctx context.Context, br *kgo.Broker) error {
		p, err := l.list(ctx, br, newest, readUncommitted)
		if err == nil && p.Timestamp >= 0 {
			at = time.UnixMilli(p.Timestamp)
		}
		return err
	})
	return at, err
}

// End returns the offset of the next record that the leader of t will write, which Kafka
// calls the log end offset. It is beyond the high watermark if in-sync followers lack records
// that the leader has. Leaders that are away, and topics that are gone, are handled as by
// Bounds.
func End(ctx context.Context, cl *kgo.Client, t Log) (end int64, err error) {
	l := newLeader(cl, t)
	l.as = debugging
	err = l.do(ctx, func(ctx context.Context, br *kgo.Broker) (err error) {
		end, err = l.listOffset(ctx, br, latest, readUncommitted)
		return err
	})
	return end, err
}

// Epoch is a partition's leader epoch plus one, since Kafka's numbers begin at 0. The zero value is no
// epoch.
type Epoch int32

// EpochOf returns the epoch with Kafka's number; none if the number is negative.
func EpochOf(kafka int32) Epoch { return Epoch(max(kafka, -1) + 1) }

// EpochEnd returns the offset up to which the log of t holds records of leader epoch e or earlier ones:
// where the next epoch began, or the high watermark. If the leader knows no epoch as late
// as e, the log has none of its records, and end is -1 (KIP-101, KIP-320). Leaders that are
// away and topics that are gone are handled as by Bounds.
func EpochEnd(ctx context.Context, cl *kgo.Client, t Log, e Epoch) (end int64, err error) {
	l := newLeader(cl, t)
	err = l.do(ctx, func(ctx context.Context, br *kgo.Broker) error {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = consumer
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = t.Topic
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = t.Partition, l.epoch, int32(e)-1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		kresp, err := br.Request(ctx, req)
		if err != nil {
			return err
		}
		resp := kresp.(*kmsg.OffsetForLeaderEpochResponse)
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return kerr.UnknownTopicOrPartition
		}
		p := &resp.Topics[0].Partitions[0]
		end = p.EndOffset
		return kerr.ErrorForCode(p.ErrorCode)
	})
	return end, err
}

func (l *leader) listOffset(ctx context.Context, br *kgo.Broker, at int64, isolation int8) (int64, error) {
	p, err := l.list(ctx, br, at, isolation)
	return p.Offset, err
}

func (l *leader) list(ctx context.Context, br *kgo.Broker, at int64, isolation int8) (p kmsg.ListOffsetsResponseTopicPartition, err error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = l.as, isolation
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = l.t.Topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition = l.t.Partition
	rp.Timestamp = at
	if l.as == debugging {
		rp.CurrentLeaderEpoch = l.epoch // without it a follower answers too, with what it has
	}
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)

	kresp, err := br.Request(ctx, req)
	if err != nil {
		return p, err
	}
	resp := kresp.(*kmsg.ListOffsetsResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return p, kerr.UnknownTopicOrPartition
	}
	p = resp.Topics[0].Partitions[0]
	return p, kerr.ErrorForCode(p.ErrorCode)
}
