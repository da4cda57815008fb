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
func (p *Partition) route(t *timer.Target, permit *targets.Permit) (to timer.TopicPartition, refused *planner.Refusal) {
	to = timer.TopicPartition{Topic: t.Topic, Partition: timer.Unplaced}
	target, known := p.o.Targets.Cached(t.Topic)
	if !known {
		return p.o.Targets.Examine(t.Topic), nil
	}
	if target.Err != nil {
		return to, refusalOf(target.Err, &kgo.Record{Topic: t.Topic, Partition: t.Partition})
	}
	n := int32(len(target.Leader))
	switch {
	case target.Compacted && t.Key == nil:
		return to, noKey(t.Topic)
	case t.Partition >= n:
		if p.o.Targets.Lacks(timer.TopicPartition{Topic: t.Topic, Partition: t.Partition}) {
			return to, noPartition(t.Topic, t.Partition, n)
		}
		to.Partition = timer.Beyond
	case t.Partition != timer.AnyPartition:
		to.Partition = t.Partition
	case t.Key != nil:
		to.Partition = intake.Murmur2Partition(t.Key, n)
	case permit != nil && permit.To.Topic == t.Topic && p.o.Health.Allow(permit.To, permit):
		return permit.To, nil
	default:
		to.Partition = p.anyPartition(t.Topic, target.Leader)
	}
	return to, nil
}

// anyPartition is for a null key: from millisecond to millisecond another
// partition that has a leader and is healthy.
func (p *Partition) anyPartition(topic string, leader []bool) int32 {
	n := int32(len(leader))
	for i := range n {
		k := (int32(p.clock.millis()&0xffff) + i) % n
		if leader[k] && p.o.Health.Allow(timer.TopicPartition{Topic: topic, Partition: k}, nil) {
			return k
		}
	}
	return timer.AnyPartition
}
