package transaction

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/hanging"
)

// commitAgainPause is how often a coordinator is asked to commit again that is writing
// markers, which may have to wait for leaders that a broker's death took away.
const commitAgainPause = 200 * time.Millisecond

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
