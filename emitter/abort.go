package emitter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/tasks"
)

// aborts ends transactions that a lane has given up. The lane need not wait: they can no longer be committed.
// Read_committed consumers of the targets do wait. So they are ended in the background.
type aborts struct {
	background *tasks.Group
	o          *Options
	// apart means that the lane belongs to the quarantine, which waits for the ends. The lane's loop owns the field
	// below.
	apart bool
	ends  []end
}

// end is the end of a transaction that a quarantine has given up. done is closed when the transaction is
// ended, unless stop was called before. From by on the broker aborts it by itself, by its timeout.
type end struct {
	done <-chan struct{}
	stop context.CancelFunc
	by   time.Time
}

// leave stops waiting for the end. But readers of every target in the transaction still wait, so the attempts go on
// until the broker aborts the transaction by itself.
func (e end) leave() { time.AfterFunc(time.Until(e.by), e.stop) }

// begin makes the broker abort a client's last transaction, in the background. The channel is closed when the
// transaction is aborted; in the quarantine only when its markers are written too, however long that takes.
func (a *aborts) begin(c *txnClient) <-chan struct{} {
	ctx, cancel := context.WithTimeout(a.background.Context(), a.o.TransactionTimeout)
	done := make(chan struct{})
	if a.apart {
		cancel()
		ctx, cancel = context.WithCancel(a.background.Context())
		a.ends = append(a.ends, end{done, cancel, time.Now().Add(a.o.TransactionTimeout)})
	}
	a.background.Go(func(context.Context) {
		defer cancel()
		decided := c.parts != nil && a.abortNow(ctx, c)
		if decided && !a.apart || a.endLast(ctx, c.id) {
			close(done)
		}
	})
	return done
}

// last returns the end of the transaction that was given up last.
func (a *aborts) last() <-chan struct{} {
	if len(a.ends) == 0 {
		return nil
	}
	return a.ends[len(a.ends)-1].done
}

// leave leaves the ends for which no source waits, except the last one.
func (a *aborts) leave(waits func(<-chan struct{}) bool) {
	last := a.last()
	a.ends = slices.DeleteFunc(a.ends, func(e end) bool {
		if e.done == last || waits(e.done) {
			return false
		}
		e.leave()
		return true
	})
}

// leaveAll leaves all ends.
func (a *aborts) leaveAll() {
	for _, e := range a.ends {
		e.leave()
	}
	a.ends = nil
}

// abortNow makes the broker abort the transaction of a client that is closed. Readers wait for that, so it takes one
// request, while endLast takes a new client. The answer says that the abort is decided; markers may still be missing.
func (a *aborts) abortNow(ctx context.Context, c *txnClient) bool {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = c.id, c.last.ID, c.last.Epoch
	resp, err := req.RequestWith(ctx, a.o.Admin)
	return err == nil && resp.ErrorCode == 0
}

// endLast tries until the last transaction of an ID is ended, or ctx ends.
func (a *aborts) endLast(ctx context.Context, id string) bool {
	for backoff := minBackoff; ; backoff = nextBackoff(a.o.Leaders, backoff) {
		bounded, stop := context.WithTimeout(ctx, a.o.TransactionTimeout)
		err := initProducerID(bounded, a.o, id)
		stop()
		if err == nil {
			return true
		}
		if !beats.Sleep(ctx, backoff) {
			a.o.Logger.Info("abort abandoned, the broker will time the transaction out",
				"transactional_id", id, "err", err)
			return false
		}
	}
}

// initProducerID makes the broker complete or abort the last transaction of an ID.
func initProducerID(ctx context.Context, o *Options, id string) error {
	fresh, err := newTxnClient(o, id)
	if err != nil {
		return err
	}
	defer fresh.Close()
	if _, _, err := fresh.ProducerID(ctx); err != nil {
		return fmt.Errorf("init producer ID of %s: %w", id, err)
	}
	return nil
}
