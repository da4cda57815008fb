package emitter

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// soonUnreachable is well below every timeout after which an answer could be given up. unreachableLimit allows for a
// busy machine.
const soonUnreachable, unreachableLimit = 1500 * time.Millisecond, 20 * time.Second

func unreachableLane(t *testing.T) (*kfake.Cluster, *testLane, *kafkatest.Reach) {
	t.Helper()
	c, l := fakeLaneOf(t, 3)
	reach := &kafkatest.Reach{}
	l.o.Leaders, l.pool.clients = reach, make([]*txnClient, 3)
	return c, l, reach
}

// plainSource offers a share with one emission to good, and one to t as long as t can be reached.
func plainSource(l *testLane) *fakeSource {
	return &fakeSource{ems: func() []Emission {
		es := []Emission{{Record: &kgo.Record{Topic: "good", Value: []byte("x")}}}
		if to := (timer.TopicPartition{Topic: "t", Partition: 0}); !l.o.Leaders.Unreachable(to) {
			es = append(es, Emission{Record: &kgo.Record{Topic: to.Topic, Value: []byte("y")}, Seq: 1})
		}
		return es
	}}
}

// givesUp runs a step, and loses brokers or leaders once a request is held. The step is given up immediately, and the
// next one commits.
func givesUp(t *testing.T, l *testLane, s *fakeSource, held <-chan struct{}, lose func()) {
	t.Helper()
	l.roster.Add(s)
	done := make(chan error, 1)
	go func() { _, err := l.step(t.Context()); done <- err }()
	<-held
	lose()
	start := time.Now()
	l.lanes.ReachabilityChanged()
	if err := <-done; !errors.Is(err, errUnreachable) || s.outcomes[0] != Aborted {
		t.Errorf("%v, %v", err, s.outcomes)
	}
	if took := time.Since(start); took > soonUnreachable {
		t.Errorf("it took %s", took)
	}
	if _, err := l.step(t.Context()); err != nil || s.outcomes[1] != Committed {
		t.Errorf("%v, %v", err, s.outcomes)
	}
}

// coordinatorOf returns the ID of the step under way, and the address of its coordinator.
func (t *testLane) coordinatorOf() (id, addr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.under.current.id, t.under.current.addr()
}

// The IDs of a lane have coordinators on different brokers. An ID whose coordinator cannot be reached is skipped at
// once.
func TestIDsAreChosenByTheirCoordinators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, reach := unreachableLane(t)
		l.pool.prepare(t.Context())
		seats := make(map[string]bool)
		for _, c := range l.pool.clients {
			seats[c.addr()] = true
		}
		if len(seats) != 3 || seats[""] {
			t.Fatalf("coordinators %v of three IDs, want three brokers", seats)
		}
		gone := l.pool.clients[1].addr()
		reach.Lose(gone)
		l.lanes.ReachabilityChanged()
		s := plainSource(l)
		l.roster.Add(s)
		for range 6 {
			if _, err := l.step(t.Context()); err != nil || s.outcomes[len(s.outcomes)-1] != Committed {
				t.Fatalf("%v, %v", err, s.outcomes)
			}
		}
		for _, c := range l.pool.clients {
			if c.addr() == gone {
				t.Errorf("%s is in use, and its coordinator %s is unreachable", c.id, gone)
			}
		}
	})
}

// A step is given up if its coordinator becomes unresponsive, and the next one uses another coordinator.
func TestStepLeavesACoordinatorThatIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, reach := unreachableLane(t)
		held := hold(t, c, kmsg.AddPartitionsToTxn, func(kmsg.Request) bool { return true })
		givesUp(t, l, plainSource(l), held, func() {
			_, gone := l.coordinatorOf()
			reach.Lose(gone)
		})
	})
}

// A step that waits for leaders is also given up if its coordinator becomes unresponsive. Its records are aborted in
// the background.
func TestAbortLeavesACoordinatorThatIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, reach := unreachableLane(t)
		held, let := make(chan struct{}), make(chan struct{})
		answer := sync.OnceFunc(func() { close(let) })
		t.Cleanup(answer)
		var first atomic.Bool
		c.ControlKey(kmsg.Produce.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if first.CompareAndSwap(false, true) {
				c.SleepControl(func() { close(held); <-let })
			}
			return nil, nil, false
		})
		var id atomic.Pointer[string] // its end is not answered
		hold(t, c, kmsg.EndTxn,
			func(r kmsg.Request) bool { return r.(*kmsg.EndTxnRequest).TransactionalID == *id.Load() })
		givesUp(t, l, plainSource(l), held, func() {
			coordinator, gone := l.coordinatorOf()
			id.Store(&coordinator)
			reach.Lose(gone)
			time.AfterFunc(abortTimeout/2, answer)
		})
	})
}

// If the coordinator of a client becomes unresponsive while the client is being opened, the client is given up, and one
// with another coordinator is opened.
func TestOpeningLeavesACoordinatorThatIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, reach := unreachableLane(t)
		held := hold(t, c, kmsg.InitProducerID, func(kmsg.Request) bool { return true })
		l.pool.open(0)
		<-held
		l.pool.mu.Lock()
		for c := range l.pool.tied {
			reach.Lose(c.addr())
		}
		l.pool.mu.Unlock()
		start := time.Now()
		l.lanes.ReachabilityChanged()
		if err := l.pool.await(t.Context()); !errors.Is(err, errUnreachable) {
			t.Error(err)
		}
		l.pool.open(0)
		if err := l.pool.await(t.Context()); err != nil || l.pool.clients[0] == nil {
			t.Error(err)
		}
		if took := time.Since(start); took > soonUnreachable {
			t.Errorf("it took %s", took)
		}
	})
}

// Clients that must not begin again are replaced in the background. Steps go on with the others, however long that
// takes. A step waits only if no client is left.
func TestStepsDoNotWaitForOpenings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, _ := unreachableLane(t)
		l.pool.prepare(t.Context())
		let := make(chan struct{})
		answer := sync.OnceFunc(func() { close(let) })
		t.Cleanup(answer)
		c.ControlKey(kmsg.InitProducerID.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			c.SleepControl(func() { <-let })
			return nil, nil, false
		})
		s := plainSource(l)
		l.roster.Add(s)
		step := func() {
			t.Helper()
			if _, err := l.step(t.Context()); err != nil || s.outcomes[len(s.outcomes)-1] != Committed {
				t.Fatalf("%v, %v", err, s.outcomes)
			}
		}
		l.pool.clients[0].retire, l.pool.clients[1].retire = true, true
		start := time.Now()
		for range 5 {
			step()
		}
		if took := time.Since(start); took > answerTimeout/2 {
			t.Errorf("steps took %s", took)
		}
		l.pool.clients[2].retire = true
		time.AfterFunc(answerTimeout/10, answer)
		for range 5 {
			step()
		}
		if l.pool.serial > 9 {
			t.Errorf("%d transactional IDs were used", l.pool.serial)
		}
	})
}

// A step that has written to a leader which becomes unresponsive is given up immediately, and the next one leaves out
// that leader. So is a step that has written nothing yet: its coordinators may wait for that broker, and everything
// else in the step would wait with them, in vain.
func TestStepLeavesLeadersThatAreUnreachable(t *testing.T) {
	for name, key := range map[string]kmsg.Key{"nothing is written": kmsg.AddPartitionsToTxn,
		"it is written to": kmsg.Produce} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, l, reach := unreachableLane(t)
				unresponsive := c.TopicInfo("t").TopicID
				held := hold(t, c, key, func(r kmsg.Request) bool {
					p, produces := r.(*kmsg.ProduceRequest)
					return !produces || slices.ContainsFunc(p.Topics,
						func(x kmsg.ProduceRequestTopic) bool { return x.TopicID == unresponsive })
				})
				givesUp(t, l, plainSource(l), held,
					func() { reach.LoseLeader(timer.TopicPartition{Topic: "t", Partition: 0}) })
			})
		})
	}
}

// While a broker dies, the step waits for a target that does not answer, because its leader may itself be waiting. It
// does not wait for a target without a leader: everything else in the step would wait too.
func TestStepLeavesALeaderlessTargetWhileABrokerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, reach := unreachableLane(t)
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.NotEnoughReplicas, Count: -1})
		to := timer.TopicPartition{Topic: "t", Partition: 0}
		reach.Lose("127.0.0.1:1")
		reach.NoLeader = map[timer.TopicPartition]bool{to: true}
		s := plainSource(l)
		l.roster.Add(s)
		start := time.Now()
		_, err := l.step(t.Context())
		if err != nil || len(s.outcomes) != 1 || s.outcomes[0] != Aborted {
			t.Errorf("%v, %v", err, s.outcomes)
		}
		if took := time.Since(start); took > targets.BrokerDeath-2*time.Second {
			t.Errorf("it took %s", took)
		}
		if l.o.Health.Allow(to, nil) {
			t.Error("it is not held to be unhealthy")
		}
	})
}

// hold keeps the first such request from being answered until the test ends. held is closed when it has come.
func hold(t *testing.T, c *kfake.Cluster, key kmsg.Key, which func(kmsg.Request) bool) (held chan struct{}) {
	held = make(chan struct{})
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	var first atomic.Bool
	c.ControlKey(key.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if which(r) && first.CompareAndSwap(false, true) {
			c.SleepControl(func() { close(held); <-end })
		}
		return nil, nil, false
	})
	return held
}

// A target's leader waits for a broker that died, and takes no writes until that broker has left its in-sync replicas.
// The other partitions of the step have no replica there. The step leaves the target, and the next one goes without it.
func TestStepLeavesATargetThatWaitsForADeadBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, reach := unreachableLane(t)
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.NotEnoughReplicas, Count: -1})
		to := timer.TopicPartition{Topic: "t", Partition: 0}
		reach.Lose("127.0.0.1:1")
		reach.Burdened = map[timer.TopicPartition]bool{to: true}
		s := plainSource(l)
		l.roster.Add(s)
		start := time.Now()
		if _, err := l.step(t.Context()); !errors.Is(err, errUnreachable) {
			t.Error(err)
		}
		if took := time.Since(start); took > targets.BrokerDeath-2*time.Second {
			t.Errorf("it took %s", took)
		}
		if _, err := l.step(t.Context()); err != nil || s.outcomes[len(s.outcomes)-1] != Committed {
			t.Errorf("%v, %v", err, s.outcomes)
		}
	})
}
