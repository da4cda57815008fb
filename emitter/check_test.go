package emitter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
)

// guarded is a source with a Fence. It offers one share at a time and nothing once it is refused.
type guarded struct {
	name    string
	refuse  bool
	offsets []int64
	leaders []partlog.Epoch
	emits   string // a target, if not empty
	begun   int    // commits
	outcome []Outcome
}

func (g *guarded) Seal(step string, _ *Room) *Share {
	if len(g.outcome) > 0 && g.refuse {
		return nil
	}
	sh := &Share{Token: fakeToken{}, Offset: Offset{Topic: "r"}}
	for i := range 3 {
		sh.Records = append(sh.Records,
			&kgo.Record{Topic: "log", Key: fmt.Append(nil, g.name, i), Value: []byte(step), Offset: -1})
	}
	sh.Check = func(leader partlog.Epoch) error {
		g.leaders = append(g.leaders, leader)
		for _, r := range sh.Records {
			g.offsets = append(g.offsets, r.Offset)
		}
		if g.refuse {
			return errors.New("no")
		}
		return nil
	}
	sh.Committing = func() { g.begun++ }
	if g.emits != "" {
		sh.Emissions = []Emission{{Record: &kgo.Record{Topic: g.emits, Value: []byte("v")}}}
	}
	sh.Done = func(o Outcome) { g.outcome = append(g.outcome, o) }
	return sh
}

func (*guarded) Wait() time.Duration { return maxSleep }

// If a share refuses a step at the last moment, when the offsets of its records are known, the step is aborted. The
// others are sealed again, without a pause.
func TestAShareThatRefusesAbortsTheStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := fakeLane(t)
		good, bad := &guarded{name: "good"}, &guarded{name: "bad", refuse: true}
		l.roster.Add(good)
		l.roster.Add(bad)
		for range 2 {
			if worked, err := l.step(t.Context()); !worked || err != nil {
				t.Fatalf("worked %v, %v", worked, err)
			}
		}
		if want := []Outcome{Aborted, Committed}; !slices.Equal(good.outcome, want) ||
			!slices.Equal(bad.outcome, want[:1]) {
			t.Errorf("outcomes %v and %v", good.outcome, bad.outcome)
		}
		if good.begun != 1 || bad.begun != 0 {
			t.Errorf("%d and %d commits begun, want one of the good share", good.begun, bad.begun)
		}
		for i, at := range good.offsets {
			if at < 0 || i%3 > 0 && at != good.offsets[i-1]+1 {
				t.Errorf("offsets seen: %v", good.offsets)
			}
		}
	})
}

// Check is told the epoch of the leader that has taken the records. If a connection to that broker fails, kgo sends
// them again without asking who leads, and they may be taken by a leader that the client has not heard of.
func TestCheckIsToldTheLeader(t *testing.T) {
	for name, fail := range map[string]func(*kfake.Cluster, *dials){
		"a connection breaks": func(c *kfake.Cluster, _ *dials) {
			c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				return nil, errors.New("the connection breaks"), true
			})
		},
		"none can be opened": func(c *kfake.Cluster, d *dials) {
			var announced, refused atomic.Bool
			c.ControlKey(int16(kmsg.AddPartitionsToTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
				announced.Store(true) // the next one is for records
				return nil, nil, false
			})
			d.refuse = func() error {
				if !announced.Load() || refused.Swap(true) {
					return nil
				}
				// as dialer.DialPatiently says it
				return &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, l := fakeLane(t)
				d := watchDials(l)
				s := &guarded{name: "s"}
				l.roster.Add(s)
				step := func() partlog.Epoch {
					t.Helper()
					if worked, err := l.step(t.Context()); !worked || err != nil {
						t.Fatalf("worked %v, %v", worked, err)
					}
					return s.leaders[len(s.leaders)-1]
				}
				first := step()
				step() // with the other transactional ID
				must(t, c.MoveTopicPartition("log", 0, 0))
				time.Sleep(2 * time.Minute) // kgo closes unused connections
				fail(c, d)
				if got := step(); first == 0 || got != 0 {
					t.Errorf("epoch %d, and %d where a connection failed, want none", first, got)
				}
				time.Sleep(6 * time.Minute) // kgo's metadata gets old
				if got := step(); got != first+1 {
					t.Errorf("epoch %d under the next leader, want %d", got, first+1)
				}
			})
		})
	}
}

// A connection to another broker says nothing about the one that has taken the records.
func TestCheckIsToldTheLeaderIfAnotherBrokerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLaneOf(t, 2)
		for topic, to := range map[string]int32{"log": 0, "t": 1} {
			must(t, c.MoveTopicPartition(topic, 0, to))
		}
		s := &guarded{name: "s", emits: "t"}
		l.roster.Add(s)
		c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			if c.CurrentNode() != 1 {
				c.KeepControl()
				return nil, nil, false
			}
			return nil, errors.New("the connection breaks"), true
		})
		if worked, err := l.step(t.Context()); !worked || err != nil || s.leaders[0] == 0 {
			t.Errorf("worked %v, %v, under leader epochs %v", worked, err, s.leaders)
		}
	})
}

// A share whose records were all acknowledged learns where they stand, although a target has the step aborted.
// Otherwise its partition would have to look, and all others of the step with it.
func TestAnAbortedStepIsFencedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		s := &guarded{name: "s", emits: "t"}
		l.roster.Add(s)
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.InvalidRecord, Count: -1})
		if worked, _ := l.step(t.Context()); !worked || len(s.leaders) != 1 || s.outcome[0] != Aborted || s.begun != 0 {
			t.Errorf("worked %v, fenced %d times, outcomes %v, %d commits begun", worked, len(s.leaders),
				s.outcome, s.begun)
		}
	})
}
