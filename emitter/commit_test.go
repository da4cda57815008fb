package emitter

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

// oneRecord returns a share of one record for one of the service's own topics.
func oneRecord(topic string) *Share {
	return &Share{Token: fakeToken{}, Offset: Offset{Topic: "r"},
		Records: []*kgo.Record{{Topic: topic, Value: []byte("x")}}, Done: func(Outcome) {}}
}

// commitOne runs a step of such a share.
func commitOne(t *testing.T, l *testLane) error {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return (&transaction{lane: l.Lane, shares: []*Share{oneRecord("log")}}).commit(ctx)
}

// begins makes the client of a slot begin the next step.
func begins(l *testLane, slot int) {
	for _, c := range l.pool.clients {
		if c != nil {
			c.used = time.Now()
		}
	}
	l.pool.clients[slot].used = time.Time{}
}

// eachCommits makes each client of a lane commit a step.
func eachCommits(t *testing.T, l *testLane) {
	t.Helper()
	for slot := range l.pool.clients {
		begins(l, slot)
		must(t, commitOne(t, l))
	}
}

// For the broker the last transaction of an ID is not over, because a leader died before it got the marker. The step
// takes a fresh ID, immediately.
func TestABusyIDIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		l.pool.prepare(t.Context())
		eachCommits(t, l)
		var busy []string
		for _, cl := range l.pool.clients {
			busy = append(busy, cl.id)
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, TxnID: cl.id,
				Err: kerr.ConcurrentTransactions, Count: -1})
		}
		begun := time.Now()
		eachCommits(t, l)
		if took := time.Since(begun); took > 6*time.Second {
			t.Errorf("%d steps took %s", len(l.pool.clients), took)
		}
		for i, cl := range l.pool.clients {
			if cl.id == busy[i] {
				t.Errorf("%s is still in use", cl.id)
			}
		}
	})
}

// The coordinator leaves every ID in doubt: a step uses up one fresh ID and ends. It does not go on making others.
func TestABusyCoordinatorUsesUpFewIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: kerr.ConcurrentTransactions, Count: -1})
		begun := time.Now()
		if err := commitOne(t, l); err == nil {
			t.Error("committed")
		}
		if took := time.Since(begun); took > 3*time.Second || l.pool.serial > 4 {
			t.Errorf("ended after %s with %d transactional IDs, want 4 at most", took, l.pool.serial)
		}
	})
}

// A step ends soon, whatever a coordinator leaves unanswered.
func TestAStepsWaitsAreBounded(t *testing.T) {
	const patience = answerTimeout + abortTimeout + ownDeadline + 4*time.Second
	for _, tc := range []struct {
		key kmsg.Key
		ill string // topic that takes no writes, so the step is aborted
	}{
		{key: kmsg.InitProducerID}, {key: kmsg.AddPartitionsToTxn}, {key: kmsg.TxnOffsetCommit}, {key: kmsg.EndTxn},
		{key: kmsg.EndTxn, ill: "t"},
	} {
		t.Run(tc.key.Name()+" "+tc.ill, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, l := fakeLane(t)
				over := make(chan struct{})
				t.Cleanup(func() { close(over) })
				c.ControlKey(tc.key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
					c.KeepControl()
					c.SleepControl(func() { <-over })
					return nil, nil, false
				})
				if tc.ill != "" {
					c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: tc.ill,
						Err: kerr.NotEnoughReplicas, Count: -1})
				}
				s := &fakeSource{ems: func() (es []Emission) {
					if tc.ill != "" {
						es = append(es, Emission{Record: &kgo.Record{Topic: tc.ill, Value: []byte("x")}})
					}
					return es
				}}
				if tc.key == kmsg.TxnOffsetCommit {
					s.metadata = offsetUnresponsive
				}
				l.roster.Add(s)
				begun := time.Now()
				_, err := l.step(t.Context())
				if took := time.Since(begun); took > patience {
					t.Errorf("the step took %s (%v)", took, err)
				} else if took < answerTimeout {
					t.Errorf("the step took only %s: it did not wait for %s", took, tc.key.Name())
				}
			})
		})
	}
}

// A connection to a coordinator breaks, and the broker accepts the next one and says nothing on it. A step ends as soon
// as with a coordinator that is connected and silent.
func TestNoStepWaitsForAConnectionToOpen(t *testing.T) {
	const patience = answerTimeout + abortTimeout + ownDeadline + 4*time.Second
	for name, aborts := range map[string]bool{"announce": false, "abort": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, l := fakeLane(t)
				conns := watchDials(l)
				over := make(chan struct{})
				t.Cleanup(func() { close(over) })
				l.pool.prepare(t.Context())
				cut := func() { // all except those over which records are sent
					c.ControlKey(int16(kmsg.ApiVersions), func(kmsg.Request) (kmsg.Response, error, bool) {
						c.KeepControl()
						c.SleepControl(func() { <-over })
						return nil, nil, false
					})
					conns.cut(kmsg.Produce)
				}
				s := &fakeSource{ems: func() (es []Emission) {
					if aborts {
						es = append(es, Emission{Record: &kgo.Record{Topic: "t", Value: []byte("x")}})
					}
					return es
				}}
				l.roster.Add(s)
				if aborts {
					var once sync.Once
					c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
						once.Do(cut)
						return nil, nil, false
					})
					c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.InvalidRecord, Count: -1})
				} else {
					cut()
				}
				begun := time.Now()
				_, err := l.step(t.Context())
				if took := time.Since(begun); took > patience || took < answerTimeout {
					t.Errorf("the step took %s, want %s to %s (%v)", took, answerTimeout, patience, err)
				}
			})
		})
	}
}

// marked gives a lane Markers.
func marked(t *testing.T, l *testLane) *repair.Markers {
	t.Helper()
	l.o.Markers = repair.NewMarkers(l.o.Admin, targets.NewMetadata(l.o.Admin, targets.MetadataOptions{}), "g",
		slog.New(slog.NewTextHandler(t.Output(), nil)), repair.NewMetrics(prometheus.NewRegistry()))
	return l.o.Markers
}

// A client cannot begin: the previous transaction was committed, and is still remembered as committed.
func TestTheFormerTransactionIsNotFiledAsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := fakeLane(t)
		k := marked(t, l)
		l.pool.prepare(t.Context())
		eachCommits(t, l)
		next := l.pool.clients[l.pool.order(time.Now())[0]]
		if err := next.BeginTransaction(); err != nil { // so that the lane cannot begin
			t.Fatal(err)
		}
		former := next.last
		if err := commitOne(t, l); err == nil {
			t.Fatal("the client begins twice")
		}
		if how, _ := k.Outcome(timer.TopicPartition{Topic: "log", Partition: 0}, former); how != repair.EndingCommit {
			t.Errorf("the former transaction is remembered as %s", how)
		}
	})
}

// The leader of a partition changes during a step: earlier records of its transactional ID there may lack their marker,
// so the ID is not used again.
func TestALeaderThatMovesWithinAStepRetiresTheID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLaneOf(t, 2)
		k := marked(t, l)
		l.pool.prepare(t.Context())
		eachCommits(t, l)
		leader := c.LeaderFor("log", 0)
		var moved atomic.Bool
		c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			if moved.CompareAndSwap(false, true) {
				c.SleepControl(func() {
					if err := c.MoveTopicPartition("log", 0, 1-leader); err != nil {
						t.Error(err)
					}
				})
			}
			return nil, nil, false
		})
		must(t, commitOne(t, l))
		if cl := l.pool.clients[l.pool.slot]; !l.pool.retired(cl) && !leadersMoved(cl.Client, l.o.Markers, cl.leaders) {
			t.Errorf("%s is to be begun again, epochs %v", cl.id, cl.leaders)
		}
		if ps := k.Doubtful(); len(ps) != 1 || ps[0] != (timer.TopicPartition{Topic: "log", Partition: 0}) {
			t.Errorf("in doubt: %v, want log/0", ps)
		}
	})
}

// The last transaction of a transactional ID is an abort, and the ID is retired before the broker's epochs run out.
func TestWhenAnIDIsRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := fakeLane(t)
		for _, tc := range []struct {
			name    string
			c       txnClient
			how     repair.Ending
			retired bool
		}{
			{"a commit", txnClient{last: repair.Producer{ID: 1, Epoch: 7}}, repair.EndingCommit, false},
			{"an abort", txnClient{last: repair.Producer{ID: 1, Epoch: 7}}, repair.EndingAbort, true},
			{"not known", txnClient{last: repair.Producer{ID: 1, Epoch: 7}}, repair.EndingUnknown, true},
			{"one epoch to go", txnClient{last: repair.Producer{ID: 1, Epoch: maxEpoch - 1}},
				repair.EndingCommit, false},
			{"the last epoch", txnClient{last: repair.Producer{ID: 1, Epoch: maxEpoch}}, repair.EndingCommit, true},
		} {
			tc.c.Client = l.o.Admin
			tc.c.noteEnd(l.o.Markers, tc.how)
			if got := l.pool.retired(&tc.c); got != tc.retired {
				t.Errorf("%s: retired %v, want %v", tc.name, got, tc.retired)
			}
		}
	})
}

// The first producer of a cluster has the ID 0. If it must not begin again, a client that has not begun anything yet
// still may; a client that was that producer may not.
func TestTheFirstProducerOfAClusterIsRetiredAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := fakeLane(t)
		k := marked(t, l)
		l.pool.prepare(t.Context())
		to := timer.TopicPartition{Topic: "log", Partition: 0}
		k.NoteEnd("id", repair.Producer{ID: 0, Epoch: 0}, repair.EndingCommit,
			map[string][]int32{to.Topic: {to.Partition}})
		k.Moved(to)
		for _, c := range l.pool.clients {
			if l.pool.retired(c) {
				t.Errorf("%s is retired before it has begun anything", c.id)
			}
		}
		was := l.pool.clients[0]
		was.last = repair.Producer{ID: 0, Epoch: 0}
		if !l.pool.retired(was) {
			t.Error("the first producer is to be begun again")
		}
	})
}

// deadToken is a token that has died.
type deadToken struct{ fakeToken }

func (deadToken) Err() error { return errDead }

// The token of a partition dies before the partition is removed from the lane: the others' steps go on without it.
func TestADeadPartitionDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := fakeLane(t)
		dead, healthy := steadily(l, "t"), steadily(l, "log")
		dead.token = deadToken{}
		for range 3 {
			if _, err := l.step(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if healthy.committed() != 3 || dead.sealed != 1 || !dead.gone {
			t.Errorf("%d of 3 steps committed; the dead one was sealed %d times and is lost: %v", healthy.committed(),
				dead.sealed, dead.gone)
		}
	})
}

// The same with a token that dies while the partition is in the quarantine.
func TestADeadPartitionLeavesTheQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		unhealthy, healthy := steadily(l, "t"), steadily(l, "log")
		tok := &token{member: func() Member { return Member{ID: "m", Generation: 1} }}
		unhealthy.token = tok
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.NotEnoughReplicas, Count: -1})
		runLane(t, l)
		await.Until(t, testLimit, "the unhealthy one is held up", unhealthy.isHeld)
		tok.die()
		await.Until(t, testLimit, "the quarantine is empty", func() bool {
			l.roster.mu.Lock()
			defer l.roster.mu.Unlock()
			return !l.roster.trying && len(l.roster.members) == 1
		})
		n := healthy.committed()
		await.Until(t, testLimit, "the healthy one goes on", func() bool { return healthy.committed() > n+3 })
		if unhealthy.committed() != 0 {
			t.Error("the unhealthy one committed")
		}
	})
}

// A commit is not answered, and its coordinator does not say how it ended: the step's partitions wait for that, the
// others go on.
func TestOthersGoOnWhileACommitIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		over := make(chan struct{})
		end := sync.OnceFunc(func() { close(over) })
		t.Cleanup(end)
		var ill atomic.Pointer[string] // transactional ID about which the broker says nothing
		c.ControlKey(kmsg.EndTxn.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			id := r.(*kmsg.EndTxnRequest).TransactionalID
			ill.CompareAndSwap(nil, &id)
			if *ill.Load() == id {
				c.SleepControl(func() { <-over })
			}
			return nil, nil, false
		})
		c.ControlKey(kmsg.DescribeTransactions.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			c.SleepControl(func() { <-over })
			return nil, nil, false
		})
		waits := steadily(l, "t")
		runLane(t, l)
		await.Until(t, testLimit, "a commit that is not answered", func() bool { return ill.Load() != nil })
		healthy := steadily(l, "log")
		took := await.Until(t, testLimit, "the healthy one commits", func() bool { return healthy.committed() > 10 })
		if took > answerTimeout+3*time.Second {
			t.Errorf("the healthy one commits after %s", took)
		}
		waits.mu.Lock()
		if !waits.out || waits.n > 0 || waits.sealed != 1 {
			t.Errorf("out %v, %d committed, sealed %d times", waits.out, waits.n, waits.sealed)
		}
		waits.mu.Unlock()
		end()
		await.Until(t, testLimit, "the step is resolved", func() bool { return waits.committed() > 3 })
		inOrder(t, waits)
	})
}
