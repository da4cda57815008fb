package transaction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/hanging"
	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/internal/timer"
)

// tokenTick is how soon it is noticed that the token has died of a share that waits
// for the outcome of its step.
const tokenTick = 100 * time.Millisecond

// leaderEpoch is what a client knew of a partition's leader; ok: there was one.
type leaderEpoch struct {
	timer.TopicPartition
	epoch int32
	ok    bool
}

// leadership is what the client knows of the leaders of the transaction's
// partitions; of a topic that it does not know it wrote nothing.
func (c *txnClient) leadership() (all []leaderEpoch) {
	for topic, ps := range c.parts {
		for _, p := range ps {
			if leader, epoch, err := c.PartitionLeader(topic, p); leader >= 0 || err != nil {
				all = append(all, leaderEpoch{timer.TopicPartition{Topic: topic, Partition: p}, epoch, err == nil})
			}
		}
	}
	return all
}

// moved has the markers look at partitions that had other leaders when the client
// knew of these, and reports whether there is one.
func (l *Lane) moved(c *txnClient, leaders []leaderEpoch) (moved bool) {
	for _, was := range leaders {
		leader, epoch, err := c.PartitionLeader(was.Topic, was.Partition)
		if forgotten := leader < 0 && err == nil; !was.ok || !forgotten && (epoch != was.epoch || err != nil) {
			moved = true
			l.o.Markers.Moved(was.TopicPartition)
		}
	}
	return moved
}

// noteEnd notes how a client's transaction ended, and who led its partitions then. A
// leader that went and came back since the announce may have missed the marker
// of the transaction before. An abort is the last that an ID does: its next
// transaction would be a commit, and could close with that what lacks the abort.
func (l *Lane) noteEnd(c *txnClient, how hanging.Ending) {
	c.retire = c.retire || how != hanging.EndingCommit
	if l.o.Markers == nil {
		return
	}
	l.o.Markers.NoteEnd(c.id, c.last, how, c.parts)
	began := c.leaders
	c.leaders = c.leadership()
	if l.moved(c, began) || l.moved(c, slices.DeleteFunc(slices.Clone(c.leaders), func(e leaderEpoch) bool { return e.ok })) {
		c.retire = true
	}
}

// maxEpoch is where an ID is retired, before brokers give it another producer ID:
// they fail to if the last epochs meet a fencing abort (KAFKA-19367 in 4.0.0,
// KAFKA-20090).
const maxEpoch = 32_000

// retired reports whether a client must not begin again: a marker of its next
// transaction could close what its last one may have left open on a partition
// whose leader went away. What the client itself knows of leaders (moved), which
// takes a look at each partition, is looked at in its turn.
func (l *Lane) retired(c *txnClient) bool {
	return c.retire || c.BufferedProduceRecords() > 0 || l.away(c) || c.last.Epoch >= maxEpoch || l.o.Markers.Retired(c.last.ID)
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
		defer l.noteEnd(c, hanging.EndingAbort)
	}
	done := l.endAside(c)
	if !l.o.Reach.AllReachable() {
		return // its end may wait for what cannot be reached
	}
	t := time.NewTimer(dropWait)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// endAside has the broker abort the last transaction of an ID, beside the loop; the
// channel is closed when it has. Who gave it up in a ward waits for the markers too,
// for as long as it likes: see ward.
func (l *Lane) endAside(c *txnClient) <-chan struct{} {
	ctx, cancel := context.WithTimeout(l.of.ending, l.o.TransactionTimeout)
	done := make(chan struct{})
	if l.apart {
		cancel()
		ctx, cancel = context.WithCancel(l.of.ending)
		l.ends = append(l.ends, end{done, cancel})
	}
	l.of.aside.Go(func() {
		defer cancel()
		decided := c.parts != nil && l.abortNow(ctx, c)
		if decided && !l.apart || l.endLast(ctx, c.id) {
			close(done)
		}
	})
	return done
}

// end is that of a transaction that was given up in a ward: done is closed when
// there is one, unless stop was called before.
type end struct {
	done <-chan struct{}
	stop context.CancelFunc
}

// lastEnd is that of the transaction that was given up last.
func (l *Lane) lastEnd() <-chan struct{} {
	if len(l.ends) == 0 {
		return nil
	}
	return l.ends[len(l.ends)-1].done
}

// stopEnds gives up the ends that nobody waits for, but for the last.
func (l *Lane) stopEnds(waits func(<-chan struct{}) bool) {
	last := l.lastEnd()
	l.ends = slices.DeleteFunc(l.ends, func(e end) bool {
		if e.done == last || waits(e.done) {
			return false
		}
		e.stop()
		return true
	})
}

// abortNow has the broker abort the transaction of a client that is closed. Readers
// wait for it, so it takes one request, where endLast takes a new client. The answer
// says that it is decided: its markers may have to be written yet.
func (l *Lane) abortNow(ctx context.Context, c *txnClient) bool {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = c.id, c.last.ID, c.last.Epoch
	resp, err := req.RequestWith(ctx, l.o.Admin)
	return err == nil && resp.ErrorCode == 0
}

// endLast tries until the last transaction of an ID is ended.
func (l *Lane) endLast(ctx context.Context, id string) bool {
	for backoff := minBackoff; ; backoff = min(2*backoff, l.pauseLimit()) {
		bounded, stop := context.WithTimeout(ctx, l.o.TransactionTimeout)
		err := l.initProducerID(bounded, id)
		stop()
		if err == nil {
			return true
		}
		if sleep(ctx, backoff) != nil {
			l.o.Logger.Info("a step is left to the broker's transaction timeout", "transactional_id", id, "err", err)
			return false
		}
	}
}

// initProducerID makes the broker finish or abort the ID's last transaction.
func (l *Lane) initProducerID(ctx context.Context, id string) error {
	fresh, err := newTxnClient(l.o, id)
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
// tries until it knows, or until nobody needs to know: nil is committed, an
// error is aborted or no longer of interest. It runs beside the lane's loop: the
// step's sources have a share out and seal nothing meanwhile, the others go on.
// It ends when the coordinator answers, or another takes its place; when all
// tokens are dead; after the transaction timeout, by failing the partitions; with
// the lane.
//
// The group's committed offset is not asked. A coordinator that was unresponsive while
// another took over, and wakes, goes on to answer from before the step for as
// long as it has not heard of that: also where the step is committed.
func (l *Lane) resolve(c *txnClient, shares []*Share) error {
	ctx := l.of.ending
	defer c.Close() // not before: see said
	l.o.Metrics.resolved.Inc()
	l.o.Metrics.retired.Inc()
	give := time.Now().Add(l.o.TransactionTimeout)
	for attempt, backoff := 0, minBackoff; ; attempt, backoff = attempt+1, min(2*backoff, l.pauseLimit()) {
		open := unresolved(shares)
		if len(open) == 0 {
			l.noteEnd(c, hanging.EndingUnknown)
			return errTokens
		}
		s := open[attempt%len(open)]
		how, err := l.decide(ctx, c, s)
		if s.Token.Err() != nil {
			continue // whatever it is: who has the partition now learns it by itself
		}
		if err == nil {
			l.o.Logger.Info("outcome of a step resolved", "transactional_id", c.id, "outcome", how.String())
			l.noteEnd(c, how)
			if how == hanging.EndingCommit {
				return nil
			}
			return errors.New("resolved: aborted")
		}
		l.o.Logger.Warn("cannot resolve a step yet", "transactional_id", c.id, "err", err)
		switch {
		case time.Now().After(give), ctx.Err() != nil: // all wait for the same coordinator
			cannotTell(open, err)
		case errors.Is(err, partlog.ErrTopicGone):
			cannotTell([]*Share{s}, err)
		}
		_ = sleep(ctx, backoff)
	}
}

// cannotTell notes that shares learn nothing of their step.
func cannotTell(shares []*Share, err error) {
	for _, s := range shares {
		s.Err = fmt.Errorf("what became of a step cannot be told: %w", err)
	}
}

// unresolved are the shares that can tell of the step and need to know: their
// token is alive, and their log was not found to be gone.
func unresolved(shares []*Share) (open []*Share) {
	for _, s := range shares {
		if s.Token.Err() == nil && s.Err == nil {
			open = append(open, s)
		}
	}
	return open
}

// decide ends the client's last transaction, by committing it where that can still be
// done, and says how it ended: by the word of its coordinator, or else by the log that
// a share wrote to. It gives up when the share's token is dead.
func (l *Lane) decide(ctx context.Context, c *txnClient, s *Share) (hanging.Ending, error) {
	ctx, cancel := context.WithTimeout(ctx, l.o.TransactionTimeout/2)
	defer cancel()
	l.of.aside.Go(func() {
		for s.Token.Err() == nil && sleep(ctx, tokenTick) == nil {
		}
		cancel()
	})
	if how, err := l.commitAgain(ctx, c); err != nil || how != hanging.EndingUnknown {
		return how, err
	}
	if how, err := l.said(ctx, c); err != nil || how != hanging.EndingUnknown {
		return how, err
	}
	if err := l.initProducerID(ctx, c.id); err != nil {
		return hanging.EndingUnknown, err
	}
	return readBack(ctx, l.o.Admin, s.Records[0], c.last)
}

// readBack tells how a transaction that is over ended, from a record that it
// wrote: a read_committed fetch that gets past the record shows it or, if it was
// aborted, does not. One that does not get there says nothing: the partition may
// lack its marker, or have a leader that was unresponsive and does not have it yet.
func readBack(ctx context.Context, cl *kgo.Client, r *kgo.Record, by hanging.Producer) (hanging.Ending, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	where := partlog.Log{Topic: r.Topic, Partition: r.Partition}
	log := partlog.NewReader(cl, where, r.Offset)
	limits := partlog.DefaultLimits()
	limits.MaxBytes, limits.GoneAfter = 1, RequestTimeout/2
	log.SetLimits(limits)
	for {
		page, err := log.Next(ctx, concurrentBackoff)
		if err != nil {
			return hanging.EndingUnknown, fmt.Errorf("read the step back: %w", err)
		}
		if log.Position() <= r.Offset {
			if sleep(ctx, concurrentBackoff) != nil {
				return hanging.EndingUnknown, fmt.Errorf("read the step back: a transaction is open at offset %d of %v, at or before the step's %d", page.LastStable, where, r.Offset)
			}
			continue
		}
		if len(page.Records) == 0 || page.Records[0].Offset > r.Offset {
			return hanging.EndingAbort, nil
		}
		if got := page.Records[0]; got.ProducerID != by.ID || got.ProducerEpoch != by.Epoch {
			return hanging.EndingUnknown, fmt.Errorf("read the step back: offset %d of %v holds another record than was written there: %w", r.Offset, where, partlog.ErrOutOfRange)
		}
		return hanging.EndingCommit, nil
	}
}
