package transaction

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/await"
)

// quarantineEnds is the lane of a quarantine whose transactions are decided at once, and ended
// when the test says so: until then a new one under their ID is refused.
type quarantineEnds struct {
	l *testLane

	mu   sync.Mutex
	over map[string]bool // by transactional ID
}

func newQuarantineEnds(t *testing.T) *quarantineEnds {
	c, of := fakeLane(t)
	e := &quarantineEnds{l: &testLane{newLane(of.of, of.aside, of.o, "ward"), of.lanes}, over: make(map[string]bool)}
	e.l.aborts.apart = true
	t.Cleanup(of.aside.stop)
	c.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return r.ResponseKind(), nil, true
	})
	c.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.over[*r.(*kmsg.InitProducerIDRequest).TransactionalID] {
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.ConcurrentTransactions.Code
		return resp, nil, true
	})
	return e
}

// begin has a transaction of that ID given up.
func (e *quarantineEnds) begin(id string) (ended <-chan struct{}) {
	return e.l.aborts.begin(&txnClient{id: id, parts: map[string][]int32{"t": {0}}})
}

func (e *quarantineEnds) end(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over[id] = true
}

func isClosed(c <-chan struct{}, within time.Duration) bool {
	select {
	case <-c:
		return true
	case <-time.After(within):
		return false
	}
}

// That a transaction is aborted is decided before its markers are written: a quarantine
// waits for those, for a partition that takes no writes does not take its marker.
func TestATryIsEndedWhenItsMarkersAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newQuarantineEnds(t)
		ended := e.begin("a")
		if isClosed(ended, time.Second) {
			t.Error("ended before its markers are written")
		}
		e.end("a")
		if !isClosed(ended, testLimit) {
			t.Error("not ended")
		}
	})
}

// One who waits for the end of a try is told of it, also when others have held up a
// try since. What nobody waits for any more is not asked for.
func TestATryIsEndedAlsoBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newQuarantineEnds(t)
		w := e.l.lanes.quarantine
		ended := e.begin("a")
		first := &member{in: &quarantined{unended: ended}}
		e.l.of.members = []*member{first, {in: &quarantined{unended: e.begin("b")}}}
		w.stopEnds(e.l.Lane)
		if len(e.l.aborts.ends) != 2 {
			t.Errorf("%d ends are waited for, want 2", len(e.l.aborts.ends))
		}
		e.end("a")
		if !isClosed(ended, testLimit) {
			t.Error("not told of the end")
		}
		first.in = nil
		if w.stopEnds(e.l.Lane); len(e.l.aborts.ends) != 1 {
			t.Errorf("%d ends are waited for, want 1", len(e.l.aborts.ends))
		}
	})
}

// quiet is a source with one step, which wakes nobody when that comes back aborted.
type quiet struct {
	mu        sync.Mutex // guards what follows
	out, over bool
	aborted   int
}

func (q *quiet) Seal(string, *Room) *Share {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.out || q.over {
		return nil
	}
	q.out = true
	return &Share{Token: fakeToken{}, Offset: Offset{Topic: "r"}, Records: []*kgo.Record{{Topic: "log"}}, Done: func(o Outcome) {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.out, q.over = false, o == Committed; !q.over {
			q.aborted++
		}
	}}
}

func (*quiet) Wait() time.Duration { return maxSleep }

func (q *quiet) state() (aborted int, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.aborted, q.over
}

// The commit of a try is not answered, so its source, whose records were taken, is
// back in the lane before anybody knows what became of the step. The lane hears of
// that when it is known, also if nothing else is to be done.
func TestTheLaneHearsOfWhatItsQuarantineResolves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		l.o.CommitTimeout = 200 * time.Millisecond
		var asked atomic.Int32
		c.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if !strings.Contains(r.(*kmsg.EndTxnRequest).TransactionalID, "/ward/") {
				return nil, nil, false
			}
			switch asked.Add(1) {
			case 1:
				return nil, nil, true // no answer
			case 2: // to commit again: somebody else has ended it
				resp := r.ResponseKind().(*kmsg.EndTxnResponse)
				resp.ErrorCode = kerr.InvalidProducerEpoch.Code
				return resp, nil, true
			}
			return nil, nil, false
		})
		q := &quiet{}
		l.of.Add(q)
		ctx, cancel := context.WithCancel(t.Context())
		l.holdUp(ctx, q, &Share{})
		runLane(t, l)
		t.Cleanup(cancel)
		await.Until(t, testLimit/2, "the step is committed", func() bool { _, over := q.state(); return over })
		if aborted, _ := q.state(); aborted != 1 {
			t.Errorf("aborted %d times, want once: the test did not make its interleaving", aborted)
		}
	})
}
