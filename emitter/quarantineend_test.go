package emitter

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

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// quarantineEnds is the lane of a quarantine whose transactions are decided immediately, and end when the test says so.
// Until then a new transaction under their ID is refused.
type quarantineEnds struct {
	l *testLane

	mu   sync.Mutex
	over map[string]bool // by transactional ID
}

func newQuarantineEnds(t *testing.T) *quarantineEnds {
	c, lane := fakeLane(t)
	e := &quarantineEnds{l: &testLane{newLane(lane.roster, lane.background, lane.o, "ward"), lane.lanes},
		over: make(map[string]bool)}
	e.l.aborts.apart = true
	t.Cleanup(lane.background.Cancel)
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

// begin gives up a transaction of the ID.
func (q *quarantineEnds) begin(id string) (ended <-chan struct{}) {
	return q.l.aborts.begin(&txnClient{id: id, parts: map[string][]int32{"t": {0}}})
}

func (q *quarantineEnds) end(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over[id] = true
}

func isClosed(c <-chan struct{}, within time.Duration) bool {
	select {
	case <-c:
		return true
	case <-time.After(within):
		return false
	}
}

// An abort is decided before its markers are written. A quarantine waits for the markers, because a partition that
// takes no writes does not take its marker either.
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

// A source that waits for the end of its try is told of it, even if other sources have held up a try since. Ends that
// no source waits for are no longer asked for.
func TestATryIsEndedAfterOtherTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newQuarantineEnds(t)
		w := e.l.lanes.quarantine
		ended := e.begin("a")
		first := &member{in: &quarantined{unended: ended}}
		e.l.roster.members = []*member{first, {in: &quarantined{unended: e.begin("b")}}}
		w.leaveEnds(e.l.Lane)
		if len(e.l.aborts.ends) != 2 {
			t.Errorf("%d ends are waited for, want 2", len(e.l.aborts.ends))
		}
		e.end("a")
		if !isClosed(ended, testLimit) {
			t.Error("not told of the end")
		}
		first.in = nil
		if w.leaveEnds(e.l.Lane); len(e.l.aborts.ends) != 1 {
			t.Errorf("%d ends are waited for, want 1", len(e.l.aborts.ends))
		}
	})
}

// A source goes back to the lanes when its own records are taken, even if another source's broker did not answer and
// the try was aborted. Only the readers of its targets still wait for the end of that try.
func TestATryIsEndedAlsoWhenNobodyWaitsForIt(t *testing.T) {
	for name, leave := range map[string]func(e *quarantineEnds){
		"others are tried":        func(e *quarantineEnds) { e.begin("b"); e.l.lanes.quarantine.leaveEnds(e.l.Lane) },
		"the quarantine is empty": func(e *quarantineEnds) { e.l.aborts.leaveAll() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newQuarantineEnds(t)
				ended, last := e.begin("a"), e.begin("never ends")
				leave(e)
				e.end("a")
				if !isClosed(ended, e.l.o.TransactionTimeout/3) {
					t.Error("the transaction is left open")
				}
				e.l.aborts.leaveAll()
				if isClosed(last, 2*e.l.o.TransactionTimeout) {
					t.Error("ended although nobody has ended it")
				}
				e.l.background.Wait() // until the attempts are over
			})
		})
	}
}

// quiet is a source with one step, which wakes no lane when that is aborted.
type quiet struct {
	mu        sync.Mutex // guards the fields below
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
	return &Share{Token: fakeToken{}, Offset: Offset{Topic: "r"}, Records: []*kgo.Record{{Topic: "log"}},
		Done: func(o Outcome) {
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

// The commit of a try is not answered, so its source, whose records were taken, is back in the lane before the outcome
// of the step is known. The lane hears of the outcome when it is known, even if there is nothing else to do.
func TestTheLaneHearsOutcomesResolvedByItsQuarantine(t *testing.T) {
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
			case 2: // a repeated commit: someone else has ended the transaction
				resp := r.ResponseKind().(*kmsg.EndTxnResponse)
				resp.ErrorCode = kerr.InvalidProducerEpoch.Code
				return resp, nil, true
			}
			return nil, nil, false
		})
		q := &quiet{}
		l.roster.Add(q)
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
