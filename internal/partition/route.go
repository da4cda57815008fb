package partition

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/timer"
)

// route chooses the partition of an emission, as a Java client would. It asks no broker. If it cannot choose one yet,
// it returns a number that stands for what the timer must wait for, which Health does not allow: metadata of the topic,
// a turn to ask for it, or partitions that the topic does not have yet.
func (o *owned) route(t *timer.Target, permit *targets.Permit) (to timer.TopicPartition, refused *intake.Refusal) {
	to = timer.TopicPartition{Topic: t.Topic, Partition: timer.Unplaced}
	target, known := o.o.Targets.Cached(t.Topic)
	if !known {
		return o.o.Targets.Examine(t.Topic), nil
	}
	if target.Err != nil {
		return to, RefusalOf(target.Err, &kgo.Record{Topic: t.Topic, Partition: t.Partition})
	}
	n := int32(len(target.Leader))
	switch {
	case target.Compacted && t.Key == nil:
		return to, NoKey(t.Topic, "timer")
	case t.Partition >= n:
		if o.o.Targets.Lacks(timer.TopicPartition{Topic: t.Topic, Partition: t.Partition}) {
			return to, noPartition(t.Topic, t.Partition, n)
		}
		to.Partition = timer.Beyond
	case t.Partition != timer.AnyPartition:
		to.Partition = t.Partition
	case t.Key != nil:
		to.Partition = intake.Murmur2Partition(t.Key, n)
	case permit != nil && permit.To.Topic == t.Topic && o.o.Health.Allow(permit.To, permit):
		return permit.To, nil
	default:
		to.Partition = o.anyPartition(t.Topic, target.Leader)
	}
	return to, nil
}

// anyPartition chooses a healthy partition that has a leader, for a null key, and another one each millisecond.
func (o *owned) anyPartition(topic string, leader []bool) int32 {
	n := int32(len(leader))
	for i := range n {
		k := (int32(o.clock.millis()&0xffff) + i) % n
		if leader[k] && o.o.Health.Allow(timer.TopicPartition{Topic: topic, Partition: k}, nil) {
			return k
		}
	}
	return timer.AnyPartition
}

// hold is the planner's Hold. While everything is healthy it does not route: an unknown target is noticed when the
// firing is sealed.
func (o *owned) hold(t *timer.Timer, permit any) (timer.TopicPartition, bool) {
	if o.o.Health.AllHealthy() {
		return timer.TopicPartition{}, false
	}
	to, refused := o.route(&t.Target, permitOf(permit))
	return to, refused == nil && !o.o.Health.Allow(to, permitOf(permit))
}

// permitOf returns the permit that the planner carried, nil if there is none.
func permitOf(tag any) *targets.Permit {
	permit, _ := tag.(*targets.Permit)
	return permit
}
