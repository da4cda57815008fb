package partition

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/emitter"
)

// hold aborts the share that is out: it held up its step, for this partition.
func (c *core) hold(topic string, partition int32) {
	c.share.Held = map[emitter.TargetPartition]error{{Topic: topic, Partition: partition}: kerr.NotEnoughReplicas}
	c.abort()
}

// A changelog that takes no writes stalls its partition, which says why; the same
// entries are sealed again, and the first commit ends it.
func TestHeldUpUntilACommit(t *testing.T) {
	c := newCore(t, newGround(t), 1, 1<<20, 1000)
	c.p.state.Store(int32(Live))
	c.schedule(1, 10)
	c.deliver(1)
	c.work(0)
	for range 3 {
		if c.seal(10); c.share == nil || len(c.share.Records) != 2 {
			t.Fatalf("sealed %+v, want a timer and a checkpoint", c.share)
		}
		c.hold(c.set.Changelog.Name, 0)
		if s := c.p.Status(); s.State != Stalled || !strings.Contains(s.Reason, c.set.Changelog.Name+"/0 takes no writes") {
			t.Errorf("state %s, %q", s.State, s.Reason)
		}
	}
	c.seal(10)
	c.commit(true)
	if s := c.p.Status(); s.State != Live || s.Reason != "" {
		t.Errorf("state %s, %q behind a commit", s.State, s.Reason)
	}
}

// Dead letters that are not taken go to the next partition; when none takes any
// they are tried on their own.
func TestDeadLettersLeaveAPartitionThatTakesNone(t *testing.T) {
	c := newCore(t, newGround(t), 1, 1<<20, 1000)
	c.set.DeadLetters.Partitions = 3
	c.request(0, 1) // no due time
	c.deliver(1)
	c.work(0)
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

// A claim that its changelog does not take is offered again for as long as it
// takes, and the take says what it waits for.
func TestAClaimWaitsForItsChangelog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := &delaytopics.Set{Request: delaytopics.Topic{Name: "r"}, Changelog: delaytopics.Topic{Name: "r.changelog"}}
		p := New(Options{Topics: set, Token: &holder{}, Targets: emitter.NewTargets(nil, emitter.TargetOptions{}), Lane: emitter.NewLane(emitter.Options{}),
			Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
		p.joinLane()
		made := make(chan error, 1)
		go func() { // as claimBehind does, which reads the changelog in between
			for {
				o, err := p.makeClaim(t.Context(), &claim{p: p, done: make(chan emitter.Outcome, 1)})
				if err != nil || o == emitter.Committed {
					made <- err
					return
				}
			}
		}()
		synctest.Wait()
		for range 10 {
			share := p.Seal("step", &emitter.Room{Entries: 1, Bytes: 1})
			if share == nil {
				t.Fatal("the claim is not offered")
			}
			share.Held = map[emitter.TargetPartition]error{{Topic: set.Changelog.Name}: kerr.NotEnoughReplicas}
			share.Done(emitter.Aborted)
			if s := p.Status(); s.State != Taking || !strings.Contains(s.Reason, "r.changelog/0 takes no writes") {
				t.Errorf("state %s, %q", s.State, s.Reason)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		p.Seal("step", &emitter.Room{Entries: 1, Bytes: 1}).Done(emitter.Committed)
		if err := <-made; err != nil || p.Status().Reason != "" {
			t.Errorf("%v, %q", err, p.Status().Reason)
		}
	})
}

// A partition whose token is dead builds no share.
func TestADeadPartitionSealsNothing(t *testing.T) {
	c := newCore(t, newGround(t), 1, 1<<20, 1000)
	c.schedule(1, -10)
	c.deliver(1)
	c.work(0)
	c.o.Token.Refused(errors.New("lost"))
	if share := c.p.Seal("late", &emitter.Room{Entries: 10, Bytes: 1 << 20}); share != nil {
		t.Errorf("sealed %d records", len(share.Records))
	}
}
