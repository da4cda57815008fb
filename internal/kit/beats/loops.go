package beats

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends. It reports whether d has passed.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Every calls f at each tick of a Ticker, until ctx ends. The first tick comes at the next multiple of the interval,
// which may be now.
func Every(ctx context.Context, interval time.Duration, f func()) { EveryOr(ctx, interval, nil, f) }

// EveryOr is Every that also calls f when wake is sent.
func EveryOr(ctx context.Context, interval time.Duration, wake Signal, f func()) {
	t := NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-wake:
		}
		f()
	}
}

// Reminder keeps the log short while a trouble lasts. The zero value has logged nothing yet. One goroutine uses it.
type Reminder struct{ logged time.Time }

// Due reports whether the trouble was not logged within the last interval. If so, the caller logs it now.
func (r *Reminder) Due(interval time.Duration) bool {
	if time.Since(r.logged) < interval {
		return false
	}
	r.logged = time.Now()
	return true
}

// Signal wakes a goroutine that receives from it. A signal that is sent before the goroutine looks is not lost, and
// several of them count as one.
type Signal chan struct{}

// NewSignal returns a signal that was not sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
