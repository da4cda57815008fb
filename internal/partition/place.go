package partition

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/timer"
)

// place chooses the partition of an emission, as a Java client would.
func (p *Partition) place(t *timer.Target) (partition int32, refused *refusal, err error) {
	target, err := p.o.Targets.Lookup(context.Background(), t.Topic)
	if err != nil {
		return 0, nil, err
	}
	partition, refused = p.choose(t, target)
	return partition, refused, nil
}

// choose is place once the target is known.
func (p *Partition) choose(t *timer.Target, target emitter.Target) (partition int32, refused *refusal) {
	if verdict := target.Err; verdict != nil {
		return 0, refusalOf(verdict, &kgo.Record{Topic: t.Topic, Partition: t.Partition})
	}
	n := int32(len(target.Leader))
	switch {
	case target.Compacted && t.Key == nil:
		return 0, noKey(t.Topic)
	case t.Partition >= n:
		return 0, noPartition(t.Topic, t.Partition, n)
	case t.Partition != timer.AnyPartition:
		return t.Partition, nil
	case t.Key != nil:
		return intake.Murmur2Partition(t.Key, n), nil
	}
	// A null key: from millisecond to millisecond another partition that has a
	// leader and is well; if none is, the first with a leader, or just the first:
	// it is found sick, and what waits for it holds up nothing else.
	first := int32(-1)
	for i := range n {
		k := (int32(p.clock.millis()&0xffff) + i) % n
		if !target.Leader[k] {
			continue
		}
		if p.o.Health.Allow(emitter.TargetPartition{Topic: t.Topic, Partition: k}) {
			return k, nil
		}
		if first < 0 {
			first = k
		}
	}
	return max(first, 0), nil
}

// deadLetters is the partition for dead letters: ours, or else the next one that
// has a leader and takes writes, as far as known; without one the step holds up,
// and is tried apart from the others.
func (p *Partition) deadLetters() int32 {
	topic := &p.o.Topics.DeadLetters
	for i := range topic.Partitions {
		k := (p.o.Partition + i) % topic.Partitions
		if !p.o.Targets.Stalled(topic.Name, k) && p.o.Health.Allow(emitter.TargetPartition{Topic: topic.Name, Partition: k}) {
			return k
		}
	}
	return p.o.Partition
}
