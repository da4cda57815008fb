package emitter

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/timer"
)

// fullStep returns a step of n timers that are scheduled and n that fire, of 8
// partitions: two records for the changelog and one emission each.
func fullStep(n int) (shares []*Share) {
	random := rand.New(rand.NewPCG(1, 2))
	for p := range int32(8) {
		s := &Share{}
		for range n / 8 {
			s.Records = append(s.Records, &kgo.Record{Topic: "changelog", Partition: p},
				&kgo.Record{Topic: "changelog", Partition: p})
			s.Emissions = append(s.Emissions, Emission{
				Record: &kgo.Record{Topic: "target", Partition: random.Int32N(8)}, Due: random.Int64N(100),
				Seq: random.Int64N(100),
			})
		}
		shares = append(shares, s)
	}
	return shares
}

// The partitions that a step writes to are listed once each, in order. A share's own
// records are counted apart from those of others and from emissions to the same
// partition.
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

func TestEmissionsAreOrdered(t *testing.T) {
	shares := fullStep(4000)
	var want []*Emission
	for _, s := range shares {
		for i := range s.Emissions {
			want = append(want, &s.Emissions[i])
		}
	}
	slices.SortStableFunc(want, func(a, b *Emission) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Seq, b.Seq))
	})
	if got := ordered(shares); !slices.Equal(got, want) {
		t.Error("not by due time, offset and share")
	}
}

// BenchmarkPartitionSet measures what a lane itself adds to the sending of a full step.
func BenchmarkPartitionSet(b *testing.B) {
	shares := fullStep(5000)
	b.ReportAllocs()
	for b.Loop() {
		f := partitionSetOf(shares)
		_ = f.partitions()
		for i, s := range shares {
			for _, r := range s.Records {
				countOf(f.own[i], r.Topic, r.Partition).n.Add(1)
				countOf(f.own[i], r.Topic, r.Partition).n.Add(-1)
			}
		}
		for _, e := range ordered(shares) {
			f.emissions(e.Record.Topic, e.Record.Partition).n.Add(1)
			f.emissions(e.Record.Topic, e.Record.Partition).n.Add(-1)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/5000, "ns/timer")
}
