package partition

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// If no partition of a target has a leader, the target is unhealthy like any other. An emission with a
// null key, which may go to any partition, must not hold up requests or emissions for other targets. It
// goes on when one partition is healthy.
func TestNullKeyWithoutAnyLeaderDelaysNobody(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
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
	c.commit()
	c.apply()
	if c.seal(100); c.share != nil {
		t.Fatalf("sealed a firing that has nowhere to go: %+v", c.share)
	}
	c.park()
	anyOf := timer.TopicPartition{Topic: targetTopic, Partition: timer.AnyPartition}
	if c.parkedBy()[anyOf] != 1 {
		t.Fatalf("not parked: %v", c.parkedBy())
	}
	c.brokers.leaders[targetTopic][1] = 0
	c.look(time.Second)
	c.park()
	c.work()
	if c.seal(100); c.share == nil || len(c.share.Emissions) != 1 || c.share.Emissions[0].Record.Partition != 1 {
		t.Fatalf("not sent to the partition that has a leader again: %+v", c.share)
	}
	c.commit()
	c.finish()
}

// A dead letter goes to another partition of its topic while its own has no leader. Otherwise no step
// could be committed with it, and the lane would stand still.
func TestDeadLettersGoToAPartitionWithALeader(t *testing.T) {
	for _, leaders := range [][]int32{{0, 0, 0}, {-1, -1, 0}, {-1, 0, 0}, {-1, -1, -1}} {
		want := max(0, slices.Index(leaders, 0))
		c := newCore(t, newSetup(t), 1<<20, 1000)
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

// A producer sends a hash as the number of a partition. Emissions for partitions that do not exist
// share one breaker and go on together. They become dead letters once the brokers have said for long
// enough that there are no such partitions. Other emissions for the topic are not affected.
func TestPartitionsThatAreNotThere(t *testing.T) {
	const few, many = 200, 20_000
	c := newCore(t, newSetup(t), 64<<20, 100_000)
	c.look(0)
	c.load()
	c.work()
	for i := range few {
		r := c.schedule(i, -10)
		r.Headers = append(
			r.Headers, kgo.RecordHeader{Key: waterclock.HeaderTargetPartition,
				Value: []byte(strconv.Itoa(1_000_000 + i))})
	}
	c.schedule(few, -10)
	c.deliver(few + 1)
	c.work()
	round := func() {
		for range 3 {
			if c.seal(100_000); c.share != nil {
				c.commit()
			}
			c.apply()
			c.park()
		}
	}
	round()
	beyond := timer.TopicPartition{Topic: targetTopic, Partition: timer.Beyond}
	if n := c.parkedBy()[beyond]; n != few || len(c.parkedBy()) != 1 {
		t.Errorf("parked: %v, want %d for %v", c.parkedBy(), few, beyond)
	}
	if c.emitted[int64(few)] == nil {
		t.Error("what goes to a partition that is there is held")
	}
	for i := range int32(many) {
		c.p.route(&timer.Target{Topic: targetTopic, Partition: 2_000_000 + i}, nil)
	}
	if n := len(c.o.Health.Unhealthy()); n != 1 {
		t.Errorf("%d breakers, want one for all that is not there", n)
	}
	for range 15 {
		c.look(time.Second)
		round()
	}
	dead := 0
	for _, n := range c.dead {
		dead += n
	}
	if dead != few || len(c.parkedBy()) > 0 {
		t.Errorf("%d dead letters of %d, parked: %v", dead, few, c.parkedBy())
	}
}
