package transaction

import (
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/waterclock/waterclock/internal/hanging"
	"github.com/waterclock/waterclock/internal/timer"
)

// leaderEpoch is what a client knew of a partition's leader; ok says that there was one.
type leaderEpoch struct {
	timer.TopicPartition
	epoch int32
	ok    bool
}

// leadersOf returns what a client knows of the leaders of partitions. It leaves out topics that it does not know,
// because it has written nothing to them.
func leadersOf(cl *kgo.Client, parts map[string][]int32) (all []leaderEpoch) {
	for topic, ps := range parts {
		for _, p := range ps {
			if leader, epoch, err := cl.PartitionLeader(topic, p); leader >= 0 || err != nil {
				all = append(all, leaderEpoch{timer.TopicPartition{Topic: topic, Partition: p}, epoch, err == nil})
			}
		}
	}
	return all
}

// leadersMoved reports whether a partition has another leader now, by what a client knows, than it had then. It tells
// the markers of each such partition.
func leadersMoved(cl *kgo.Client, m *hanging.Markers, leaders []leaderEpoch) (moved bool) {
	for _, was := range leaders {
		leader, epoch, err := cl.PartitionLeader(was.Topic, was.Partition)
		if forgotten := leader < 0 && err == nil; !was.ok || !forgotten && (epoch != was.epoch || err != nil) {
			moved = true
			m.Moved(was.TopicPartition)
		}
	}
	return moved
}
