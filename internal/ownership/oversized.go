package ownership

import (
	"context"
	"time"

	"github.com/waterclock/waterclock/internal/partlog"
)

// oversizedTimeout bounds one look at a batch that is too large.
const oversizedTimeout = 10 * time.Second

// oversized is a batch that is too large to be decompressed. Requests in it become a
// dead letter, but what an aborted transaction wrote are no requests, and the client
// tells only after decompressing. So intake stands before the batch and asks again and
// again, while a look at the log, beside everything else, finds out. It ends with the
// look: known, intake passes the batch; not to be told, the next question begins
// another look.
type oversized struct {
	first, next int64
	looking     bool
	known       bool
	aborted     bool
}

// LookedAt says, for an intake.Sink's SkipBatch, whether it is known whose the batch is,
// and if so whether it is that of an aborted transaction. Somebody will look otherwise.
func (in *Input) LookedAt(first, next int64) (known, aborted bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.oversized == nil || in.oversized.next != next {
		in.oversized = &oversized{first: first, next: next}
	}
	o := in.oversized
	if o.known {
		in.oversized = nil
	} else {
		in.kick()
	}
	return o.known, o.aborted
}

// lookAtOversized sees to it that somebody looks whose batch intake stands before.
func (in *Input) lookAtOversized(ctx context.Context) {
	in.mu.Lock()
	o := in.oversized
	start := o != nil && !o.looking
	if start {
		o.looking = true
	}
	in.mu.Unlock()
	if !start {
		return
	}
	in.aside(func() {
		ctx, cancel := context.WithTimeout(ctx, oversizedTimeout)
		defer cancel()
		log := partlog.NewReader(in.o.Client, in.o.requests(), o.next-1) // first may lie before the log's start
		log.SetMaxBytes(1)
		aborted, err := log.Aborted(ctx)
		in.mu.Lock()
		defer in.mu.Unlock()
		switch {
		case in.oversized != o:
		case err != nil:
			in.oversized = nil
			in.log.Warn("cannot look whether records that are too large are those of an aborted transaction", "from", o.first, "to", o.next, "err", err)
		default:
			o.known, o.aborted = true, aborted
		}
	})
}
