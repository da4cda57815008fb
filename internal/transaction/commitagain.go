package transaction

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/hanging"
)

// commitAgainPause is how often a coordinator is asked to commit again that is writing
// markers, which may have to wait for leaders that a broker's death took away.
const commitAgainPause = 200 * time.Millisecond

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

// errOver: a transaction cannot be committed any more; it may have been.
var errOver = errors.New("the transaction is over")

// commitAgain sends EndTxn until it is answered: nil for a commit, errOver, or ctx has
// ended. While the coordinator writes markers, told is asked, if not nil, whether that
// will do.
//
// Committing is as right now as it was then: all records are acknowledged, the group
// has taken the offsets, and whoever has the partition since waits for this
// transaction, or has ended it, which fences it. And nothing but a commit is safe. A
// coordinator appends the decision to its log before its followers have it. One that
// is killed in that moment and restarted, before the controller has put another in
// its place, finds it there, believes it, and writes markers of a commit to what
// others lead, while its successor never hears of it (seen on Kafka 4.3.1, see
// docs/DESIGN.md). An abort by the successor is then one on some partitions alone, and
// what is sealed again a duplicate on the others.
func commitAgain(ctx context.Context, cl *kgo.Client, id string, p hanging.Producer, told func() bool) error {
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
		case errors.Is(err, kerr.ConcurrentTransactions): // which kerr does not call retriable
			if told != nil && told() {
				return nil
			}
		case !refusal.Retriable:
			return fmt.Errorf("commit %s again: %w: %w", id, errOver, err)
		}
		if sleep(ctx, commitAgainPause) != nil {
			return fmt.Errorf("commit %s again: %w", id, err)
		}
	}
}

// CommitAgain does the same for a transaction of whoever is no lane; an error says that
// it was not committed, or that this is not known.
func CommitAgain(ctx context.Context, cl *kgo.Client, id string, producerID int64, epoch int16) error {
	for {
		err := commitAgain(ctx, cl, id, hanging.Producer{ID: producerID, Epoch: epoch}, nil)
		if err == nil || errors.Is(err, errOver) || sleep(ctx, commitAgainPause) != nil {
			return err
		}
	}
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
