package emitter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

// tokenTick is how often the token of a share that waits for the outcome of its step is checked.
const tokenTick = 100 * time.Millisecond

// resolve determines the outcome of a step whose EndTxn was not answered. It tries until it knows the outcome, or until
// no owner needs it. It returns nil if the step is committed, and an error if it is aborted or no longer of interest.
// It runs on a goroutine of its own: the step's sources have a share in flight and seal nothing until then, the others
// continue. It ends when the coordinator, or its successor, answers; when all tokens are dead; after the transaction
// timeout, by failing the partitions; or with the lane.
//
// It does not read the group's committed offset. A group coordinator that was unresponsive while another one took over
// may not know that when it wakes. Until then it answers with the state from before the step, even if the step is
// committed.
func (t *transaction) resolve() error {
	l, c := t.lane, t.c
	ctx := l.background.Context()
	defer c.Close() // only now: see coordinatorAnswer
	l.o.Metrics.resolved.Inc()
	l.o.Metrics.retired.Inc()
	give := time.Now().Add(l.o.TransactionTimeout)
	for attempt, backoff := 0, minBackoff; ; attempt, backoff = attempt+1, nextBackoff(l.o.Leaders, backoff) {
		open := unresolved(t.shares)
		if len(open) == 0 {
			c.noteEnd(l.o.Markers, repair.EndingUnknown)
			return errTokens
		}
		s := open[attempt%len(open)]
		how, err := t.decide(ctx, s)
		if s.Token.Err() != nil {
			continue // whatever the outcome is: the new owner reads it in the log
		}
		if err == nil {
			l.o.Logger.Info("step resolved", "transactional_id", c.id, "outcome", how.String())
			c.noteEnd(l.o.Markers, how)
			if how == repair.EndingCommit {
				return nil
			}
			return errors.New("resolved: aborted")
		}
		l.o.Logger.Warn("cannot resolve step, retrying", "transactional_id", c.id, "err", err)
		switch {
		case time.Now().After(give), ctx.Err() != nil: // all wait for the same coordinator
			failUnresolved(open, err)
		case errors.Is(err, partlog.ErrTopicGone):
			failUnresolved([]*Share{s}, err)
		}
		beats.Sleep(ctx, backoff)
	}
}

// failUnresolved fails shares because the outcome of their step cannot be determined.
func failUnresolved(shares []*Share, err error) {
	for _, s := range shares {
		s.Err = fmt.Errorf("determine the outcome of a step: %w", err)
	}
}

// unresolved returns the shares that need the outcome, and whose logs can show it: their tokens are alive, and their
// logs were not found to be gone.
func unresolved(shares []*Share) (open []*Share) {
	for _, s := range shares {
		if s.Token.Err() == nil && s.Err == nil {
			open = append(open, s)
		}
	}
	return open
}

// decide ends the client's last transaction, with a commit if that is still possible. It returns how the transaction
// ended: according to its coordinator, or else to the log that a share wrote to. It gives up when the share's token is
// dead.
func (t *transaction) decide(ctx context.Context, s *Share) (repair.Ending, error) {
	ctx, cancel := context.WithTimeout(ctx, t.lane.o.TransactionTimeout/2)
	defer cancel()
	t.lane.background.Go(func(context.Context) {
		for s.Token.Err() == nil && beats.Sleep(ctx, tokenTick) {
		}
		cancel()
	})
	if how, err := t.commitAgain(ctx); err != nil || how != repair.EndingUnknown {
		return how, err
	}
	if how, err := t.coordinatorAnswer(ctx); err != nil || how != repair.EndingUnknown {
		return how, err
	}
	if err := initProducerID(ctx, t.lane.o, t.c.id); err != nil {
		return repair.EndingUnknown, err
	}
	return readBack(ctx, t.lane.o.Admin, s.Records[0], t.c.last)
}

// commitAgain has the coordinator commit a transaction whose EndTxn was not answered. The outcome is unknown, without
// an error, if the coordinator refuses because the transaction is already over.
func (t *transaction) commitAgain(ctx context.Context) (how repair.Ending, err error) {
	err = commitAgain(ctx, t.lane.o.Admin, t.c.id, t.c.last, func() bool {
		var err error
		how, err = t.coordinatorAnswer(ctx)
		return err == nil && how != repair.EndingUnknown
	})
	switch {
	case errors.Is(err, errOver):
		return repair.EndingUnknown, nil
	case err == nil && how == repair.EndingUnknown:
		return repair.EndingCommit, nil
	}
	return how, err
}

// coordinatorAnswer returns how a client's last transaction ended according to its coordinator: by the answer to its
// EndTxn, which may still come, or by the answer to DescribeTransactions. If markers are being written, all followers
// of the coordinator have the decision, unless the coordinator was restarted since the EndTxn: see commitAgain. So the
// answer counts only if it comes over the client's own connection, and that connection never broke. The request itself
// reveals a restart that was not noticed yet.
//
// Brokers answer the requests of a connection in order. So nothing is asked on a connection with an EndTxn that was
// never answered: its answer comes as soon as there is a decision. That no longer holds once EndTxn was answered
// (heard) with an error for which kgo repeats it: then the answer is CONCURRENT_TRANSACTIONS until all markers are
// written, whatever the decision is. Then the coordinator is asked.
func (t *transaction) coordinatorAnswer(ctx context.Context) (repair.Ending, error) {
	c := t.c
	if c.answered() {
		return repair.EndingCommit, nil
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	txn, _, err := repair.TransactionOf(ctx, kadm.NewClient(t.lane.o.Admin), c.last.ID, c.id)
	if err == nil && repair.UnderWay(txn, c.last) {
		if c.answer != nil && !c.heard.Load() {
			return repair.EndingUnknown, nil
		}
		if !c.dropped.Load() {
			txn, _, err = repair.TransactionOf(ctx, kadm.NewClient(c.Client), c.last.ID, c.id)
		}
		if c.dropped.Load() {
			return repair.EndingUnknown, nil
		}
	}
	if err != nil {
		return repair.EndingUnknown, err
	}
	return repair.EndingOf(txn, c.last), nil
}

// readBack returns how a transaction that is over ended, from a record that it wrote: a read_committed fetch that gets
// past the record shows it or, if it was aborted, does not. A fetch that does not get there says nothing: the partition
// may lack its marker, or its leader may have been unresponsive and not have the record yet.
func readBack(ctx context.Context, cl *kgo.Client, r *kgo.Record, by repair.Producer) (repair.Ending, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	where := partlog.Log{Topic: r.Topic, Partition: r.Partition}
	log := partlog.NewReader(cl, where, r.Offset)
	log.SetGoneAfter(RequestTimeout / 2)
	got, err := log.Record(ctx)
	switch {
	case err != nil:
		return repair.EndingUnknown, fmt.Errorf("read the step back: %w", err)
	case got == nil:
		return repair.EndingAbort, nil
	case got.ProducerID != by.ID || got.ProducerEpoch != by.Epoch:
		return repair.EndingUnknown, fmt.Errorf(
			"read the step back: another record at offset %d of %v than was written: %w", r.Offset, where,
			partlog.ErrLogCut)
	}
	return repair.EndingCommit, nil
}

// commitAgainPause is the pause before EndTxn is sent again to a coordinator that is writing markers. Markers may have
// to wait for partitions that lost their leaders.
const commitAgainPause = 200 * time.Millisecond

// errOver says that a transaction can no longer be committed; it may have been committed before.
var errOver = errors.New("the transaction has already ended")

// commitAgain sends EndTxn until it is answered. It returns nil if the transaction is committed, errOver if it is over,
// or another error when ctx ends. While the coordinator writes markers, it calls known, if not nil. If known returns
// true the decision is known from elsewhere, and commitAgain returns nil.
//
// A commit is as right now as it was before: all records are acknowledged, the group has accepted the offsets, and a
// new owner of a partition waits for this transaction, or has ended it, which fences it. And nothing but a commit is
// safe. A coordinator appends its decision to its log before its followers have it. It may be killed at that moment,
// and restarted before the controller has replaced it. Then it finds the decision in its log and believes it. It writes
// commit markers to partitions that other brokers lead, while its successor never hears of the decision (seen on Kafka
// 4.3.1, see docs/internals/FAILURES.md). If the successor aborts, the transaction is aborted on some partitions only,
// and sealing the step again duplicates it on the others.
func commitAgain(ctx context.Context, cl *kgo.Client, id string, p repair.Producer, known func() bool) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = id, p.ID, p.Epoch, true
	for {
		bounded, stop := context.WithTimeout(ctx, RequestTimeout)
		resp, err := req.RequestWith(bounded, cl)
		stop()
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		var refusal *kerr.Error
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &refusal), errors.Is(err, kerr.UnknownServerError):
			return fmt.Errorf("commit %s again: %w", id, err)
		case errors.Is(err, kerr.ConcurrentTransactions): // kerr does not call this retriable
			if known != nil && known() {
				return nil
			}
		case !refusal.Retriable:
			return fmt.Errorf("commit %s again: %w: %w", id, errOver, err)
		}
		if !beats.Sleep(ctx, commitAgainPause) {
			return fmt.Errorf("commit %s again: %w", id, err)
		}
	}
}

// CommitAgain does the same for a transaction that is not a lane's. An error says that it was not committed, or that
// the outcome is unknown.
func CommitAgain(ctx context.Context, cl *kgo.Client, id string, producerID int64, epoch int16) error {
	for {
		err := commitAgain(ctx, cl, id, repair.Producer{ID: producerID, Epoch: epoch}, nil)
		if err == nil || errors.Is(err, errOver) || !beats.Sleep(ctx, commitAgainPause) {
			return err
		}
	}
}
