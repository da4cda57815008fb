package emitter

import (
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wardEnds is the lane of a ward whose transactions are decided at once, and ended
// when the test says so: until then a new one under their ID is refused.
type wardEnds struct {
	l *Lane

	mu   sync.Mutex
	over map[string]bool // by transactional ID
}

func newWardEnds(t *testing.T) *wardEnds {
	c, of := fakeLane(t)
	e := &wardEnds{l: newLane(of.o, "0/ward"), over: make(map[string]bool)}
	e.l.aside, e.l.ending = of.aside, of.ending
	t.Cleanup(of.giveUp)
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
func (e *wardEnds) begin(id string) (ended <-chan struct{}) {
	return e.l.endAside(&txnClient{id: id, parts: map[string][]int32{"t": {0}}})
}

func (e *wardEnds) end(id string) {
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

// That a transaction is aborted is decided before its markers are written: a ward
// waits for those, for a partition that takes no writes does not take its marker.
func TestATryIsEndedWhenItsMarkersAreWritten(t *testing.T) {
	e := newWardEnds(t)
	ended := e.begin("a")
	if isClosed(ended, time.Second) {
		t.Error("ended before its markers are written")
	}
	e.end("a")
	if !isClosed(ended, testLimit) {
		t.Error("not ended")
	}
}

// One who waits for the end of a try is told of it, also when others have held up a
// try since. What nobody waits for any more is not asked for.
func TestATryIsEndedAlsoBehindOthers(t *testing.T) {
	e := newWardEnds(t)
	w := newWard(NewLane(e.l.o))
	first, second := &steady{}, &steady{}
	ended := e.begin("a")
	w.stalls[first] = &stall{unended: ended}
	w.stalls[second] = &stall{unended: e.begin("b")}
	w.stopEnds(e.l)
	if len(e.l.ends) != 2 {
		t.Errorf("%d ends are waited for, want 2", len(e.l.ends))
	}
	e.end("a")
	if !isClosed(ended, testLimit) {
		t.Error("not told of the end")
	}
	w.remove(first)
	if w.stopEnds(e.l); len(e.l.ends) != 1 {
		t.Errorf("%d ends are waited for, want 1", len(e.l.ends))
	}
}
