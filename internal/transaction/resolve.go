package transaction

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/hanging"
	"github.com/waterclock/waterclock/internal/partlog"
)

// tokenTick is how soon it is noticed that the token has died of a share that waits
// for the outcome of its step.
const tokenTick = 100 * time.Millisecond

// inDoubt is a step whose EndTxn was not answered. A goroutine of its own finds out how it ended.
type inDoubt struct {
	lane   *Lane
	client *txnClient
	shares []*Share
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
func (d *inDoubt) resolve() error {
	l, c, shares := d.lane, d.client, d.shares
	ctx := l.aside.ctx
	defer c.Close() // not before: see said
	l.o.Metrics.resolved.Inc()
	l.o.Metrics.retired.Inc()
	give := time.Now().Add(l.o.TransactionTimeout)
	for attempt, backoff := 0, minBackoff; ; attempt, backoff = attempt+1, min(2*backoff, pauseLimit(l.o.Leaders)) {
		open := unresolved(shares)
		if len(open) == 0 {
			c.noteEnd(l.o.Markers, hanging.EndingUnknown)
			return errTokens
		}
		s := open[attempt%len(open)]
		how, err := d.decide(ctx, s)
		if s.Token.Err() != nil {
			continue // whatever it is: who has the partition now learns it by itself
		}
		if err == nil {
			l.o.Logger.Info("outcome of a step resolved", "transactional_id", c.id, "outcome", how.String())
			c.noteEnd(l.o.Markers, how)
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
func (d *inDoubt) decide(ctx context.Context, s *Share) (hanging.Ending, error) {
	ctx, cancel := context.WithTimeout(ctx, d.lane.o.TransactionTimeout/2)
	defer cancel()
	d.lane.aside.Go(func() {
		for s.Token.Err() == nil && sleep(ctx, tokenTick) == nil {
		}
		cancel()
	})
	if how, err := d.commitAgain(ctx); err != nil || how != hanging.EndingUnknown {
		return how, err
	}
	if how, err := d.said(ctx); err != nil || how != hanging.EndingUnknown {
		return how, err
	}
	if err := initProducerID(ctx, d.lane.o, d.client.id); err != nil {
		return hanging.EndingUnknown, err
	}
	return readBack(ctx, d.lane.o.Admin, s.Records[0], d.client.last)
}

// commitAgain has the coordinator commit a transaction whose EndTxn was not answered.
// The outcome is unknown, without an error, if the coordinator refuses because the transaction is already over.
func (d *inDoubt) commitAgain(ctx context.Context) (how hanging.Ending, err error) {
	err = commitAgain(ctx, d.lane.o.Admin, d.client.id, d.client.last, func() bool {
		var err error
		how, err = d.said(ctx)
		return err == nil && how != hanging.EndingUnknown
	})
	switch {
	case errors.Is(err, errOver):
		return hanging.EndingUnknown, nil
	case err == nil && how == hanging.EndingUnknown:
		return hanging.EndingCommit, nil
	}
	return how, err
}

// said is how a client's last transaction ended by the word of its coordinator: the
// answer to its EndTxn, which may still come, or what it says when it is asked. That
// markers are being written is a decision that all its followers have, unless the
// coordinator was restarted since it was asked for: see commitAgain. So it counts only
// if it comes over the client's own connection, and that never broke: a restart that
// nobody has noticed yet is noticed by asking.
//
// Brokers answer the requests of a connection in order, so behind an EndTxn that was never
// answered nothing is asked there: its answer comes as soon as there is a decision. Once it
// was answered (heard), but with an error that kgo repeats it for, that no longer holds: the
// next answer is CONCURRENT_TRANSACTIONS until all markers are written, whatever has been
// decided. Then the coordinator is asked.
func (d *inDoubt) said(ctx context.Context) (hanging.Ending, error) {
	c := d.client
	if c.answered() {
		return hanging.EndingCommit, nil
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	txn, _, err := hanging.TransactionOf(ctx, kadm.NewClient(d.lane.o.Admin), c.last.ID, c.id)
	if err == nil && hanging.UnderWay(txn, c.last) {
		if c.answer != nil && !c.heard.Load() {
			return hanging.EndingUnknown, nil
		}
		if !c.dropped.Load() {
			txn, _, err = hanging.TransactionOf(ctx, kadm.NewClient(c.Client), c.last.ID, c.id)
		}
		if c.dropped.Load() {
			return hanging.EndingUnknown, nil
		}
	}
	if err != nil {
		return hanging.EndingUnknown, err
	}
	return hanging.EndingOf(txn, c.last), nil
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
