package partition

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

// SkipBatch implements intake.Sink.
func (p *Partition) SkipBatch(first, next int64) bool {
	p.mu.Lock()
	if p.oversized == nil || p.oversized.next != next {
		p.oversized = &oversized{first: first, next: next}
	}
	o := *p.oversized
	if o.known {
		p.oversized = nil
	}
	p.mu.Unlock()
	switch {
	case !o.known:
		p.kick()
		return false
	case o.aborted:
		p.delivered.Store(next) // there is no request in it
	default:
		p.refuseBatch(first, next)
	}
	return true
}

// lookAtOversized sees to it that somebody looks whose batch intake stands before.
func (p *Partition) lookAtOversized(ctx context.Context) {
	p.mu.Lock()
	o := p.oversized
	start := o != nil && !o.looking
	if start {
		o.looking = true
	}
	p.mu.Unlock()
	if !start {
		return
	}
	p.aside(func() {
		ctx, cancel := context.WithTimeout(ctx, oversizedTimeout)
		defer cancel()
		log := partlog.NewReader(p.o.Client, p.requestTarget(), o.next-1) // first may lie before the log's start
		log.SetMaxBytes(1)
		aborted, err := log.Aborted(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case p.oversized != o:
		case err != nil:
			p.oversized = nil
			p.log.Warn("cannot look whether requests that are too large are those of an aborted transaction", "from", o.first, "to", o.next, "err", err)
		default:
			o.known, o.aborted = true, aborted
		}
	})
}
