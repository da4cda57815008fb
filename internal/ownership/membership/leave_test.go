package membership

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// If all members leave, none takes over, so none of them waits for that. "helm uninstall" is such a case.
func TestNobodyWaitsWhenAllLeave(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		var all []*resident
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, x.join(x.calm(name)))
		}
		x.shared(1, all...)
		ctx, cancel := context.WithTimeout(t.Context(), testLimit)
		defer cancel()
		var leaving sync.WaitGroup
		for _, m := range all {
			leaving.Go(func() {
				m.g.HandOver(ctx)
				m.stop()
			})
		}
		leaving.Wait()
		if ctx.Err() != nil {
			t.Errorf("they have waited for each other, %s long", testLimit)
		}
	})
}

// stopping is a group of three on a fake broker. One of them is to stop. joins are the IDs of the members that have
// joined since begin was called.
type stopping struct {
	*setup
	all  []*resident
	hold func() // called with each join after begin, which waits for it

	mu    sync.Mutex
	begun bool
	joins map[string]bool
}

func newStopping(t *testing.T) *stopping {
	t.Helper()
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second))
	s := &stopping{setup: newSetup(t, c.ListenAddrs()), joins: make(map[string]bool)}
	for _, name := range []string{"a", "b", "c"} {
		s.all = append(s.all, s.join(s.calm(name)))
	}
	s.shared(1, s.all...)
	c.ControlKey(kmsg.JoinGroup.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		s.mu.Lock()
		begun, hold := s.begun, s.hold
		if begun {
			s.joins[r.(*kmsg.JoinGroupRequest).MemberID] = true
		}
		s.mu.Unlock()
		if begun && hold != nil {
			c.SleepControl(hold)
		}
		return nil, nil, false
	})
	return s
}

func (s *stopping) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
}

func (s *stopping) joined() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.joins)
}

// A member that stops gives nothing up before all members have joined the round that decides about its partitions. So
// these are silent only for the next round, and the others need not hear of that by a heartbeat.
func TestAStopGivesUpWhenTheOthersAreReady(t *testing.T) {
	t.Parallel()
	s := newStopping(t)
	last := s.all[2]
	var revoked, joined int
	last.inRevoke = func(ts []*Token) {
		if revoked += len(ts); joined == 0 {
			joined = s.joined()
		}
		for _, tok := range ts {
			if err := tok.Err(); err != nil {
				t.Errorf("drained without a token: %v", err)
			}
		}
	}
	s.begin()
	last.stop()
	if revoked == 0 || joined != len(s.all) {
		t.Errorf("%d partitions were given up when %d members of %d had joined", revoked, joined, len(s.all))
	}
	s.shared(2, s.all[:2]...)
	if ids := s.ids(); len(ids) != 2 {
		t.Errorf("members are %v", ids)
	}
}

// If another member does not join, the one that stops has served its partitions for handOverTimeout longer, and stops.
func TestAStopWaitsForNoMemberThatDoesNotJoin(t *testing.T) {
	t.Parallel()
	s := newStopping(t)
	last := s.all[2]
	release := make(chan struct{})
	s.hold = func() { <-release }
	served := time.Duration(0)
	begun := time.Now()
	last.inRevoke = func([]*Token) { served = time.Since(begun) }
	s.begin()
	last.stop()
	took := time.Since(begun)
	close(release)
	if served < handOverTimeout || took > handOverTimeout+2*leaveTimeout+5*time.Second {
		t.Errorf("it served its partitions for %s, and ended after %s", served, took)
	}
	s.shared(2, s.all[:2]...)
}

// A static member that stops while its join is not answered waits no longer for the answer than another one, even if it
// has resigned, so that it must leave.
func TestAStaticMemberStopsWhileItJoins(t *testing.T) {
	t.Parallel()
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second))
	x := newSetup(t, c.ListenAddrs())
	w := kafkatest.NewWire()
	defer w.Close()
	h := w.HoldRequest(kmsg.JoinGroup.Int16(), 1)
	o := x.calm("a")
	o.Client = append(o.Client, kgo.Dialer(w.Dial))
	o.InstanceID, o.Leave = "static", true
	a := x.join(o)
	must(t, h.Wait(t.Context()))
	stopped := make(chan struct{})
	begun := time.Now()
	go func() {
		defer close(stopped)
		a.stop()
	}()
	select {
	case <-stopped:
	case <-time.After(testLimit):
	}
	if took := time.Since(begun); took > 2*leaveTimeout+5*time.Second {
		t.Errorf("it stopped after %s", took)
	}
	h.Release()
	<-stopped
}
