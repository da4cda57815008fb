package emitter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

// commitAgainPause is the pause before EndTxn is sent again to a coordinator that is writing markers. Markers may have
// to wait for partitions that lost their leaders.
const commitAgainPause = 200 * time.Millisecond

// errOver says that a transaction can no longer be committed; it may have been committed before.
var errOver = errors.New("the transaction is over")

// commitAgain sends EndTxn until it is answered. It returns nil if the transaction is committed, errOver if it is over,
// or another error when ctx ends. While the coordinator writes markers, it calls told, if not nil. If told returns true
// the decision is known from elsewhere, and commitAgain returns nil.
//
// A commit is as right now as it was before: all records are acknowledged, the group has accepted the offsets, and a
// new owner of a partition waits for this transaction, or has ended it, which fences it. And nothing but a commit is
// safe. A coordinator appends its decision to its log before its followers have it. It may be killed at that moment,
// and restarted before the controller has replaced it. Then it finds the decision in its log and believes it. It writes
// commit markers to partitions that other brokers lead, while its successor never hears of the decision (seen on Kafka
// 4.3.1, see docs/internals/FAILURES.md). If the successor aborts, the transaction is aborted on some partitions only,
// and sealing the step again duplicates it on the others.
func commitAgain(ctx context.Context, cl *kgo.Client, id string, p repair.Producer, told func() bool) error {
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
			if told != nil && told() {
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
