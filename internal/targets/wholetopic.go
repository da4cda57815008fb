package targets

import "github.com/waterclock/waterclock/internal/timer"

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
		if q := (timer.TopicPartition{Topic: p.Topic, Partition: int32(k)}); led && h.breakers[q] == nil && !h.led.Away(q) {
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
