package targets

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

// Run probes until ctx ends.
func (h *Health) Run(ctx context.Context) error {
	t := beats.NewTicker(probeTick)
	defer t.Stop()
	var probes sync.WaitGroup
	defer probes.Wait()
	for {
		all := false
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			all = true
		case <-h.wake:
		}
		h.round(ctx, all, probes.Go)
	}
}

// Round checks every breaker once. Due probes, maxProbes at a time, are handed to begin, which runs them now or
// elsewhere.
func (h *Health) Round(ctx context.Context, begin func(func())) { h.round(ctx, true, begin) }

func (h *Health) round(ctx context.Context, all bool, begin func(func())) {
	for _, p := range h.due(all) {
		begin(func() { h.probed(p, h.o.Probe(ctx, p)) })
	}
}

// due checks the breakers, all of them or until there is no place for one more probe. It returns the partitions to be
// probed.
func (h *Health) due(all bool) (ps []timer.TopicPartition) {
	if h.AllHealthy() {
		return nil
	}
	now := h.o.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for p, b := range h.breakers {
		if !all && h.probes >= maxProbes {
			h.more = true
			break
		}
		idle := len(b.waiters) == 0 && now.Sub(b.idle) > idleFor
		switch {
		case b.unreachable && !h.leaders.Unreachable(p):
			b.unreachable = false
			if b.only {
				h.close(p)
			} else {
				b.tell(p)
			}
		case b.only && idle:
			h.close(p)
		case b.only:
		case p.Partition < 0 && (idle || h.opens(p)), b.window > 0 && idle:
			h.close(p)
		case p.Partition == timer.AnyPartition:
			if _, one := h.roomOf(p.Topic); one != nil {
				b.tell(p)
			}
		case p.Partition < 0:
		case b.window > 0 && b.admitted >= b.window && now.Sub(b.admitAt) > admitAgain:
			b.admitted = 0 // the admitted timers were cancelled, replaced or rolled back
			b.tell(p)
		case b.window > 0 || b.probing || now.Before(b.next):
		case h.probes >= maxProbes:
			h.more = true
		default:
			b.probing = true
			h.probes++
			ps = append(ps, p)
		}
	}
	return ps
}

func (h *Health) probed(p timer.TopicPartition, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.probes--; h.more {
		h.more = false
		h.wakeRun()
	}
	b := h.breakers[p]
	if b == nil {
		return
	}
	b.probing = false
	now := h.o.Now()
	switch {
	case errors.Is(err, errNotTried):
		b.next = now.Add(b.delay) // the target was not tested
	case RefusedForGood(err): // a final answer, which the waiting emissions must get
		h.close(p)
		h.o.Logger.Warn(
			"target partition rejects the probe permanently: waiting timers will be sent; rejected ones become "+
				"dead letters", "topic", p.Topic, "partition", p.Partition, "err", err)
	case errors.Is(err, errNoLeader):
		b.next = now.Add(breakerMin) // reading the metadata costs nothing
	case err != nil:
		b.delay = min(2*b.delay, breakerMax)
		b.next = now.Add(b.delay)
		b.clock = errors.Is(err, kerr.InvalidTimestamp)
	default:
		h.serial++
		b.window, b.admitted, b.serial, b.clock = 1, 0, h.serial, false
		if len(b.waiters) == 0 {
			b.idle = now
		}
		b.tell(p)
		h.o.Logger.Info("target partition responds again, trying one emission", "topic", p.Topic, "partition",
			p.Partition)
	}
}

// opens reports whether emissions that wait for a topic as a whole may go on. The lock is held.
func (h *Health) opens(p timer.TopicPartition) bool {
	if !timer.ValidTopicName(p.Topic) {
		return false // Unexamined: the owner of these emissions checks them
	}
	target, known := h.o.Targets.Cached(p.Topic)
	switch {
	case !known:
		h.o.Targets.Examine(p.Topic)
		h.o.Targets.Prefetch(p.Topic)
		return false
	case p.Partition == timer.Unplaced, target.Err != nil:
		return true
	case p.Partition == timer.Beyond:
		return !h.o.Targets.doubts(p.Topic)
	}
	for k, led := range target.Leader {
		if q := (timer.TopicPartition{Topic: p.Topic, Partition: int32(k)}); led && h.breakers[q] == nil &&
			!h.leaders.Unreachable(q) {
			return true
		}
	}
	return false
}

// roomOf returns a partition of a topic whose window has room, nil if there is none. The lock is held.
func (h *Health) roomOf(topic string) (p timer.TopicPartition, b *breaker) {
	target, _ := h.o.Targets.Cached(topic)
	for k := range target.Leader {
		p = timer.TopicPartition{Topic: topic, Partition: int32(k)}
		if b = h.breakers[p]; b != nil && b.admitted < b.window && !h.leaders.Unreachable(p) {
			return p, b
		}
	}
	return p, nil
}

// Waiter returns a waiter. wake is called under a lock when the waiter has something Ready. It must not block.
func (h *Health) Waiter(wake func()) *Waiter {
	return &Waiter{h: h, wake: wake, ready: make(map[timer.TopicPartition]struct{})}
}

// Wait registers the waiter for p. Call it when emissions wait for p.
func (w *Waiter) Wait(p timer.TopicPartition) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	b := w.h.breakers[p]
	switch {
	case b == nil && p.Partition < 0:
		b = w.h.suspect(p)
	case w.h.leaders.Unreachable(p):
		b = w.h.missed(p)
	}
	if b != nil {
		b.waiters[w] = struct{}{}
	}
	if b == nil || !b.unreachable && b.admitted < b.window {
		w.tell(p)
	}
}

// missed returns the breaker of a stalled partition for which emissions wait. The lock is held.
func (h *Health) missed(p timer.TopicPartition) *breaker {
	b, opened := h.breakerOf(p, 0)
	b.unreachable, b.only = true, b.only || opened
	return b
}

// Ready returns the targets that emissions may pass to, and forgets them.
func (w *Waiter) Ready() (ps []timer.TopicPartition) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	ps = slices.Collect(maps.Keys(w.ready))
	clear(w.ready)
	return ps
}

// Admit returns how many of n emissions that wait for p may pass now. With a permit, they must go
// to the partition that it names, which for AnyPartition is chosen here.
func (w *Waiter) Admit(p timer.TopicPartition, n int) (admitted int, permit *Permit) {
	h := w.h
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.breakers[p]
	if h.leaders.Unreachable(p) {
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

// Leave is called when nothing waits for p any more. If no other waiter is left and the window has begun to grow,
// the breaker closes.
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
