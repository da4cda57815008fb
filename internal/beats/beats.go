// Package beats makes tickers that tick together. What wakes the process costs some 50 µs of
// processor time whatever it does then, so many partitions that look after themselves ten times
// a second, each at a moment of its own, use one or two percent of a core for nothing. Tickers
// of this package tick at the multiples of their interval since the process began: those of one
// interval all at once.
package beats

import (
	"sync"
	"time"
)

// began is the moment from which all tickers count. It has a monotonic clock reading: the
// wall clock may be set.
var began = time.Now()

// Ticker is like time.Ticker. Its first tick comes within the interval, mostly sooner than that.
type Ticker struct {
	C <-chan time.Time

	every time.Duration
	c     chan time.Time
	mu    sync.Mutex  // guards timer, which is nil once the ticker is stopped
	timer *time.Timer // calls tick
}

// NewTicker returns a ticker with an interval of more than zero. The caller stops it.
func NewTicker(every time.Duration) *Ticker {
	c := make(chan time.Time, 1)
	t := &Ticker{C: c, c: c, every: every}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(t.next(), t.tick)
	return t
}

// next is how long it is until the next multiple of the interval.
func (t *Ticker) next() time.Duration {
	past := time.Since(began) % t.every
	if past < 0 { // within testing/synctest, whose clock began before
		past += t.every
	}
	return t.every - past
}

// tick drops ticks for a slow receiver, as time.Ticker does.
func (t *Ticker) tick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		return
	}
	select {
	case t.c <- time.Now():
	default:
	}
	t.timer.Reset(t.next())
}

// Stop ends the ticks. It may be called twice.
func (t *Ticker) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}
