package emitter

import "strconv"

// TargetPartition names one partition of a target topic, or stands for the topic.
type TargetPartition struct {
	Topic     string
	Partition int32
}

// What waits for a topic as a whole has one of these partitions.
const (
	// AnyPartition: without a key, for the first partition that is well.
	AnyPartition int32 = -1
	// Unplaced: until it is known what partitions the topic has, or that it does
	// not exist.
	Unplaced int32 = -2
)

// Label is the partition for those who look at metrics.
func (p TargetPartition) Label() string {
	switch p.Partition {
	case AnyPartition:
		return "any"
	case Unplaced:
		return "unknown"
	}
	return strconv.Itoa(int(p.Partition))
}

// opens reports whether what waits for a topic as a whole may go on. The lock is
// held.
func (h *Health) opens(p TargetPartition) bool {
	target, known := h.o.Targets.Cached(p.Topic)
	switch {
	case !known:
		h.o.Targets.Prefetch(p.Topic)
		return false
	case p.Partition == Unplaced, target.Err != nil:
		return true
	}
	for k, led := range target.Leader {
		if q := (TargetPartition{p.Topic, int32(k)}); led && h.breakers[q] == nil && !h.led.Away(q) {
			return true
		}
	}
	return false
}

// roomOf finds a partition of a topic whose window has room. The lock is held.
func (h *Health) roomOf(topic string) (p TargetPartition, b *breaker) {
	target, _ := h.o.Targets.Cached(topic)
	for k := range target.Leader {
		p = TargetPartition{topic, int32(k)}
		if b = h.breakers[p]; b != nil && b.granted < b.window {
			return p, b
		}
	}
	return p, nil
}
