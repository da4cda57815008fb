// Package beats makes tickers that tick together, and small helpers for loops: a [Signal], a [Sleep] that a context
// ends, and a [Reminder] for the log.
//
//	beats.Every(ctx, 100*time.Millisecond, p.check) // returns when ctx ends
//
// Each wake-up of the process costs some 50 µs of processor time, whatever it does then. If many partitions check
// themselves ten times a second, each at its own moment, they use one or two percent of a core for nothing. So all
// tickers with the same interval tick together: at multiples of the interval by the wall clock, plus a phase.
//
// Tickers share only the moment. Each has its own runtime timer, lock and channel, and never waits for its receiver.
// A slow receiver, or one that never stops its ticker, delays no other tick.
//
// The wall clock may be set. The next tick still comes within an interval, because a ticker waits for a duration,
// which it computes anew at each tick. From then on all tickers agree again. Within testing/synctest ticks come at
// the same moments in each run.
package beats

import (
	"context"
	"sync"
	"time"
)

// phase keeps ticks away from whole seconds, when more timers fall due than at any other moment.
const phase = 37 * time.Millisecond

// Ticker is like time.Ticker, but its first tick may come sooner than after the interval.
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
	t.timer = time.AfterFunc(untilNext(time.Now(), every), t.tick)
	return t
}

// untilNext returns the time from now to the next tick: more than zero, at most the interval.
func untilNext(now time.Time, every time.Duration) time.Duration {
	return now.Add(-phase).Truncate(every).Add(every + phase).Sub(now)
}

// tick drops ticks for a slow receiver, as time.Ticker does.
func (t *Ticker) tick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		return
	}
	now := time.Now()
	select {
	case t.c <- now:
	default:
	}
	t.timer.Reset(untilNext(now, t.every))
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

// Reminder keeps the log short while a problem lasts. The zero value has logged nothing yet. It is for one goroutine.
type Reminder struct{ logged time.Time }

// Due reports whether the problem was not logged within the last interval. If so, the caller logs it now.
func (r *Reminder) Due(interval time.Duration) bool {
	if time.Since(r.logged) < interval {
		return false
	}
	r.logged = time.Now()
	return true
}

// Signal wakes a goroutine that receives from it. A signal sent before the goroutine receives is not lost, and
// several of them count as one.
type Signal chan struct{}

// NewSignal returns a signal that has not been sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
