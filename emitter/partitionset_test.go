package emitter

import (
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/timer"
)

// The partitions that a step writes to are listed once each, in order. A share's own records are counted apart from
// those of others and from emissions to the same partition.
func TestPartitionSet(t *testing.T) {
	record := func(topic string, partition int32) *kgo.Record {
		return &kgo.Record{Topic: topic, Partition: partition}
	}
	shares := []*Share{
		{Records: []*kgo.Record{record("log", 3), record("dead", 1), record("log", 3)},
			Emissions: []Emission{{Record: record("t", 7)}, {Record: record("u", 0)}, {Record: record("t", 2)}}},
		{Records: []*kgo.Record{record("log", 0), record("dead", 1)},
			Emissions: []Emission{{Record: record("dead", 1)}}},
	}
	f := partitionSetOf(shares)
	if got, want := f.partitions(),
		(map[string][]int32{"log": {0, 3}, "dead": {1}, "t": {2, 7}, "u": {0}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	countOf(f.own[1], "dead", 1).n.Add(2)
	f.emissions("t", 7).n.Add(1)
	var own, emitted []timer.TopicPartition
	if n := f.ownWaiting(func(share int, p timer.TopicPartition) {
		if share != 1 {
			t.Errorf("share %d waits for %v", share, p)
		}
		own = append(own, p)
	}); n != 2 || len(own) != 1 || own[0] != (timer.TopicPartition{Topic: "dead", Partition: 1}) {
		t.Errorf("%d records wait for %v", n, own)
	}
	f.waiting(func(p timer.TopicPartition) { emitted = append(emitted, p) })
	if len(emitted) != 1 || emitted[0] != (timer.TopicPartition{Topic: "t", Partition: 7}) {
		t.Errorf("emissions wait for %v", emitted)
	}
}
