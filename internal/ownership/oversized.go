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
func (l *Life) LookedAt(first, next int64) (known, aborted bool) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.oversized == nil || l.oversized.next != next {
		l.oversized = &oversized{first: first, next: next}
	}
	o := l.oversized
	if o.known {
		l.oversized = nil
	} else {
		l.Kick()
	}
	return o.known, o.aborted
}

// lookAtOversized sees to it that somebody looks whose batch intake stands before.
func (l *Life) lookAtOversized(ctx context.Context) {
	l.Mu.Lock()
	o := l.oversized
	start := o != nil && !o.looking
	if start {
		o.looking = true
	}
	l.Mu.Unlock()
	if !start {
		return
	}
	l.Aside(func() {
		ctx, cancel := context.WithTimeout(ctx, oversizedTimeout)
		defer cancel()
		log := partlog.NewReader(l.o.Client, l.Requests(), o.next-1) // first may lie before the log's start
		log.SetMaxBytes(1)
		aborted, err := log.Aborted(ctx)
		l.Mu.Lock()
		defer l.Mu.Unlock()
		switch {
		case l.oversized != o:
		case err != nil:
			l.oversized = nil
			l.Log.Warn("cannot look whether records that are too large are those of an aborted transaction", "from", o.first, "to", o.next, "err", err)
		default:
			o.known, o.aborted = true, aborted
		}
	})
}
