package targets

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

var (
	one, two, three = timer.TopicPartition{Topic: "one", Partition: 0},
		timer.TopicPartition{Topic: "two", Partition: 0}, timer.TopicPartition{Topic: "three", Partition: 0}
	late = context.DeadlineExceeded
)

// newHealth returns a Health that logs nothing.
func newHealth(probe func(context.Context, timer.TopicPartition) error) *Health {
	return NewHealth(HealthOptions{Probe: probe, Logger: slog.New(slog.DiscardHandler)})
}

// patron waits for targets, and counts how often it is woken.
type patron struct {
	*Waiter
	woken atomic.Int32
}

func newPatron(h *Health) *patron {
	w := new(patron)
	w.Waiter = h.Waiter(func() { w.woken.Add(1) })
	return w
}

// passes returns how many of n may pass to p.
func (pa *patron) passes(p timer.TopicPartition, n int) int {
	n, _ = pa.Admit(p, n)
	return n
}

func unhealthyOf(h *Health) (n int, all map[timer.TopicPartition]time.Time) {
	all = h.Unhealthy()
	return len(all), all
}

// One failing partition is unhealthy. If several fail together after a broker was lost, its death is the cause: its
// partitions get other leaders by themselves, until that has taken too long. A partition without a leader is unhealthy
// immediately, because waiting longer would not help it. While all brokers are reachable, all failing partitions are
// unhealthy.
func TestTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth(nil)
		h.Trip(map[timer.TopicPartition]error{one: late})
		if n, _ := unhealthyOf(h); n != 1 || h.Allow(one, nil) {
			t.Errorf("%d unhealthy, want the one that failed", n)
		}
		h = newHealth(nil)
		h.Trip(map[timer.TopicPartition]error{one: late, two: late})
		if n, _ := unhealthyOf(h); n != 2 || h.Allow(one, nil) || h.Allow(two, nil) {
			t.Errorf("%d unhealthy while all brokers are there, want both that failed", n)
		}

		h = newHealth(nil)
		reach := &lostAt{&kafkatest.Reach{}, time.Now()}
		reach.Lose("elsewhere")
		h.leaders = reach
		h.Trip(map[timer.TopicPartition]error{one: late, two: late, three: kerr.LeaderNotAvailable})
		if n, _ := unhealthyOf(h); n != 1 || h.Allow(three, nil) || !h.Allow(one, nil) {
			t.Errorf("%d unhealthy, want the one without leader alone", n)
		}
		for since := time.Duration(0); since < BrokerDeath; since += 3 * time.Second {
			h.Trip(map[timer.TopicPartition]error{one: late, two: late})
			if !h.Allow(one, nil) || !h.Allow(two, nil) {
				t.Errorf("unhealthy after %s", since)
			}
			time.Sleep(3 * time.Second)
		}
		h.Trip(map[timer.TopicPartition]error{one: late, two: late})
		if h.Allow(one, nil) || h.Allow(two, nil) {
			t.Errorf("not unhealthy after %s", BrokerDeath)
		}
	})
}

// An admitted emission may never be committed: its timer was cancelled, or another broker's death aborted its step.
// Another one passes after a while, and waiters are told.
func TestAdmitThatCameToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth(nil)
		w := newPatron(h)
		h.Trip(map[timer.TopicPartition]error{one: late})
		w.Wait(one)
		h.probed(one, nil)
		for i := range 4 {
			start := time.Now()
			for len(w.Ready()) == 0 {
				if time.Since(start) > 2*admitAgain {
					t.Fatalf("nothing passes any more %s after an admission that came to nothing", time.Since(start))
				}
				time.Sleep(probeTick)
				h.due(true)
			}
			if waited := time.Since(start); i > 0 && waited < admitAgain {
				t.Errorf("told that another one passes after %s already", waited)
			}
			if got := w.passes(one, 10); got != 1 {
				t.Errorf("%d pass, want 1", got)
			}
		}
		h.Committed(one, 1)
		if got := w.passes(one, 10); got != 2 || len(w.Ready()) != 1 {
			t.Errorf("%d pass after a commit, want 2", got)
		}
	})
}

// Probes come after 2 s, doubling to 5 minutes. After a successful one, one emission may pass, then two, four, each
// after a commit, until nothing is parked.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		var back atomic.Bool
		h := newHealth(func(context.Context, timer.TopicPartition) error {
			at = append(at, time.Since(start).Round(time.Second))
			if !back.Load() {
				return errors.New("away")
			}
			return nil
		})
		w := newPatron(h)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = h.Run(ctx) }()
		h.Trip(map[timer.TopicPartition]error{one: late})
		w.Wait(one)
		time.Sleep(1100 * time.Second)
		synctest.Wait()
		want := []time.Duration{2, 6, 14, 30, 62, 126, 254, 510, 810}
		for i, w := range want {
			if i >= len(at) || at[i]-w*time.Second > time.Duration(i+1)*time.Second/4+time.Second ||
				at[i] < w*time.Second {
				t.Fatalf("probes at %v, want about %v s", at, want)
			}
		}
		if w.passes(one, 10) != 0 || len(w.Ready()) > 0 || w.woken.Load() > 0 {
			t.Error("something may pass a breaker that is open, or is asked for")
		}
		back.Store(true)
		time.Sleep(breakerMax)
		synctest.Wait()
		for _, want := range []int{1, 2, 4} {
			if ready := w.Ready(); len(ready) != 1 || ready[0] != one {
				t.Errorf("%v may pass, want %v", ready, one)
			}
			if got := w.passes(one, 10); got != want {
				t.Errorf("%d may pass, want %d", got, want)
			}
			if got := w.passes(one, 10); got != 0 {
				t.Errorf("%d more may pass before a commit", got)
			}
			h.Committed(one, want)
		}
		w.Leave(one)
		if !h.AllHealthy() || w.passes(one, 10) != 10 {
			t.Error("unhealthy when everything has passed")
		}
		cancel()
		<-done
	})
}
