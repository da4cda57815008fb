package targets

import (
	"context"
	"errors"
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

// Round looks at every breaker once. Probes that are due, maxProbes at a time, are
// handed to begin, which runs them now or elsewhere.
func (h *Health) Round(ctx context.Context, begin func(func())) { h.round(ctx, true, begin) }

func (h *Health) round(ctx context.Context, all bool, begin func(func())) {
	for _, p := range h.due(all) {
		begin(func() { h.probed(p, h.o.Probe(ctx, p)) })
	}
}

// due looks at the breakers, at all of them or until there is no place for one more probe. It returns the partitions to
// be probed.
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
		case b.away && !h.led.Away(p):
			b.away = false
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
			b.admitted = 0 // the admitted timers were cancelled, replaced or rolled back meanwhile
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
		b.next = now.Add(b.delay) // it says nothing about the target
	case RefusedForGood(err): // a final answer, which the waiting emissions must get
		h.close(p)
		h.o.Logger.Warn(
			"target partition refuses the probe for good: waiting timers will be sent; rejected ones become "+
				"dead letters", "topic", p.Topic, "partition", p.Partition, "err", err)
	case errors.Is(err, errNoLeader):
		b.next = now.Add(breakerMin) // a look at the metadata, which costs nothing
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
		h.o.Logger.Info("target partition answers again, trying one emission", "topic", p.Topic, "partition",
			p.Partition)
	}
}

// opens reports whether emissions that wait for a topic as a whole may go on. The lock is
// held.
func (h *Health) opens(p timer.TopicPartition) bool {
	if !timer.ValidTopicName(p.Topic) {
		return false // Unexamined: the partition that parked these emissions checks them
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
			!h.led.Away(q) {
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
		if b = h.breakers[p]; b != nil && b.admitted < b.window && !h.led.Away(p) {
			return p, b
		}
	}
	return p, nil
}
