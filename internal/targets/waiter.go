package targets

import (
	"github.com/waterclock/waterclock/internal/timer"
)

// Permit lets an emission pass to a partition that is still unhealthy, in one window
// of its breaker.
type Permit struct {
	To     timer.TopicPartition
	window int64 // serial of the window
}

// Waiter is somebody who has parked emissions for targets, and is told when some
// may pass: a target's breaker closed, its window opened or grew, or what was
// admitted came to nothing. Nobody polls targets. Whoever parked something for a
// target Waits for it, and again after each Admit that left something parked; so
// a breaker that opens in between finds it among its waiters.
type Waiter struct {
	h     *Health
	wake  func()
	ready map[timer.TopicPartition]struct{} // Health.mu guards it
}

// Waiter returns a waiter; wake is called when it has something Ready, under a
// lock: it must not block.
func (h *Health) Waiter(wake func()) *Waiter {
	return &Waiter{h: h, wake: wake, ready: make(map[timer.TopicPartition]struct{})}
}

// Wait tells that something is parked for p.
func (w *Waiter) Wait(p timer.TopicPartition) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	b := w.h.breakers[p]
	switch {
	case b == nil && p.Partition < 0:
		b = w.h.suspect(p)
	case w.h.led.Away(p):
		b = w.h.missed(p)
	}
	if b != nil {
		b.waiters[w] = struct{}{}
	}
	if b == nil || !b.away && b.admitted < b.window {
		w.tell(p)
	}
}

// missed notes that something waits for a partition whose leader cannot be reached.
// The lock is held.
func (h *Health) missed(p timer.TopicPartition) *breaker {
	b := h.breakers[p]
	if b == nil {
		b = newBreaker(h.o.Now())
		b.only = true
		h.open(p, b)
	}
	b.away = true
	return b
}

// Ready returns the targets that something may pass to, and forgets them.
func (w *Waiter) Ready() (ps []timer.TopicPartition) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	for p := range w.ready {
		ps = append(ps, p)
	}
	clear(w.ready)
	return ps
}

// Admit returns how many of n emissions that are parked for p may pass now. Those
// of a breaker's window go where the permit says; without one they are as any.
func (w *Waiter) Admit(p timer.TopicPartition, n int) (admitted int, permit *Permit) {
	h := w.h
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.breakers[p]
	if h.led.Away(p) {
		h.missed(p).waiters[w] = struct{}{}
		return 0, nil
	}
	if b == nil {
		return n, nil
	}
	b.waiters[w] = struct{}{}
	if p.Partition == timer.AnyPartition {
		p, b = h.roomOf(p.Topic)
	}
	if b == nil || b.admitted >= b.window {
		return 0, nil
	}
	admitted = min(n, b.window-b.admitted)
	if admitted > 0 {
		b.admitted += admitted
		b.admitAt = h.o.Now()
	}
	return admitted, &Permit{p, b.serial}
}

// Leave tells that nothing is parked for p any more. A window that is open need
// not grow when nobody else waits.
func (w *Waiter) Leave(p timer.TopicPartition) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.leave(p)
}

// Close leaves every target.
func (w *Waiter) Close() {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	for p := range w.h.breakers {
		w.leave(p)
	}
}

// leave is Leave with the lock held.
func (w *Waiter) leave(p timer.TopicPartition) {
	b := w.h.breakers[p]
	if b == nil {
		return
	}
	if _, waits := b.waiters[w]; !waits {
		return
	}
	if delete(b.waiters, w); len(b.waiters) > 0 {
		return
	}
	if b.idle = w.h.o.Now(); b.window > 1 {
		w.h.close(p)
	}
}

// tell makes p ready. The lock is held.
func (w *Waiter) tell(p timer.TopicPartition) {
	w.ready[p] = struct{}{}
	w.wake()
}

// tell tells all who wait. The lock is held.
func (b *breaker) tell(p timer.TopicPartition) {
	for w := range b.waiters {
		w.tell(p)
	}
}
