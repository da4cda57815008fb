package targets

import (
	"maps"
	"slices"

	"github.com/waterclock/waterclock/internal/timer"
)

// Waiter returns a waiter. wake is called under a lock when the waiter has something Ready. It must not block.
func (h *Health) Waiter(wake func()) *Waiter {
	return &Waiter{h: h, wake: wake, ready: make(map[timer.TopicPartition]struct{})}
}

// Wait registers the waiter for p, for which something is parked.
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

// missed returns the breaker of a partition that is away and for which something waits. The lock is held.
func (h *Health) missed(p timer.TopicPartition) *breaker {
	b, opened := h.breakerOf(p, 0)
	b.away, b.only = true, b.only || opened
	return b
}

// Ready returns the targets to which something may pass, and forgets them.
func (w *Waiter) Ready() (ps []timer.TopicPartition) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	ps = slices.Collect(maps.Keys(w.ready))
	clear(w.ready)
	return ps
}

// Admit returns how many of n emissions that are parked for p may pass now. With a permit, they must go
// to the partition that it names, which for AnyPartition is chosen here.
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

// Leave is called when nothing is parked for p any more. If nothing else waits, and the window has begun to grow, the
// breaker closes.
func (w *Waiter) Leave(p timer.TopicPartition) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.leave(p)
}

// Close is Leave for every target.
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
