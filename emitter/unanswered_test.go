package emitter

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What became of a step cannot be told, for its coordinator says nothing: all that
// are in it are given up when the transaction timeout has passed, not one after
// another.
func TestAnUnresolvedStepIsGivenUpAsAWhole(t *testing.T) {
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
	client, err := newTxnClient(&l.o, "unanswered")
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := l.resolve(client, shares); err == nil {
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

// What became of a step is asked of a coordinator that does not answer, and the
// partitions go elsewhere: nobody needs to know any more, and the lane has its share
// back at once, not when the question has timed out.
func TestNobodyWaitsForAnOutcomeWithoutATokenAlive(t *testing.T) {
	c, l := fakeLane(t)
	l.o.TransactionTimeout = time.Minute
	asked := make(chan struct{}, 1)
	c.ControlKey(int16(kmsg.DescribeTransactions), func(kmsg.Request) (kmsg.Response, error, bool) {
		asked <- struct{}{}
		return nil, nil, true // no answer
	})
	client, err := newTxnClient(&l.o, "unanswered")
	if err != nil {
		t.Fatal(err)
	}
	token := &mortal{}
	shares := []*Share{{Token: token, Records: []*kgo.Record{{Topic: "log"}}}}
	done := make(chan error, 1)
	go func() { done <- l.resolve(client, shares) }()
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
}

// A commit waits for a dead broker in the coordinator's log, and then its marker for
// the leader of one partition: the coordinator gives no other producer ID until that is
// written, and says before that how the step ended. The others in it do not wait.
func TestAStepIsResolvedBeforeItsMarkersAreWritten(t *testing.T) {
	c, l := fakeLane(t)
	var decided atomic.Bool
	last := producer{7, 3}
	c.ControlKey(int16(kmsg.DescribeTransactions), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.DescribeTransactionsRequest)
		resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		s := kmsg.NewDescribeTransactionsResponseTransactionState()
		s.TransactionalID, s.ProducerID, s.ProducerEpoch, s.State = req.TransactionalIDs[0], last.id, last.epoch, "Ongoing"
		if decided.Load() {
			s.ProducerEpoch, s.State = last.epoch+1, "PrepareCommit"
		}
		resp.TransactionStates = append(resp.TransactionStates, s)
		return resp, nil, true
	})
	c.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		decided.Store(true)
		resp := r.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.ConcurrentTransactions.Code
		return resp, nil, true
	})
	client, err := newTxnClient(&l.o, "unanswered")
	if err != nil {
		t.Fatal(err)
	}
	client.last = last
	begun := time.Now()
	if err := l.resolve(client, []*Share{{Token: fakeToken{}, Records: []*kgo.Record{{Topic: "log"}}}}); err != nil {
		t.Errorf("resolved: %v, want a commit", err)
	}
	if took := time.Since(begun); took > 2*answerTimeout {
		t.Errorf("resolved after %s", took)
	}
}
