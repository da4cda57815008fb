package partition

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
)

// hold aborts the share that is out, because this partition held up its step.
func (c *core) hold(topic string, partition int32) {
	c.share.Held = map[timer.TopicPartition]error{{Topic: topic, Partition: partition}: kerr.NotEnoughReplicas}
	c.abort()
}

// A changelog that takes no writes stalls its partition, which says why. The same entries are sealed again, and the
// first commit ends the stall.
func TestHeldUpUntilACommit(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.p.life.SetState(ownership.Live)
	c.schedule(1, 10)
	c.deliver(1)
	c.work()
	for range 3 {
		if c.seal(10); c.share == nil || len(c.share.Records) != 2 {
			t.Fatalf("sealed %+v, want a timer and a checkpoint", c.share)
		}
		c.hold(c.set.Changelog.Name, 0)
		if s := c.p.Status(); s.State != ownership.Stalled ||
			!strings.Contains(s.Reason, c.set.Changelog.Name+"/0 takes no writes") {
			t.Errorf("state %s, %q", s.State, s.Reason)
		}
	}
	c.seal(10)
	c.commit()
	if s := c.p.Status(); s.State != ownership.Live || s.Reason != "" {
		t.Errorf("state %s, %q behind a commit", s.State, s.Reason)
	}
}

// Dead letters that are not accepted go to the next partition. If none accepts them they are tried separately.
func TestDeadLettersLeaveAPartitionThatTakesNone(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.set.DeadLetters.Partitions = 3
	c.request(0, 1) // no due time
	c.deliver(1)
	c.work()
	for _, want := range []int32{0, 1, 2, 0, 0} {
		if c.seal(10); c.share == nil {
			t.Fatal("nothing is sealed")
		}
		last := c.share.Records[len(c.share.Records)-1]
		if last.Topic != c.set.DeadLetters.Name || last.Partition != want {
			t.Errorf("the dead letter goes to %s/%d, want %d", last.Topic, last.Partition, want)
		}
		c.hold(last.Topic, last.Partition)
	}
}

// A partition whose token is dead builds no share.
func TestADeadPartitionSealsNothing(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.schedule(1, -10)
	c.deliver(1)
	c.work()
	c.o.Token.Refused(errors.New("lost"))
	if share := c.asked.Seal("late", &emitter.Room{Entries: 10, Bytes: 1 << 20}); share != nil {
		t.Errorf("sealed %d records", len(share.Records))
	}
}
