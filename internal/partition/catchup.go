package partition

import (
	"cmp"
	"context"
	"time"

	"github.com/waterclock/waterclock/internal/ownership"
)

const (
	// catchUpPoll is how often the catch-up barrier checks how far intake has read.
	catchUpPoll = 5 * time.Millisecond
	// heldPatience is how long the catch-up barrier waits in total for open transactions of other producers. See
	// catchUp.
	heldPatience = 10 * time.Second
	// heldStep is the most that one gap between deliveries adds, so that time without an answer does not count.
	heldStep = 500 * time.Millisecond
)

// catchUp is the catch-up barrier. It waits until every request up to end, the log's end at the acquisition, is
// delivered. Then timers may fire. So a cancel in the log beats a timer that fell due while no instance ran, unless the
// cancel stands behind an open transaction, see below.
//
// While a producer has a transaction open, no record from its first one on can be read. Ordinary transactions
// last for milliseconds, so the barrier waits for them, and a cancel behind one wins. But it waits no longer than
// heldPatience, about as long as a failover takes anyway, because all timers of the partition are late meanwhile.
// The coordinator aborts the transaction of a dead producer after its transaction.timeout.ms (60 s by default,
// 15 minutes at most), and a hanging transaction never ends. If the barrier waited for those, one producer could stop a
// tenant's timers at each acquisition. A live owner does not wait either: it reads such requests when the transaction
// ends. So a request behind an open transaction counts as if it were written when the transaction ends.
func (r *receiver) catchUp(ctx context.Context, end int64) {
	poll := time.NewTicker(catchUpPoll)
	defer poll.Stop()
	patience := cmp.Or(r.o.HeldPatience, heldPatience)
	for r.delivered.Load() < end {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
		if time.Duration(r.held.Load()) >= patience {
			r.life.Log.Warn("catch-up barrier opened despite an open transaction, cancels behind it may be late",
				"from", r.delivered.Load(), "to", end)
			break
		}
	}
	r.open()
	r.life.SetState(ownership.Live)
	r.life.Log.Info("partition live", "position", r.delivered.Load(), "pending", r.subs.Pending())
}
