package emitter

import (
	"sync/atomic"

	"github.com/waterclock/waterclock/internal/timer"
)

// partitionSet is the partitions that a step writes to. It is built before the transaction begins. After that only the
// counts in it change, so promises find theirs without a lock. A step has up to ten thousand records for a few dozen
// partitions, so there is no map by record, nor by partition.
type partitionSet struct {
	topics map[string][]*outstanding // by partition, nil if nothing goes there; counts emissions
	own    [][]*outstanding          // of each share's own records, parallel to the shares

	topic string // the one noted last, and its slots
	slots []*outstanding
}

// outstanding counts records for one partition that are sent and not acknowledged.
type outstanding struct {
	to timer.TopicPartition
	n  atomic.Int32
}

func partitionSetOf(shares []*Share) *partitionSet {
	f := &partitionSet{topics: make(map[string][]*outstanding), own: make([][]*outstanding, len(shares))}
	for i, s := range shares {
		for _, r := range s.Records {
			if countOf(f.own[i], r.Topic, r.Partition) == nil {
				f.own[i] = append(
					f.own[i], &outstanding{to: timer.TopicPartition{Topic: r.Topic, Partition: r.Partition}})
				f.note(r.Topic, r.Partition)
			}
		}
		for k := range s.Emissions {
			r := s.Emissions[k].Record
			f.note(r.Topic, r.Partition)
		}
	}
	return f
}

// note adds a partition.
func (p *partitionSet) note(topic string, partition int32) {
	if topic != p.topic {
		p.topic, p.slots = topic, p.topics[topic]
	}
	if n := int(partition) + 1; n > len(p.slots) {
		p.slots = append(p.slots, make([]*outstanding, n-len(p.slots))...)
		p.topics[topic] = p.slots
	}
	if p.slots[partition] == nil {
		p.slots[partition] = &outstanding{to: timer.TopicPartition{Topic: topic, Partition: partition}}
	}
}

// emissions returns the counter of emissions for a partition that was noted.
func (p *partitionSet) emissions(topic string, partition int32) *outstanding {
	return p.topics[topic][partition]
}

// waiting calls do for each partition that has not acknowledged all emissions sent.
func (p *partitionSet) waiting(do func(timer.TopicPartition)) {
	for _, slots := range p.topics {
		for _, o := range slots {
			if o != nil && o.n.Load() > 0 {
				do(o.to)
			}
		}
	}
}

// ownWaiting calls do, with the share's number, for each partition that has not acknowledged all of a share's own
// records. It returns how many records are missing.
func (p *partitionSet) ownWaiting(do func(share int, to timer.TopicPartition)) (records int32) {
	for i, own := range p.own {
		for _, o := range own {
			if n := o.n.Load(); n > 0 {
				records += n
				do(i, o.to)
			}
		}
	}
	return records
}

// partitions lists all partitions that are written to, in order.
func (p *partitionSet) partitions() map[string][]int32 {
	all := make(map[string][]int32, len(p.topics))
	for topic, slots := range p.topics {
		for k, o := range slots {
			if o != nil {
				all[topic] = append(all[topic], int32(k))
			}
		}
	}
	return all
}

// countOf returns the counter of a partition, nil if there is none. A share writes to at most three partitions: of the
// changelog, of the dead letters and of the events. So a search is enough.
func countOf(counts []*outstanding, topic string, partition int32) *outstanding {
	for _, o := range counts {
		if o.to.Partition == partition && o.to.Topic == topic {
			return o
		}
	}
	return nil
}
