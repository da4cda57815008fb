package ownership

import (
	"context"
	"time"

	"github.com/waterclock/waterclock/internal/partlog"
)

// oversizedTimeout bounds one look at a batch that is too large.
const oversizedTimeout = 10 * time.Second

// LookedAt says, for an intake.Sink's SkipBatch, whether it is known which transaction wrote the batch, and if so whether
// that was aborted. If it is not known, a look begins.
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
		in.wake()
	}
	return o.known, o.aborted
}

// lookAtOversized begins a look at the batch that intake stays before, unless one is under way.
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
