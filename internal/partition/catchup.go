package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partlog"
)

const (
	// catchUpPoll is how often the catch-up barrier checks how far intake has read.
	catchUpPoll = 5 * time.Millisecond
	// catchUpQuiet is how long intake must have delivered nothing before the catch-up barrier looks at the log itself.
	// It doubles, up to catchUpQuietMax, while the log shows requests: they are on their way through intake.
	catchUpQuiet, catchUpQuietMax = 50 * time.Millisecond, time.Second
	// catchUpBytes is how much one look fetches.
	catchUpBytes = 64 << 10
)

// heldPatience is how long the catch-up barrier waits in total for open transactions of other producers: see catchUp.
const heldPatience = 10 * time.Second

// catchUp is the catch-up barrier. It waits until every request up to end, the log's end at the acquisition, is
// delivered. Then timers may fire. So a cancel in the log beats a timer that fell due while no instance ran, unless the
// cancel stands behind an open transaction, see below.
//
// Markers and aborted batches bring no delivery. So while intake is quiet, a raw fetch finds out up to where the log
// holds no request. It uses intake's connections, because on those of the other client it would wait behind replays and
// read-backs.
//
// While a producer has a transaction open, no record from its first one on can be read. Ordinary transactions
// last for milliseconds, so the barrier waits for them, and a cancel behind one wins. But it waits no longer than
// heldPatience, about as long as a failover takes anyway, because all timers of the partition are late meanwhile. The
// coordinator aborts the transaction of a dead producer after its transaction.timeout.ms (60 s by default, 15 minutes at
// most), and a hanging transaction never ends. If the barrier waited for those, one producer could stop a tenant's timers
// at each acquisition. A live owner does not wait either: it reads such requests when the transaction ends. So a request
// behind an open transaction counts as if it were written when the transaction ends.
func (r *receiver) catchUp(ctx context.Context, end int64) {
	look := partlog.NewReader(r.o.Reader.Client(), r.life.Requests(), r.delivered.Load())
	look.SetMaxBytes(catchUpBytes)
	unpacker := r.o.Reader.Unpacker()
	look.SetDecompressor(unpacker)
	poll := time.NewTicker(catchUpPoll)
	defer poll.Stop()
	quiet, moved := catchUpQuiet, time.Now()
	patience := cmp.Or(r.o.HeldPatience, heldPatience)
	for look.Position() < end {
		select {
		case <-ctx.Done():
			return
		case now := <-poll.C:
			if d := r.delivered.Load(); d > look.Position() {
				look.SetPosition(d)
				quiet, moved = catchUpQuiet, now
				continue
			}
			if r.isPaused() {
				moved = now
			}
			if now.Sub(moved) < quiet {
				continue
			}
		}
		from, waited := look.Position(), time.Since(moved)
		unpacker.Reset()
		page, err := look.Next(ctx, 0)
		tooLarge := errors.Is(err, kgo.ErrMaxDecompress) // requests, which intake will refuse
		if err != nil && !tooLarge {
			if ctx.Err() == nil {
				r.life.GiveUp(fmt.Errorf("look at the request log: %w", err))
			}
			return
		}
		held := !tooLarge && look.Position() == from && page.LastStable <= from
		if held {
			if patience -= waited; patience <= 0 { // time without an answer does not count
				r.life.Log.Warn("timers fire although requests that were in the log at the acquisition cannot be read: a transaction of another producer is open; cancels among them may come too late",
					"from", from, "to", end)
				break
			}
		}
		if held || len(page.Records) > 0 || tooLarge {
			look.SetPosition(from)
			quiet, moved = min(2*quiet, catchUpQuietMax), time.Now()
		}
	}
	r.open()
	r.life.SetState(ownership.Live)
	r.life.Log.Info("partition live", "position", look.Position(), "pending", r.subs.Pending())
}
