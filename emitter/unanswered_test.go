package emitter

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// The outcome of a step cannot be determined, because its coordinator says nothing. All shares in it are given up when
// the transaction timeout has passed, not one after another.
func TestAnUnresolvedStepIsGivenUpCompletely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		l.o.TransactionTimeout = time.Second
		c.ControlKey(int16(kmsg.DescribeTransactions), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			return nil, errors.New("the connection is cut"), true
		})
		var shares []*Share
		for range 20 {
			shares = append(shares, &Share{Token: fakeToken{}, Records: []*kgo.Record{{Topic: "log"}}})
		}
		client, err := newTxnClient(l.o, "unanswered")
		must(t, err)
		begun := time.Now()
		if err := (&transaction{lane: l.Lane, c: client, shares: shares}).resolve(); err == nil {
			t.Fatal("resolved")
		}
		if took := time.Since(begun); took > 4*l.o.TransactionTimeout {
			t.Errorf("given up after %s", took)
		}
		for i, s := range shares {
			if s.Err == nil {
				t.Errorf("share %d is not told that nothing tells", i)
			}
		}
	})
}

// A step whose record is no longer in the log is neither committed nor aborted, and the error says why.
func TestAStepThatWasCutIsNotReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, cl := kafkatest.Bubble(t, 1, "log")
		must(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "log"}).FirstErr())
		for at, want := range []error{partlog.ErrLogCut, 1: context.DeadlineExceeded, 2: partlog.ErrOutOfRange} {
			begun := time.Now()
			how, err := readBack(t.Context(), cl, &kgo.Record{Topic: "log", Offset: int64(at)}, repair.Producer{ID: 7})
			if how != repair.EndingUnknown || !errors.Is(err, want) || time.Since(begun) > RequestTimeout {
				t.Errorf("at %d: %s, %v after %s, want %v", at, how, err, time.Since(begun), want)
			}
		}
	})
}

// mortal is a token that dies.
type mortal struct {
	fakeToken
	dead atomic.Bool
}

func (m *mortal) Err() error {
	if m.dead.Load() {
		return errors.New("lost")
	}
	return nil
}

// The outcome of a step is asked of a coordinator that does not answer, and the partitions move elsewhere. The outcome
// is no longer needed, and the lane has its share back immediately, not when the question has timed out.
func TestOutcomesAreNotAwaitedWithoutALivingToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		l.o.TransactionTimeout = time.Minute
		asked := make(chan struct{}, 1)
		c.ControlKey(int16(kmsg.DescribeTransactions), func(kmsg.Request) (kmsg.Response, error, bool) {
			asked <- struct{}{}
			return nil, nil, true // no answer
		})
		client, err := newTxnClient(l.o, "unanswered")
		must(t, err)
		token := &mortal{}
		shares := []*Share{{Token: token, Records: []*kgo.Record{{Topic: "log"}}}}
		done := make(chan error, 1)
		go func() { done <- (&transaction{lane: l.Lane, c: client, shares: shares}).resolve() }()
		<-asked
		token.dead.Store(true)
		select {
		case err := <-done:
			if !errors.Is(err, errTokens) {
				t.Errorf("resolved with %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("it still waits for the coordinator's answer")
		}
	})
}

// A commit waits for a dead broker in the coordinator's log, and then its marker waits for the leader of one partition.
// The coordinator accepts no other end until that marker is written, but says before that how the step ended. The other
// partitions in the step do not wait. If the coordinator was restarted in between its answer is worth nothing: it may
// have found records in its log that its followers never had. And until then nothing is begun under that ID, because
// that would abort a transaction that is not decided.
func TestAStepIsResolvedBeforeItsMarkersAreWritten(t *testing.T) {
	for name, restarted := range map[string]bool{"the same coordinator": false, "one that was restarted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, l := fakeLane(t)
				last := repair.Producer{ID: 7, Epoch: 3}
				var asked atomic.Int32
				answerDescribe(c, "PrepareCommit",
					func() repair.Producer { asked.Add(1); return repair.Producer{ID: last.ID, Epoch: last.Epoch + 1} })
				c.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
					t.Error("the ID is begun with again")
					return nil, nil, false
				})
				var successor atomic.Bool // the successor is there, and has never heard of a commit
				c.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
					c.KeepControl()
					resp := r.ResponseKind().(*kmsg.EndTxnResponse)
					if !successor.Load() {
						resp.ErrorCode = kerr.ConcurrentTransactions.Code
					}
					return resp, nil, true
				})
				client, err := newTxnClient(l.o, "unanswered")
				must(t, err)
				client.last = last
				client.dropped.Store(restarted)
				doubted := int32(0)
				if restarted {
					doubted = 3
				}
				resolves(t, l, client, &asked, doubted, &successor)
			})
		})
	}
}

// resolves resolves a step of the client as committed: immediately if doubted is 0, else only by a successor of the
// coordinator, which comes when that many questions were asked.
func resolves(t *testing.T, l *testLane, client *txnClient, asked *atomic.Int32, doubted int32,
	successor *atomic.Bool) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		shares := []*Share{{Token: fakeToken{}, Records: []*kgo.Record{{Topic: "log"}}}}
		done <- (&transaction{lane: l.Lane, c: client, shares: shares}).resolve()
	}()
	if doubted > 0 {
		await.Until(t, testLimit, "it is asked what became of it",
			func() bool { return asked.Load() >= doubted || len(done) > 0 })
		select {
		case err := <-done:
			t.Fatalf("resolved with %v by what was found in a log", err)
		default:
		}
		successor.Store(true)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("resolved: %v, want a commit", err)
		}
	case <-time.After(2 * answerTimeout):
		t.Fatal("not resolved")
	}
}

// The coordinator is there when a commit turns out to be unanswered, and is restarted while it is asked for the
// outcome. Its answer about markers that it is writing may concern a commit that its followers never had, and is not
// believed.
func TestACoordinatorThatIsRestartedWhileItIsAskedIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		conns := watchDials(l)
		last := repair.Producer{ID: 7, Epoch: 3}
		var asked atomic.Int32
		answerDescribe(c, "PrepareCommit",
			func() repair.Producer { asked.Add(1); return repair.Producer{ID: last.ID, Epoch: last.Epoch + 1} })
		var restart sync.Once
		var successor atomic.Bool // the successor is there, and has never heard of a commit
		c.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			restart.Do(func() { conns.cut() })
			resp := r.ResponseKind().(*kmsg.EndTxnResponse)
			if !successor.Load() {
				resp.ErrorCode = kerr.ConcurrentTransactions.Code
			}
			return resp, nil, true
		})
		client, err := newTxnClient(l.o, "unanswered")
		must(t, err)
		// The client has a connection to the coordinator, like a client that has sent it the
		// EndTxn.
		if _, err := kadm.NewClient(client.Client).DescribeTransactions(t.Context(), client.id); err != nil {
			t.Fatal(err)
		}
		client.last = last
		resolves(t, l, client, &asked, 4, &successor)
	})
}

// wantResolved runs a step whose EndTxn is not answered, and fails unless it becomes known
// in time that the step is committed.
func wantResolved(t *testing.T, l *testLane, within time.Duration) {
	t.Helper()
	s := &fakeSource{told: make(chan Outcome, 1)}
	l.roster.Add(s)
	if _, err := l.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case o := <-s.told:
		if o != Committed {
			t.Errorf("outcome %v, want a commit", o)
		}
	case <-time.After(within):
		t.Fatal("not resolved")
	}
}

// answerDescribe makes the coordinator say of every transaction that it is in this state,
// and whose it is.
func answerDescribe(c *kfake.Cluster, state string, whose func() repair.Producer) {
	c.ControlKey(int16(kmsg.DescribeTransactions), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.DescribeTransactionsRequest)
		resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		s, p := kmsg.NewDescribeTransactionsResponseTransactionState(), whose()
		s.TransactionalID, s.State, s.ProducerID, s.ProducerEpoch = req.TransactionalIDs[0], state, p.ID, p.Epoch
		resp.TransactionStates = append(resp.TransactionStates, s)
		return resp, nil, true
	})
}

// A commit waits for a dead broker in its coordinator's log, for longer than the lane waits for its answer, and then
// its marker waits for the leader of one partition. DescribeTransactions says that the transaction is under way. The
// answer to EndTxn itself says that it is decided, and it comes, though later than any other that a client waits for.
func TestAnAnswerToACommitCountsHoweverLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		l.o.CommitTimeout = 100 * time.Millisecond
		var first atomic.Pointer[kmsg.EndTxnRequest]
		c.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if first.CompareAndSwap(nil, r.(*kmsg.EndTxnRequest)) {
				c.SleepControl(func() { time.Sleep(answerTimeout + time.Second) })
				return nil, nil, false
			}
			resp := r.ResponseKind().(*kmsg.EndTxnResponse)
			resp.ErrorCode = kerr.ConcurrentTransactions.Code
			return resp, nil, true
		})
		answerDescribe(c, "Ongoing", func() repair.Producer {
			return repair.Producer{ID: first.Load().ProducerID, Epoch: first.Load().ProducerEpoch}
		})
		wantResolved(t, l, 2*answerTimeout)
	})
}

// The coordinator is still writing the markers of the previous transaction when offsets of
// a group without members are to be committed: that is temporary.
func TestCommitOffsetsWaitsForTheTransactionBefore(t *testing.T) {
	t.Parallel()
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1))
	var commits atomic.Int32
	c.ControlKey(int16(kmsg.TxnOffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		topic, p := kmsg.NewTxnOffsetCommitResponseTopic(), kmsg.NewTxnOffsetCommitResponseTopicPartition()
		if commits.Add(1) < 3 {
			p.ErrorCode = kerr.ConcurrentTransactions.Code
		}
		topic.Partitions = append(topic.Partitions, p)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	cl := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("id"))
	if err := CommitOffsets(t.Context(), cl, "id", "group", []Offset{{Topic: "r"}}); err != nil || commits.Load() != 3 {
		t.Errorf("%v after %d commits", err, commits.Load())
	}
}

// The coordinator moves, without a connection breaking, while a commit is sent. The goroutine that resolves the step
// sends the same commit again, and that arrives before kgo's next attempt. Its answer waits for a dead broker for
// longer than anybody waits for it. Until the last marker is written kgo is told that a transaction is under way. The
// coordinator says, over the client's own connection, that it is decided.
func TestACommitIsResolvedThatAnotherHasBeaten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		l.o.CommitTimeout = 100 * time.Millisecond
		// The service configures its client in the same way.
		admin, err := kgo.NewClient(append(l.o.Client, kgo.RequestTimeoutOverhead(RequestTimeout))...)
		must(t, err)
		t.Cleanup(admin.Close)
		l.o.Admin = admin
		var ends atomic.Int32
		var last atomic.Pointer[kmsg.EndTxnRequest]
		c.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			resp := r.ResponseKind().(*kmsg.EndTxnResponse)
			switch last.Store(r.(*kmsg.EndTxnRequest)); ends.Add(1) {
			case 1:
				resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
			case 2:
				return nil, nil, true // no answer
			default:
				resp.ErrorCode = kerr.ConcurrentTransactions.Code
			}
			return resp, nil, true
		})
		answerDescribe(c, "PrepareCommit", func() repair.Producer {
			return repair.Producer{ID: last.Load().ProducerID, Epoch: last.Load().ProducerEpoch + 1}
		})
		wantResolved(t, l, 4*answerTimeout)
	})
}
