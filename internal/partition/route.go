package partition

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/targets"
	"github.com/waterclock/waterclock/internal/timer"
)

// route chooses the partition of an emission, as a Java client would. It asks
// nobody. What cannot be placed now waits for what it returns, which Health does
// not allow: the topic, that more topics can be asked for, or partitions that it
// does not have yet.
func (w *owned) route(t *timer.Target, permit *targets.Permit) (to timer.TopicPartition, refused *planner.Refusal) {
	to = timer.TopicPartition{Topic: t.Topic, Partition: timer.Unplaced}
	target, known := w.o.Targets.Cached(t.Topic)
	if !known {
		return w.o.Targets.Examine(t.Topic), nil
	}
	if target.Err != nil {
		return to, refusalOf(target.Err, &kgo.Record{Topic: t.Topic, Partition: t.Partition})
	}
	n := int32(len(target.Leader))
	switch {
	case target.Compacted && t.Key == nil:
		return to, noKey(t.Topic)
	case t.Partition >= n:
		if w.o.Targets.Lacks(timer.TopicPartition{Topic: t.Topic, Partition: t.Partition}) {
			return to, noPartition(t.Topic, t.Partition, n)
		}
		to.Partition = timer.Beyond
	case t.Partition != timer.AnyPartition:
		to.Partition = t.Partition
	case t.Key != nil:
		to.Partition = intake.Murmur2Partition(t.Key, n)
	case permit != nil && permit.To.Topic == t.Topic && w.o.Health.Allow(permit.To, permit):
		return permit.To, nil
	default:
		to.Partition = w.anyPartition(t.Topic, target.Leader)
	}
	return to, nil
}

// anyPartition is for a null key: from millisecond to millisecond another
// partition that has a leader and is healthy.
func (w *owned) anyPartition(topic string, leader []bool) int32 {
	n := int32(len(leader))
	for i := range n {
		k := (int32(w.clock.millis()&0xffff) + i) % n
		if leader[k] && w.o.Health.Allow(timer.TopicPartition{Topic: topic, Partition: k}, nil) {
			return k
		}
	}
	return timer.AnyPartition
}

// hold is the planner's Hold. While nothing is unhealthy it does not look: a target
// that is not known shows when the firing is sealed.
func (w *owned) hold(t *timer.Timer, permit any) (timer.TopicPartition, bool) {
	if w.o.Health.AllHealthy() {
		return timer.TopicPartition{}, false
	}
	to, refused := w.route(&t.Target, permitOf(permit))
	return to, refused == nil && !w.o.Health.Allow(to, permitOf(permit))
}

// permitOf is a permit that went through the planner.
func permitOf(tag any) *targets.Permit {
	permit, _ := tag.(*targets.Permit)
	return permit
}
