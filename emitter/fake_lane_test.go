package emitter

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

type fakeToken struct{ Token }

func (fakeToken) Err() error              { return nil }
func (fakeToken) Member() (Member, error) { return Member{ID: "m", Generation: 1}, nil }

const (
	offsetRefused      = "refused"
	offsetUnresponsive = "silent"
)

// fakeLane returns a lane with one client on kfake, with topics log, t, good and r of one
// partition each, in the bubble of the test, which runs its steps.
func fakeLane(t *testing.T) (*kfake.Cluster, *testLane) { return fakeLaneOf(t, 1) }

// fakeLaneOf is fakeLane with the given number of brokers.
func fakeLaneOf(t *testing.T, brokers int) (*kfake.Cluster, *testLane) {
	return fakeLanes(t, brokers, 1)
}

// fakeLanes returns the first of the given number of lanes. An offset commit with metadata
// offsetRefused is refused, one with offsetUnresponsive is not answered.
func fakeLanes(t *testing.T, brokers, lanes int) (*kfake.Cluster, *testLane) {
	t.Helper()
	c, opts, cl := kafkatest.Bubble(t, brokers, "log", "t", "good", "r")
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	c.ControlKey(int16(kmsg.TxnOffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.TxnOffsetCommitRequest)
		if m := req.Topics[0].Partitions[0].Metadata; m != nil && *m == offsetUnresponsive {
			c.SleepControl(func() { <-over })
		}
		resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		for _, rt := range req.Topics {
			x := kmsg.NewTxnOffsetCommitResponseTopic()
			x.Topic = rt.Topic
			for _, p := range rt.Partitions {
				y := kmsg.NewTxnOffsetCommitResponseTopicPartition()
				y.Partition = p.Partition
				if p.Metadata != nil && *p.Metadata == offsetRefused {
					y.ErrorCode = kerr.UnknownTopicOrPartition.Code
				}
				x.Partitions = append(x.Partitions, y)
			}
			resp.Topics = append(resp.Topics, x)
		}
		return resp, nil, true
	})
	metadata := targets.NewMetadata(cl, targets.MetadataOptions{})
	l := oneLane(Options{Client: opts, Admin: cl, Group: "g", Process: "p", Lanes: lanes, TransactionalIDs: 2,
		TransactionTimeout: 30 * time.Second,
		Targets:            metadata,
		Logger:             slog.New(slog.NewTextHandler(t.Output(), nil)),
		Metrics:            NewMetrics(prometheus.NewRegistry())})
	t.Cleanup(l.lanes.close)
	return c, l
}

// fakeSource offers shares until they are committed; ErrUnhealthy emissions are dropped.
type fakeSource struct {
	ems      func() []Emission // nil: there are none
	check    func() error      // nil: every step may be committed
	told     chan Outcome      // gets the outcomes, if not nil
	metadata string
	outcomes []Outcome
	last     *Share
}

func (f *fakeSource) Seal(step string, room *Room) *Share {
	room.Entries--
	sh := &Share{Token: fakeToken{}, Offset: Offset{Topic: "r", Metadata: f.metadata},
		Records: []*kgo.Record{{Topic: "log", Key: []byte("k"), Value: []byte(step)}}}
	if f.ems != nil {
		sh.Emissions = f.ems()
	}
	if f.check != nil {
		sh.Check = func(partlog.Epoch) error { return f.check() }
	}
	f.last = sh
	sh.Done = func(o Outcome) {
		if f.told != nil {
			f.told <- o
			return
		}
		f.outcomes = append(f.outcomes, o)
	}
	return sh
}

func (*fakeSource) Wait() time.Duration { return maxSleep }

// suspects returns a source with n emissions to topic t, each of which goes alone until it
// is cleared.
func suspects(n int) *fakeSource {
	s, cleared := new(fakeSource), make([]bool, n)
	s.ems = func() (es []Emission) {
		for i := range cleared {
			cleared[i] = cleared[i] || s.last != nil && s.last.Emissions[i].Cleared
			es = append(es, Emission{Record: &kgo.Record{Topic: "t", Value: fmt.Append(nil, i)}, Seq: int64(i),
				Alone: !cleared[i]})
		}
		return es
	}
	return s
}

// alone returns how many emissions of the last share were alone and are not cleared.
func (f *fakeSource) alone() (n int) {
	for _, e := range f.last.Emissions {
		if e.Alone && !e.Cleared {
			n++
		}
	}
	return n
}

// Suspects are written one by one. Many of them take long. Their target does not become unhealthy because of that, and
// a step without time for all of them still makes progress, however many it can write on this machine.
func TestManySuspectsTripNoTarget(t *testing.T) {
	for name, tc := range map[string]struct {
		n    int
		each time.Duration
	}{
		"three replicas":     {250, 15 * time.Millisecond},
		"more than a step's": {12, aloneDeadline / 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, l := fakeLane(t)
				c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
					c.KeepControl()
					c.SleepControl(func() { time.Sleep(tc.each) })
					return nil, nil, false
				})
				s := suspects(tc.n)
				l.roster.Add(s)
				alone, outcome := tc.n, Outcome(0)
				for tries := 0; outcome != Committed && tries < tc.n; tries++ {
					_, err := l.step(t.Context())
					for _, e := range s.last.Emissions {
						if e.Err != nil || e.Suspect {
							t.Errorf("blamed: %v, suspect again %v", e.Err, e.Suspect)
						}
					}
					if !l.o.Health.AllHealthy() {
						t.Errorf("unhealthy: %v", l.o.Health.Unhealthy())
					}
					outcome = s.outcomes[len(s.outcomes)-1]
					left := s.alone()
					t.Logf("%v, %d of %d are left, %v", outcome, left, alone, err)
					if outcome == Aborted && err == nil && left == alone {
						t.Error("a step that is to be sealed again at once has cleared nobody")
					}
					alone = left
				}
				if outcome != Committed {
					t.Errorf("not committed: %v", s.outcomes)
				}
				if len(s.outcomes) == 1 && tc.each*time.Duration(tc.n) > aloneDeadline {
					t.Errorf("a step goes on for longer than %s with what is alone", aloneDeadline)
				}
			})
		})
	}
}

// If a source has suspects, no source after it is in the same step. Those are in the next
// one.
func TestSuspectsOfOneSourceAreEnoughForAStep(t *testing.T) {
	l := oneLane(Options{})
	s := []*fakeSource{suspects(1), suspects(1)}
	for _, s := range s {
		l.roster.Add(s)
	}
	<-l.roster.wake // from Add
	first := l.seal("first")
	if n := len(first); n != 1 || s[0].last == nil || s[1].last != nil {
		t.Errorf("%d sources with suspects in one step", n)
	}
	if len(l.roster.wake) == 0 {
		t.Error("nobody wakes the lane for the other one")
	}
	if n := len(l.seal("second")); n != 1 || s[1].last == nil {
		t.Errorf("the other one is not in the next step, but %d are", n)
	}
}

// slowToBuffer is a client's hook: buffering a record of the topic takes this long.
type slowToBuffer struct {
	topic string
	takes time.Duration
}

// OnProduceRecordBuffered implements kgo.HookProduceRecordBuffered.
func (s slowToBuffer) OnProduceRecordBuffered(r *kgo.Record) {
	if r.Topic == s.topic {
		time.Sleep(s.takes)
	}
}

// The time of a target starts when emissions are handed to it. This process may have had no processor before that, or
// during that. The step's context says nothing about a target either.
func TestATargetIsNotBlamedForOurOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := fakeLane(t)
		l.o.Client = append(l.o.Client, kgo.WithHooks(slowToBuffer{"t", targets.EmissionDeadline + watchTick}))
		s := &fakeSource{ems: func() []Emission {
			return []Emission{{Record: &kgo.Record{Topic: "t",
				Value: []byte("x")}}}
		}}
		l.roster.Add(s)
		if _, err := l.step(t.Context()); err != nil || s.outcomes[0] != Committed || !l.o.Health.AllHealthy() {
			t.Errorf("%v, %v, unhealthy %v", err, s.outcomes, l.o.Health.Unhealthy())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		if p := newPatience(ctx); targets.Trips(p.Err()) {
			t.Errorf("a target is blamed for the step's end: %v", p.Err())
		}
		p := newPatience(t.Context())
		if p.Err() != nil {
			t.Errorf("patience is over at once: %v", p.Err())
		}
		if p.lose(); !targets.Trips(p.Err()) {
			t.Errorf("a target is not blamed when its time is over: %v", p.Err())
		}
		<-p.Done()
	})
}

// If a target partition answers with an error that is neither final nor known to be temporary, it must not hold up the
// lane.
func TestUnknownErrorOfATarget(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.UnknownServerError, kerr.CorruptMessage, kerr.UnsupportedForMessageFormat,
		kerr.ThrottlingQuotaExceeded, kerr.NotEnoughReplicas} {
		t.Run(e.Message, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, l := fakeLane(t)
				c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: e, Count: -1})
				s := &fakeSource{ems: func() (es []Emission) {
					es = append(es, Emission{Record: &kgo.Record{Topic: "good", Value: []byte("x")}})
					if l.o.Health.Allow(timer.TopicPartition{Topic: "t", Partition: 0}, nil) {
						es = append(es, Emission{Record: &kgo.Record{Topic: "t", Value: []byte("y")}, Seq: 1})
					}
					return es
				}}
				l.roster.Add(s)
				for range 4 {
					_, err := l.step(context.Background())
					if s.outcomes[len(s.outcomes)-1] == Committed {
						t.Logf("committed after %v", s.outcomes)
						return
					}
					t.Logf("%v; blamed: %v", err, s.last.Emissions[len(s.last.Emissions)-1].Err)
					if s.last.Emissions[len(s.last.Emissions)-1].Err != nil {
						return // blamed: the source takes it back or turns it into a dead letter
					}
				}
				t.Errorf("the lane does not get on: %v", s.outcomes)
			})
		})
	}
}

// A suspect whose target does not answer holds up the emissions after it. Their targets are not to blame, and it is not
// a broker's death.
func TestUnresponsiveSuspectTripsItsTargetAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		end, unresponsive := make(chan struct{}), c.TopicInfo("t").TopicID
		c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if req := r.(*kmsg.ProduceRequest); slices.ContainsFunc(
				req.Topics, func(x kmsg.ProduceRequestTopic) bool { return x.TopicID == unresponsive }) {
				c.SleepControl(func() { <-end })
			}
			return nil, nil, false
		})
		t.Cleanup(func() { close(end) })
		s := &fakeSource{ems: func() []Emission {
			return []Emission{
				{Record: &kgo.Record{Topic: "t", Value: []byte("x")}, Alone: true},
				{Record: &kgo.Record{Topic: "good", Value: []byte("y")}, Seq: 1},
			}
		}}
		l.roster.Add(s)
		_, err := l.step(t.Context())
		if l.o.Health.Allow(timer.TopicPartition{Topic: "t", Partition: 0}, nil) ||
			!l.o.Health.Allow(timer.TopicPartition{Topic: "good", Partition: 0}, nil) {
			t.Errorf("unhealthy: %v, step: %v", l.o.Health.Unhealthy(), err)
		}
	})
}

// Several targets take no writes, because they lack replicas, while all brokers are there. That is not a broker's death
// that would have to be waited for, and the others go on without them.
func TestSeveralTargetsWithoutReplicasDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		unhealthy := []string{"t", "r"}
		for _, topic := range unhealthy {
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1})
		}
		s := &fakeSource{ems: func() []Emission {
			es := []Emission{{Record: &kgo.Record{Topic: "good", Value: []byte("x")}}}
			for i, topic := range unhealthy {
				if l.o.Health.Allow(timer.TopicPartition{Topic: topic, Partition: 0}, nil) {
					es = append(es, Emission{Record: &kgo.Record{Topic: topic, Value: []byte("y")}, Seq: int64(i) + 1})
				}
			}
			return es
		}}
		l.roster.Add(s)
		for range 3 { // kgo gives up one of them first, if the machine is busy
			_, err := l.step(t.Context())
			if s.outcomes[len(s.outcomes)-1] == Committed {
				return
			}
			t.Log(err)
		}
		t.Errorf("what goes to others waits: %v, unhealthy %v", s.outcomes, l.o.Health.Unhealthy())
	})
}
