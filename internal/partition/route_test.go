package partition

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/timer"
)

// A target none of whose partitions has a leader is unhealthy like any other: an
// emission with a null key, which may go to any of them, must not hold up what
// goes to other targets, nor requests. It goes on when one is healthy.
func TestNullKeyWithoutAnyLeaderHoldsUpNobody(t *testing.T) {
	c := newCore(t, newGround(t), 1<<20, 1000)
	c.brokers.leaders[targetTopic] = []int32{-1, -1, -1}
	c.look(0)
	c.load()
	c.work()
	null := c.schedule(1, -10)
	null.Headers = append(null.Headers, kgo.RecordHeader{Key: waterclock.HeaderTargetKeyNull, Value: []byte("true")})
	other := c.schedule(2, -10)
	other.Headers[1].Value = []byte(otherTopic)
	c.deliver(2)
	c.work()
	if c.seal(100); c.share == nil || len(c.share.Emissions) != 1 || c.share.Emissions[0].Record.Topic != otherTopic {
		t.Fatalf("the other target does not get its emission: %+v", c.share)
	}
	c.commit(true)
	c.apply()
	if c.seal(100); c.share != nil {
		t.Fatalf("sealed a firing that has nowhere to go: %+v", c.share)
	}
	c.park()
	anyOf := timer.TopicPartition{Topic: targetTopic, Partition: emitter.AnyPartition}
	if c.p.parking.counts[anyOf] != 1 {
		t.Fatalf("not parked: %v", c.p.parking.counts)
	}
	c.brokers.leaders[targetTopic][1] = 0
	c.look(time.Second)
	c.park()
	c.work()
	if c.seal(100); c.share == nil || len(c.share.Emissions) != 1 || c.share.Emissions[0].Record.Partition != 1 {
		t.Fatalf("not sent to the partition that has a leader again: %+v", c.share)
	}
	c.commit(true)
	c.finish()
}

// A dead letter goes to another partition of its topic while its own has no
// leader: no step could be committed with it, and the lane would stand still.
func TestDeadLettersGoWhereThereIsALeader(t *testing.T) {
	for _, leaders := range [][]int32{{0, 0, 0}, {-1, -1, 0}, {-1, 0, 0}, {-1, -1, -1}} {
		want := max(0, slices.Index(leaders, 0))
		c := newCore(t, newGround(t), 1<<20, 1000)
		c.set.DeadLetters.Partitions = len32(leaders)
		c.brokers.leaders[c.set.DeadLetters.Name] = slices.Clone(leaders)
		c.ok(c.o.Targets.Refresh(t.Context(), c.set.DeadLetters.Name))
		c.request(0, 1) // no due time
		c.deliver(1)
		c.work()
		c.seal(10)
		if c.share == nil {
			t.Fatal("nothing is sealed")
		}
		last := c.share.Records[len(c.share.Records)-1]
		if last.Topic != c.set.DeadLetters.Name || last.Partition != int32(want) {
			t.Errorf("leaders %v: the dead letter goes to %s/%d, want %d", leaders, last.Topic, last.Partition, want)
		}
	}
}

func len32[T any](s []T) int32 { return int32(len(s)) }
