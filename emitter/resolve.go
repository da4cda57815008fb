package emitter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// client returns the next client in turn, with its producer ID loaded: a client
// that begins before that runs its first transaction in the old mode.
func (l *Lane) client(ctx context.Context) (*txnClient, error) {
	l.turn = (l.turn + 1) % len(l.clients)
	c := l.clients[l.turn]
	if c != nil && l.mustRetire(c) {
		l.o.Metrics.retired.Inc()
		c.Close()
		c = nil
	}
	if c == nil {
		l.serial++
		var err error
		id := fmt.Sprintf("%s%s/%d/%d", TransactionalIDPrefix(l.o.Group), l.o.Process, l.o.Lane, l.serial)
		if c, err = newTxnClient(&l.o, id); err != nil {
			return nil, err
		}
		l.o.Metrics.clientsOpened.Inc()
	}
	l.clients[l.turn] = c
	if _, _, err := c.ProducerID(ctx); err != nil {
		c.retire = true
		return nil, fmt.Errorf("load producer ID of %s: %w", c.id, err)
	}
	return c, nil
}

// leaderEpoch is what a client knew of a partition's leader; ok: there was one.
type leaderEpoch struct {
	TargetPartition
	epoch int32
	ok    bool
}

// ended notes how a client's transaction ended, and who led its partitions then.
func (l *Lane) ended(c *txnClient, how Ending) {
	if l.o.Markers == nil {
		return
	}
	l.o.Markers.ended(c.id, c.last, how, c.parts)
	for topic, ps := range c.parts {
		for _, p := range ps {
			leader, epoch, err := c.PartitionLeader(topic, p)
			if leader < 0 && err == nil {
				continue // the client does not know the topic: it wrote nothing there
			}
			c.leaders = append(c.leaders, leaderEpoch{TargetPartition{topic, p}, epoch, err == nil})
		}
	}
	for _, was := range c.leaders {
		if !was.ok {
			c.retire = true
			l.o.Markers.Moved(was.TargetPartition)
		}
	}
}

// mustRetire reports whether a client must not begin again: a marker of its next
// transaction could close what its last one may have left open on a partition
// whose leader went away.
func (l *Lane) mustRetire(c *txnClient) bool {
	if c.retire || c.BufferedProduceRecords() > 0 || l.o.Markers.spent(c.last.id) {
		return true
	}
	moved := false
	for _, was := range c.leaders {
		leader, epoch, err := c.PartitionLeader(was.Topic, was.Partition)
		if forgotten := leader < 0 && err == nil; !forgotten && (epoch != was.epoch || err != nil) {
			moved = true
			l.o.Markers.Moved(was.TargetPartition)
		}
	}
	return moved
}

// drop throws a client away whose transaction must not be ended by it, and has
// the broker abort that transaction: a new client of the same ID calls
// InitProducerID. The ID is not used again. It waits for that dropWait and goes
// on then: nobody would commit the transaction, and nothing of the lane depends
// on its end, but readers of every target in it do. So the attempts go on beside
// the steps, also while the coordinator is away, until the broker's transaction
// timeout has passed.
func (l *Lane) drop(c *txnClient) {
	for i := range l.clients {
		if l.clients[i] == c {
			l.clients[i] = nil
		}
	}
	c.Close()
	l.o.Metrics.retired.Inc()
	if c.parts != nil {
		defer l.ended(c, EndingAbort)
	}
	done := make(chan struct{})
	l.enders.Go(func() {
		defer close(done)
		l.end(c.id)
	})
	t := time.NewTimer(dropWait)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// end has the broker abort the last transaction of an ID.
func (l *Lane) end(id string) {
	ctx, cancel := context.WithTimeout(l.ending, l.o.TransactionTimeout)
	defer cancel()
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		bounded, stop := context.WithTimeout(ctx, 2*RequestTimeout)
		err := l.initProducerID(bounded, id)
		stop()
		if err == nil {
			return
		}
		if sleep(ctx, backoff) != nil {
			l.o.Logger.Warn("a step is left to the broker's transaction timeout", "transactional_id", id, "err", err)
			return
		}
	}
}

// initProducerID makes the broker finish or abort the ID's last transaction.
func (l *Lane) initProducerID(ctx context.Context, id string) error {
	fresh, err := newTxnClient(&l.o, id)
	if err != nil {
		return err
	}
	defer fresh.Close()
	if _, _, err := fresh.ProducerID(ctx); err != nil {
		return fmt.Errorf("init producer ID of %s: %w", id, err)
	}
	return nil
}

// resolve finds out what became of a step whose EndTxn was not answered. It
// tries until it knows, or until every token is dead: nil is committed, an
// error is aborted or no longer of interest.
func (l *Lane) resolve(ctx context.Context, shares []*Share) error {
	c := l.clients[l.turn]
	l.clients[l.turn] = nil
	c.Close()
	l.o.Metrics.resolved.Inc()
	l.o.Metrics.retired.Inc()
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		alive := firstAlive(shares)
		if alive == nil {
			l.ended(c, EndingUnknown)
			return errTokens
		}
		committed, err := l.decide(ctx, c.id, alive)
		if err == nil && alive.Token.Err() == nil {
			l.o.Logger.Info("outcome of a step resolved", "transactional_id", c.id, "committed", committed)
			if committed {
				l.ended(c, EndingCommit)
				return nil
			}
			l.ended(c, EndingAbort)
			return errors.New("resolved: aborted")
		}
		if err != nil {
			l.o.Logger.Warn("cannot resolve a step yet", "transactional_id", c.id, "err", err)
			_ = sleep(ctx, backoff)
		}
	}
}

// decide ends the old transaction and reads one of its partitions' offsets.
func (l *Lane) decide(ctx context.Context, id string, s *Share) (committed bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, l.o.TransactionTimeout/2)
	defer cancel()
	if err := l.initProducerID(bounded, id); err != nil {
		return false, err
	}
	_, metadata, err := FetchStable(bounded, l.o.Admin, l.o.Group, s.Offset.Topic, s.Offset.Partition)
	if err != nil {
		return false, err
	}
	return s.Offset.Committed(metadata), nil
}

func firstAlive(shares []*Share) *Share {
	for _, s := range shares {
		if s.Token.Err() == nil {
			return s
		}
	}
	return nil
}

// NoOffset is what FetchStable returns for a partition without a committed
// offset.
const NoOffset int64 = -1

// ErrUnstable is kerr.UnstableOffsetCommit: an accepted step is still open.
var ErrUnstable error = kerr.UnstableOffsetCommit

// FetchStable returns the committed offset of one partition and its metadata,
// or ErrUnstable while a transaction with an accepted offset commit is open.
//
// It asks for just this partition. Asked for all of a group, as kadm does, a
// broker lists the partitions that have an offset, so one whose first commit is
// still open would look like one without any, and its next owner would not wait
// for the step; and a partition would be held up by the steps of all others.
func FetchStable(ctx context.Context, cl *kgo.Client, group, topic string, partition int32) (int64, string, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	g, t := kmsg.NewOffsetFetchRequestGroup(), kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.Partitions = topic, []int32{partition}
	g.Group, g.Topics = group, append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return 0, "", fmt.Errorf("fetch committed offset of %s/%d: %w", topic, partition, err)
	}
	for i := range resp.Groups {
		if err := kerr.ErrorForCode(resp.Groups[i].ErrorCode); err != nil {
			return 0, "", fmt.Errorf("fetch committed offset of %s/%d: %w", topic, partition, err)
		}
		for _, t := range resp.Groups[i].Topics {
			for _, p := range t.Partitions {
				if t.Topic == topic && p.Partition == partition {
					return committedOffset(topic, &p)
				}
			}
		}
	}
	return 0, "", fmt.Errorf("fetch committed offset of %s/%d: the group coordinator does not answer for it", topic, partition)
}

func committedOffset(topic string, p *kmsg.OffsetFetchResponseGroupTopicPartition) (int64, string, error) {
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return 0, "", fmt.Errorf("fetch committed offset of %s/%d: %w", topic, p.Partition, err)
	}
	if p.Offset < 0 {
		return NoOffset, "", nil
	}
	metadata := ""
	if p.Metadata != nil {
		metadata = *p.Metadata
	}
	return p.Offset, metadata, nil
}
