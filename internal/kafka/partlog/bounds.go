package partlog

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

// Timestamps with a meaning of their own in ListOffsets, and its isolation levels (Kafka protocol, ListOffsetsRequest).
const (
	newest   int64 = -3 // of all timestamps
	earliest int64 = -2
	latest   int64 = -1

	readUncommitted int8 = 0
	readCommitted   int8 = 1
)

// Bounds returns the start of the log of t, the offset below which no transaction is open, and the offset of the next
// record to be written. It asks for them in this order, so start <= lastStable <= highWatermark, each as of some moment
// during the call: if records are written and older ones expire in the meantime, the log must not look empty, nor a
// position look beyond its end. It waits for an unreachable leader until ctx ends. If the topic is gone, it returns an
// ErrTopicGone after goneAfter.
func Bounds(ctx context.Context, cl *kgo.Client, t Log) (start, lastStable, highWatermark int64, err error) {
	l := newLeader(cl, t)
	err = l.do(ctx, func(ctx context.Context, br *kgo.Broker) (err error) {
		start, lastStable, highWatermark, err = l.bounds(ctx, br)
		return err
	})
	return start, lastStable, highWatermark, err
}

func (l *leader) bounds(ctx context.Context, br *kgo.Broker) (start, lastStable, highWatermark int64, err error) {
	start, err = l.listOffset(ctx, br, earliest, readUncommitted)
	if err == nil {
		lastStable, err = l.listOffset(ctx, br, latest, readCommitted)
	}
	if err == nil {
		highWatermark, err = l.listOffset(ctx, br, latest, readUncommitted)
	}
	return start, lastStable, highWatermark, err
}

// A leader that is appending sometimes says that its log has no timestamp although it is not empty: Kafka 4.3.1 did in
// 3 of 1,000 answers. Newest asks up to newestTries times, newestPause apart.
const (
	newestTries = 20
	newestPause = 10 * time.Millisecond
)

// Newest returns the latest timestamp of the records of t, zero if the log is empty or the
// leader gives none. With LogAppendTime the timestamp is at or before the leader's clock.
func Newest(ctx context.Context, cl *kgo.Client, t Log) (at time.Time, err error) {
	l := newLeader(cl, t)
	for range newestTries {
		empty := false
		err = l.do(ctx, func(ctx context.Context, br *kgo.Broker) error {
			p, err := l.list(ctx, br, newest, readUncommitted, consumer)
			if err != nil {
				return err
			}
			if p.Timestamp >= 0 {
				at = time.UnixMilli(p.Timestamp)
				return nil
			}
			start, _, end, err := l.bounds(ctx, br)
			empty = start == end
			return err
		})
		if err != nil || empty || !at.IsZero() {
			return at, err
		}
		if !beats.Sleep(ctx, newestPause) {
			return at, ctx.Err()
		}
	}
	return at, nil
}

// Epoch is a partition's leader epoch plus one, since Kafka's numbers begin at 0. The zero value is no
// epoch.
type Epoch int32

// EpochOf returns the epoch with Kafka's number; none if the number is negative.
func EpochOf(kafka int32) Epoch { return Epoch(max(kafka, -1) + 1) }

// Span has the bounds of a log by its leader.
type Span struct {
	Start int64 // the first offset
	End   int64 // the high watermark
	// Same is the end of the records of the requested epoch, or of earlier ones: the beginning of the next epoch, or
	// the high watermark. -1: the leader knows no epoch that late, so the log has none of its records (KIP-101,
	// KIP-320). It is End if no epoch was requested.
	Same int64
}

// SpanOf asks the leader of t, at the same time, for the log's bounds and, unless e is 0, for the end of its records of
// epoch e. Owners wait for the answer, so it takes two round trips and four requests, one of them for the leader.
// Unreachable leaders and deleted topics are handled as by Bounds.
func SpanOf(ctx context.Context, cl *kgo.Client, t Log, e Epoch) (s Span, err error) {
	return spanOf(ctx, cl, t, e, true)
}

// EndOf is SpanOf without the start, for followers, which ask every second.
func EndOf(ctx context.Context, cl *kgo.Client, t Log, e Epoch) (s Span, err error) {
	return spanOf(ctx, cl, t, e, false)
}

func spanOf(ctx context.Context, cl *kgo.Client, t Log, e Epoch, start bool) (s Span, err error) {
	l := newLeader(cl, t)
	err = l.do(ctx, func(ctx context.Context, br *kgo.Broker) error {
		asking, ctx := errgroup.WithContext(ctx)
		if start {
			asking.Go(func() (err error) {
				s.Start, err = l.listOffset(ctx, br, earliest, readUncommitted)
				return err
			})
		}
		asking.Go(func() (err error) { s.End, err = l.listOffset(ctx, br, latest, readUncommitted); return err })
		if e != 0 {
			asking.Go(func() (err error) { s.Same, err = l.epochEnd(ctx, br, e); return err })
		}
		return asking.Wait()
	})
	if e == 0 {
		s.Same = s.End
	}
	return s, err
}

func (l *leader) epochEnd(ctx context.Context, br *kgo.Broker, e Epoch) (int64, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = consumer
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = l.t.Topic
	rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = l.t.Partition, l.epoch, int32(e)-1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := br.Request(ctx, req)
	if err != nil {
		return 0, err
	}
	resp := kresp.(*kmsg.OffsetForLeaderEpochResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, kerr.UnknownTopicOrPartition
	}
	p := &resp.Topics[0].Partitions[0]
	return p.EndOffset, kerr.ErrorForCode(p.ErrorCode)
}

func (l *leader) listOffset(ctx context.Context, br *kgo.Broker, at int64, isolation int8) (int64, error) {
	p, err := l.list(ctx, br, at, isolation, consumer)
	return p.Offset, err
}

func (l *leader) list(ctx context.Context, br *kgo.Broker, at int64, isolation int8,
	as int32) (p kmsg.ListOffsetsResponseTopicPartition, err error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = as, isolation
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = l.t.Topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition = l.t.Partition
	rp.Timestamp = at
	if as == debugging {
		rp.CurrentLeaderEpoch = l.epoch // without it a follower answers too, from its own log
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
