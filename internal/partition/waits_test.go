package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
)

// fired seals and commits until nothing is left to seal, and returns how many emissions there were.
func (c *core) fired() (n int) {
	c.t.Helper()
	for range 10 {
		c.work()
		c.park()
		if c.seal(100); c.share != nil {
			n += len(c.share.Emissions)
			c.commit()
		}
		c.apply()
	}
	return n
}

// looking returns a core that has loaded everything and waits for requests.
func looking(t *testing.T) *core {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.load()
	c.work()
	return c
}

// A broker that holds back metadata blocks neither the lane, nor a scrape, nor a revocation.
// Emissions for known topics go on; the rest fires when the brokers answer.
func TestHeldBackMetadataDelaysNobody(t *testing.T) {
	c := looking(t)
	k, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(3, targetTopic, otherTopic))
	metadata := targets.NewMetadata(cl, targets.MetadataOptions{})
	c.brokers.leaders[otherTopic] = make([]int32, 3)
	c.ok(metadata.Refresh(t.Context(), otherTopic))
	answer := make(chan struct{})
	k.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		k.SleepControl(func() { <-answer })
		return nil, nil, false
	})
	c.o.Targets = metadata
	c.o.Health = targets.NewHealth(targets.HealthOptions{Targets: metadata, Logger: c.o.Logger})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, 2)
	for _, run := range []func(context.Context) error{metadata.Run, c.o.Health.Run} {
		go func() { _ = run(ctx); done <- struct{}{} }()
	}
	defer func() { cancel(); <-done; <-done }()
	c.acquire()
	c.load()
	c.work()
	c.schedule(1, -10)
	c.schedule(2, -10).Headers[1].Value = []byte(otherTopic)
	c.deliver(2)
	at := time.Now()
	if n := c.fired(); n != 1 {
		t.Errorf("%d emissions, want the one whose target is known", n)
	}
	c.s.keeper.parking.looked = time.Time{}
	c.ok(c.s.keeper.parking.expire()) // looks for the oldest
	if s := c.p.Status(); s.Parked != 1 {
		t.Errorf("%d timers are parked, want the one whose target is not known: %v", s.Parked, s.ParkedBy)
	}
	if s := c.p.Status(); s.OldestParked < 10*time.Millisecond || s.OldestParked > time.Minute || s.Overdue != 0 {
		t.Errorf("the parked one is overdue for %s, and others for %s", s.OldestParked, s.Overdue)
	}
	if took := time.Since(at); took > time.Second {
		t.Errorf("steps and a scrape took %s while brokers do not answer", took)
	}
	close(answer)
	for n := 0; n == 0; n = c.fired() {
		if time.Since(at) > 20*time.Second {
			t.Fatalf("not fired though the brokers answer: parked %v", c.parkedBy())
		}
	}
	c.s.keeper.parking.looked = time.Time{}
	c.ok(c.s.keeper.parking.expire())
	if s := c.p.Status(); s.OldestParked != 0 {
		t.Errorf("nothing is parked, and overdue for %s", s.OldestParked)
	}
}

// missingAfter is how long a topic must be missing until emissions for it become dead letters.
const missingAfter = 10 * time.Second

// However many missing topics requests name, only a few are looked up at a time. The others wait their turn, and a
// target that is just not known yet does not wait behind them. Each has its outcome.
func TestUnknownTargetsWaitInTurn(t *testing.T) {
	runs.NotRaced(t)
	const names, atATime = 2500, 1100 // 1,000 are examined, and some more are on their way out
	c := looking(t)
	_, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(3, targetTopic, otherTopic))
	c.brokers.leaders[otherTopic] = make([]int32, 3)
	var later atomic.Int64 // by how much the clock of targets was set ahead
	now := func() time.Time { return c.mono.Add(time.Duration(later.Load())) }
	c.o.Targets = targets.NewMetadata(cl, targets.MetadataOptions{Now: now})
	c.o.Health = targets.NewHealth(targets.HealthOptions{Targets: c.o.Targets, Logger: c.o.Logger, Now: now})
	c.o.Rules.Allow = func(string) bool { return true }
	c.o.Rules.Never = func(string) string { return "" }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.o.Targets.Run(ctx) }()
	defer func() { cancel(); <-done }()
	c.acquire()
	c.load()
	c.work()
	for i := range names {
		name := fmt.Sprint("gone-", i)
		c.schedule(i, -10).Headers[1].Value = []byte(name)
	}
	other := c.schedule(names, -10)
	other.Headers[1].Value = []byte(otherTopic)
	end := time.Now().Add(2 * time.Minute)
	round := func() {
		t.Helper()
		c.deliver(200)
		c.o.Health.Round(ctx, func(probe func()) { probe() })
		c.fired()
		c.s.keeper.parking.looked = time.Time{}
		c.ok(c.s.keeper.parking.expire())
		if n := len(c.parkedBy()); n > atATime {
			t.Fatalf("timers are parked for %d targets, want %d at most", n, atATime)
		}
		if n := len(c.o.Health.Unhealthy()); n > atATime {
			t.Fatalf("%d breakers, want %d at most", n, atATime)
		}
		if time.Now().After(end) {
			t.Fatalf("%d dead letters of %d, parked for %d targets, the one that exists fired: %v", len(c.dead), names,
				len(c.parkedBy()), c.emitted[other.Offset] != nil)
		}
	}
	for c.emitted[other.Offset] == nil { // no place becomes free in between
		round()
	}
	if len(c.dead) > 0 {
		t.Errorf("%d dead letters before their time", len(c.dead))
	}
	for len(c.dead) < names {
		var parked []string
		for to := range c.parkedBy() {
			parked = append(parked, to.Topic)
		}
		c.ok(c.o.Targets.Refresh(ctx, parked...))
		later.Add(int64(time.Second))
		round()
	}
}

// A topic that brokers do not know yet, or a partition that a topic does not have yet, is waited for: its timers fire
// when it exists, and become dead letters only if it was missing for long. Other timers do not wait.
func TestATargetThatIsMissingIsWaitedFor(t *testing.T) {
	for _, tc := range []struct {
		partition string // that a topic lacks; "": the topic is missing
		waits     time.Duration
		want      string
	}{
		{"", missingAfter - time.Second, "fired"},
		{"", missingAfter + time.Second, "dead"},
		{"3", missingAfter - 2*time.Second, "fired"},
		{"3", missingAfter + 10*time.Second, "dead"},
	} {
		c := looking(t)
		if tc.partition == "" {
			c.vanish(targetTopic)
		}
		c.look(0)
		mine := c.schedule(1, -10)
		if tc.partition != "" {
			mine.Headers = append(mine.Headers,
				kgo.RecordHeader{Key: waterclock.HeaderTargetPartition, Value: []byte(tc.partition)})
		}
		c.schedule(2, -10).Headers[1].Value = []byte(otherTopic)
		c.deliver(2)
		if n := c.fired(); n != 1 || len(c.dead) > 0 {
			t.Errorf("%d fired and %d dead at once, want the one with a target", n, len(c.dead))
		}
		for waited := time.Duration(0); waited < tc.waits; waited += time.Second {
			c.look(time.Second)
			c.fired()
		}
		c.appear(targetTopic, 4)
		for range 10 {
			c.look(2 * time.Second)
			c.fired()
		}
		if got := map[bool]string{true: "fired", false: "dead"}[c.emitted[mine.Offset] != nil]; got != tc.want ||
			len(c.emitted)+len(c.dead) != 2 {
			t.Errorf("%q missing for %s: %s, want %s; %d fired, %d dead", tc.partition, tc.waits, got, tc.want,
				len(c.emitted), len(c.dead))
		}
		c.finish()
	}
}

// If a breaker opens again, emissions that it had admitted are parked again, wherever they
// are: sealed, they would fail one more step.
func TestAdmittedFiringsHeedABreakerThatOpensAgain(t *testing.T) {
	for _, planned := range []bool{false, true} {
		t.Run(fmt.Sprint("planned ", planned), func(t *testing.T) {
			c := looking(t)
			p := timer.TopicPartition{Topic: targetTopic, Partition: 1}
			r := c.schedule(1, -10)
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: waterclock.HeaderTargetPartition, Value: []byte("1")})
			c.brokers.unresponsive[p] = true
			c.deliver(1)
			c.fired()
			if c.parkedBy()[p] != 1 {
				t.Fatalf("not parked: %v", c.parkedBy())
			}
			c.heal()
			c.look(breakerTime)
			c.park() // admitted
			if len(c.parkedBy()) > 0 {
				t.Fatal("nothing is admitted")
			}
			if planned {
				c.work()
			}
			c.o.Health.Trip(map[timer.TopicPartition]error{p: context.DeadlineExceeded})
			if n := c.fired(); n > 0 || c.parkedBy()[p] != 1 {
				t.Errorf("%d emissions to a target whose breaker is open, parked %v", n, c.parkedBy())
			}
			c.finish()
		})
	}
}

// breakerTime is longer than it takes until the first probe.
const breakerTime = 3 * time.Second

// Timers without a key that found every partition unhealthy go on when one of them is healthy again, or just answers,
// also after the next acquisition.
func TestNullKeysGoOnWithAnyPartition(t *testing.T) {
	for _, taken := range []bool{false, true} {
		t.Run(fmt.Sprint("taken ", taken), func(t *testing.T) {
			c := looking(t)
			for k := range int32(3) {
				c.brokers.unresponsive[timer.TopicPartition{Topic: targetTopic, Partition: k}] = true
			}
			for i := range 8 {
				r := c.schedule(i, -10)
				r.Headers = append(r.Headers,
					kgo.RecordHeader{Key: waterclock.HeaderTargetKeyNull, Value: []byte("true")})
			}
			c.deliver(8)
			for range 10 {
				c.fired()
				c.now += 7
				c.look(3 * time.Second) // several together count as a broker's death for a while
			}
			anyOf := timer.TopicPartition{Topic: targetTopic, Partition: timer.AnyPartition}
			if c.parkedBy()[anyOf] != 8 {
				t.Fatalf("parked: %v, want all for any partition", c.parkedBy())
			}
			delete(c.brokers.unresponsive, timer.TopicPartition{Topic: targetTopic, Partition: 2})
			if taken {
				c.acquire()
			}
			// Only one at first, in the window of that partition.
			for waited := time.Duration(0); waited < 10*time.Minute && len(c.emitted) == 0; waited += time.Second {
				c.look(time.Second)
				c.turn(0)
			}
			if len(c.emitted) != 1 || c.o.Health.Allow(timer.TopicPartition{Topic: targetTopic, Partition: 2}, nil) {
				t.Errorf("%d fire first, want one: what answers may be unhealthy", len(c.emitted))
			}
			for range 10 {
				c.look(time.Second)
				c.fired()
			}
			if len(c.emitted) != 8 {
				t.Errorf("%d of 8 fired though a partition answers: parked %v", len(c.emitted),
					c.parkedBy())
			}
			c.finish()
		})
	}
}

// A dead letter that was planned on the metadata of a target at one seal is checked again at the next.
func TestADeadLetterIsJudgedAtEachSeal(t *testing.T) {
	c := looking(t)
	c.vanish(targetTopic)
	for range 12 {
		c.look(time.Second)
	}
	c.schedule(1, -10)
	c.deliver(1)
	c.work()
	c.seal(10)
	if n := len(c.share.Records); c.share.Records[n-1].Topic != c.set.DeadLetters.Name {
		t.Fatal("no dead letter for a topic that is long missing")
	}
	c.appear(targetTopic, 3)
	c.look(0)
	c.abort()
	if c.fired() != 1 {
		t.Error("a dead letter for a topic that is there")
	}
	c.finish()
}

// Timers parked for a target that is healthy again pass in chunks, up to the last one.
func TestAllThatIsParkedPasses(t *testing.T) {
	runs.NotRaced(t)
	c := newCore(t, newSetup(t), 1<<30, roomy)
	const n = 3
	for i := range n {
		c.schedule(i, -5_000).Value = make([]byte, loadBytes*2/3) // a chunk has room for two
	}
	c.acquire() // all of these are in the log at the acquisition
	for range n {
		c.deliver(1)
		c.work()
		c.seal(1)
		c.commit()
		c.apply()
	}
	c.acquire()
	c.parkDue(c.now - 5_000)
	if c.park(); len(c.parkedBy()) != 1 {
		t.Errorf("not in chunks: %v", c.parkedBy())
	}
	if c.park(); len(c.parkedBy()) > 0 {
		t.Errorf("still parked: %v", c.parkedBy())
	}
	c.finish()
}

// A share is out that waits for a changelog partition which has lost its leader. The state says so, although nothing
// more can be sealed, and also when the share is returned for having held up its step.
func TestAPartitionDelayedByAMissingLeaderSaysSo(t *testing.T) {
	c := looking(t)
	changelog := c.o.Topics.Changelog.Name
	c.brokers.leaders[changelog] = []int32{0}
	c.ok(c.o.Targets.Refresh(t.Context(), changelog))
	c.p.life.SetState(ownership.Live)
	c.schedule(1, 1000)
	c.deliver(1)
	c.work()
	c.seal(100)
	share := c.share
	if s := c.p.Status(); share == nil || s.State != ownership.Live || s.Reason != "" {
		t.Fatalf("nothing is wrong yet: %v, %q, share %v", s.State, s.Reason, share)
	}
	stalled := func(when string) {
		t.Helper()
		if s := c.p.Status(); s.State != ownership.Stalled ||
			!strings.Contains(s.Reason, "no leader for "+changelog+"/0") {
			t.Errorf("%s: %v, %q", when, s.State, s.Reason)
		}
	}
	c.brokers.leaders[changelog] = []int32{-1}
	c.ok(c.o.Targets.Refresh(t.Context(), changelog))
	stalled("while the share is out")
	share.Held = map[timer.TopicPartition]error{{Topic: changelog}: errors.New("not acknowledged within 1.5s")}
	c.abort()
	stalled("when it was held up")
	c.brokers.leaders[changelog] = []int32{0}
	c.ok(c.o.Targets.Refresh(t.Context(), changelog))
	if s := c.p.Status(); s.State != ownership.Stalled || !strings.Contains(s.Reason, "takes no writes") {
		t.Errorf("with a leader that has not taken anything: %v, %q", s.State, s.Reason)
	}
	c.seal(100)
	c.commit()
	if s := c.p.Status(); s.State != ownership.Live {
		t.Errorf("when it was taken: %v, %q", s.State, s.Reason)
	}
}
