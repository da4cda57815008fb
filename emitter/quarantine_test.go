package emitter

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

// steady is a partition of a test that has a numbered step ready every few milliseconds, one after another. It seals an
// aborted step again. mu guards all fields.
type steady struct {
	lane    *testLane
	own     string // topic of its own records
	records int    // of a step
	token   Token
	emits   func() []Emission // nil: nothing
	// partition is of the offset
	partition int32

	mu       sync.Mutex
	out      bool
	gone     bool  // lost, or stopped
	n        int   // steps committed
	sizes    []int // records of each
	sealed   int
	commits  []time.Time
	held     map[timer.TopicPartition]error // of the last share that was returned
	metadata string
}

// steadily adds such a source to a lane.
func steadily(l *testLane, own string) *steady {
	s := &steady{lane: l, own: own, records: 1, token: fakeToken{}}
	l.roster.Add(s)
	return s
}

func (s *steady) Seal(_ string, room *Room) *Share {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out || s.gone {
		return nil
	}
	s.out = true
	s.sealed++
	n := min(s.records, room.Entries)
	room.Entries -= n
	sh := &Share{Token: s.token, Offset: Offset{Topic: "r", Partition: s.partition, At: int64(s.n),
		Metadata: s.metadata}}
	for i := range n {
		sh.Records = append(sh.Records, &kgo.Record{Topic: s.own, Value: fmt.Appendf(nil, "%d/%d", s.n, i)})
	}
	if s.emits != nil {
		sh.Emissions = s.emits()
	}
	sh.Done = func(o Outcome) { s.done(sh, o) }
	return sh
}

func (*steady) Wait() time.Duration { return maxSleep }

func (s *steady) done(sh *Share, o Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out, s.held, s.gone = false, sh.Held, s.gone || o == Lost
	if o == Committed {
		s.n++
		s.sizes = append(s.sizes, len(sh.Records))
		s.commits = append(s.commits, time.Now())
	}
	time.AfterFunc(5*time.Millisecond, s.lane.roster.Wake)
}

func (s *steady) committed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *steady) isHeld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held != nil
}

func (s *steady) setMetadata(m string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metadata = m
}

// gap returns the longest time between two commits since begun.
func (s *steady) gap(begun time.Time) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := begun
	for _, at := range append(slices.Clone(s.commits), time.Now()) {
		if at.After(begun) {
			longest = max(longest, at.Sub(last))
			last = at
		}
	}
	return longest
}

// runLane runs a lane until the test ends.
func runLane(t *testing.T, l *testLane) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := l.lanes.Run(ctx); err != nil {
			t.Errorf("lane ended with %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// silence makes a broker of kfake not answer produce requests for a source's own topic until end is called.
func silence(t *testing.T, c *kfake.Cluster, s *steady) (end func()) {
	t.Helper()
	over, unresponsive := make(chan struct{}), c.TopicInfo(s.own).TopicID
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case <-over:
			return nil, nil, false
		default:
		}
		c.KeepControl()
		if slices.ContainsFunc(r.(*kmsg.ProduceRequest).Topics,
			func(x kmsg.ProduceRequestTopic) bool { return x.TopicID == unresponsive }) {
			c.SleepControl(func() { <-over })
		}
		return nil, nil, false
	})
	end = sync.OnceFunc(func() { close(over) })
	t.Cleanup(end)
	return end
}

// The changelog of one partition has a leader and takes no writes: the partition leaves the
// steps, the others go on. When it takes writes again, and nothing else happens, its steps
// continue where they were.
func TestAPartitionThatHoldsUpStepsLeavesThem(t *testing.T) {
	refuses := func(e *kerr.Error) func(*testing.T, *kfake.Cluster, *steady) func() {
		return func(_ *testing.T, c *kfake.Cluster, s *steady) func() {
			return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: s.own, Err: e, Count: -1}).Remove
		}
	}
	for _, tc := range []struct {
		name  string
		fault func(*testing.T, *kfake.Cluster, *steady) (end func())
		dying bool // a broker that this test does not need was lost just now
	}{
		{"too few replicas", refuses(kerr.NotEnoughReplicas), false},
		{"too few replicas, noticed after the append", refuses(kerr.NotEnoughReplicasAfterAppend), false},
		{"an error that kgo does not repeat", refuses(kerr.UnknownServerError), false},
		{"a leader that says nothing", silence, false},
		{"too few replicas while a broker dies", refuses(kerr.NotEnoughReplicas), true},
		{"its offset is refused", func(_ *testing.T, _ *kfake.Cluster, s *steady) func() {
			s.setMetadata(offsetRefused)
			return func() { s.setMetadata("") }
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, l := fakeLaneOf(t, 2)
				if tc.dying {
					reach := &kafkatest.Reach{}
					reach.Lose("127.0.0.1:1")
					l.o.Leaders = reach
				}
				for i, topic := range []string{"log", "t"} {
					must(t, c.MoveTopicPartition(topic, 0, int32(i)))
				}
				unhealthy, healthy := steadily(l, "t"), steadily(l, "log")
				unhealthy.records = 300
				unhealthy.partition = 1
				runLane(t, l)
				await.Until(t, testLimit, "both commit",
					func() bool { return unhealthy.committed() > 3 && healthy.committed() > 3 })
				begun := time.Now()
				end := tc.fault(t, c, unhealthy)
				await.Until(t, testLimit, "the unhealthy one is held up", unhealthy.isHeld)
				before, at := healthy.committed(), time.Now()
				await.Until(t, testLimit, "some time passes", func() bool { return time.Since(at) > 2*time.Second })
				if gap := healthy.gap(begun); gap > 2*ownDeadline+time.Second {
					t.Errorf("the healthy one was silent for %s", gap)
				}
				if n := healthy.committed() - before; n < 20 {
					t.Errorf("the healthy one committed %d steps in 2 s", n)
				}
				was := unhealthy.committed()
				end()
				took := await.Until(t, testLimit, "the unhealthy one commits again",
					func() bool { return unhealthy.committed() > was+3 })
				if took > 2*ownDeadline+2*time.Second {
					t.Errorf("the unhealthy one commits again after %s", took)
				}
				await.Until(t, testLimit, "the quarantine is empty", func() bool {
					l.roster.mu.Lock()
					defer l.roster.mu.Unlock()
					return !l.roster.trying && len(inQuarantine(l.roster)) == 0 && len(l.roster.members) == 2
				})
				t.Logf("the healthy one was silent for %s, the unhealthy one committed %s after the end",
					healthy.gap(begun), took)
				inOrder(t, unhealthy)
			})
		})
	}
}

// inOrder checks that a read_committed reader finds each step of a source once, in order.
func inOrder(t *testing.T, s *steady) {
	t.Helper()
	s.mu.Lock()
	s.gone = true // nothing more is sealed
	s.mu.Unlock()
	await.Until(t, testLimit, "no share is out", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.out
	})
	cl, err := kgo.NewClient(append(slices.Clone(s.lane.o.Client), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.own: {0: kgo.NewOffset().AtStart()}}))...)
	must(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	for n, size := range s.sizes {
		for i := 0; i < size; {
			fs := cl.PollRecords(ctx, size-i)
			if fs.IsClientClosed() || ctx.Err() != nil {
				t.Fatalf("step %d: only %d of %d records are there", n, i, size)
			}
			for _, r := range fs.Records() {
				if want := fmt.Sprintf("%d/%d", n, i); string(r.Value) != want {
					t.Fatalf("offset %d holds %q, want %q", r.Offset, r.Value, want)
				}
				i++
			}
		}
	}
}

// A partition that is too slow for a full step holds up the others once. Then it goes on apart from them, at its own
// pace.
func TestASlowPartitionStaysApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLaneOf(t, 2)
		for i, topic := range []string{"log", "t"} {
			must(t, c.MoveTopicPartition(topic, 0, int32(i)))
		}
		over, slow := make(chan struct{}), c.TopicInfo("t").TopicID
		t.Cleanup(func() { close(over) })
		c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			for _, x := range r.(*kmsg.ProduceRequest).Topics {
				if x.TopicID == slow && len(x.Partitions[0].Records) > 4000 {
					c.SleepControl(func() {
						select {
						case <-over:
						case <-time.After(2 * ownDeadline):
						}
					})
				}
			}
			return nil, nil, false
		})
		unhealthy, healthy := steadily(l, "t"), steadily(l, "log")
		unhealthy.records = 5000
		runLane(t, l)
		await.Until(t, testLimit, "the slow one is held up", unhealthy.isHeld)
		begun, n := time.Now(), unhealthy.committed()
		await.Until(t, testLimit, "some time passes", func() bool { return time.Since(begun) > 6*time.Second })
		if gap := healthy.gap(begun); gap > ownDeadline {
			t.Errorf("the healthy one was silent for %s", gap)
		}
		if unhealthy.committed() < n+3 {
			t.Errorf("the slow one committed %d steps", unhealthy.committed()-n)
		}
		inOrder(t, unhealthy)
	})
}

// A source that holds up steps again and again is kept longer each time. Failures of long
// ago are forgotten.
func TestQuarantineLastsLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := oneLane(Options{Logger: slog.New(slog.DiscardHandler)})
		l.roster.trying = true // the test itself makes the tries
		s := &steady{lane: l}
		l.roster.Add(s)
		share := &Share{Token: fakeToken{}, proven: true}
		for i, want := range []time.Duration{0, probationMin, 2 * probationMin, 4 * probationMin} {
			l.holdUp(t.Context(), s, share)
			l.lanes.quarantine.sealed(share.member, true, true)
			share.member.claimed = false
			begun := time.Now()
			for l.lanes.quarantine.judge([]*Share{share}, nil, nil); len(
				inQuarantine(l.roster)) > 0; l.lanes.quarantine.judge([]*Share{share}, nil, nil) {
				time.Sleep(10 * time.Millisecond)
			}
			if got := time.Since(begun); got != want {
				t.Errorf("stay %d: released after %s, want %s", i, got, want)
			}
		}
		time.Sleep(quarantineMemory)
		l.holdUp(t.Context(), s, share)
		if got := share.member.in.probation; got != 0 {
			t.Errorf("long after the last one the probation is %s", got)
		}
		if l.roster.Remove(s); len(inQuarantine(l.roster))+len(l.roster.members) != 0 {
			t.Error("not forgotten when it is removed")
		}
	})
}

// If the transaction of a try cannot be ended, no other tries follow that cannot be ended
// either. The next one comes when it is ended, or after a while.
func TestATryWaitsForTheEndOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ends := range []bool{true, false} {
			st := &quarantined{heldSince: time.Now(), entries: quarantineEntries}
			time.Sleep(time.Minute)
			end, failed := make(chan struct{}), time.Now()
			st.fails(end)
			want := time.Minute / unendedShare
			if ends {
				want = 10 * time.Second
				time.AfterFunc(want, func() { close(end) })
			}
			for !st.due(time.Now()) {
				time.Sleep(quarantineTick)
			}
			if got := time.Since(failed); got < want || got > want+quarantineTick {
				t.Errorf("ended %v: tried again after %s, want %s", ends, got, want)
			}
		}
	})
}

// The pause grows with the time for which a source has been unhealthy, not with the time for which it has gone on in
// the quarantine at its own pace.
func TestPauseAfterALongTimeInTheQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := oneLane(Options{Logger: slog.New(slog.DiscardHandler)})
		l.roster.trying = true // the test itself makes the tries
		s := &steady{lane: l}
		l.roster.Add(s)
		share := &Share{Token: fakeToken{}}
		l.holdUp(t.Context(), s, share)
		st := share.member.in
		st.probation = 24 * time.Hour
		try := func(held bool) (pause time.Duration) {
			share.Held, share.proven = nil, !held
			if held {
				share.hold(timer.TopicPartition{Topic: "t", Partition: 0}, kerr.NotEnoughReplicas)
			}
			failed := time.Now()
			l.lanes.quarantine.judge([]*Share{share}, nil, nil)
			for !st.due(time.Now()) {
				time.Sleep(quarantinePause)
			}
			return time.Since(failed)
		}
		time.Sleep(time.Minute)
		if got := try(true); got < time.Minute/quarantineShare {
			t.Errorf("unhealthy for a minute, tried again after %s", got)
		}
		try(false)
		time.Sleep(time.Hour)
		if got := try(true); got > quarantinePause {
			t.Errorf("healthy for an hour, tried again after %s", got)
		}
	})
}
