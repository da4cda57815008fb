package targets

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// A breaker that opens again voids the admissions of its window, and the next window does not count them as its own.
func TestHalfOpenAdmissionEndsWithItsWindow(t *testing.T) {
	h := newHealth(nil)
	w := newPatron(h)
	h.Trip(map[timer.TopicPartition]error{one: late})
	h.probed(one, nil)
	_, first := w.Admit(one, 10)
	if !h.Allow(one, first) || h.Allow(one, nil) || h.Allow(two, first) != true {
		t.Error("what was admitted, and that alone, may pass")
	}
	h.Committed(one, 1)
	if !h.Allow(one, first) {
		t.Error("a window that grows voids what it has admitted")
	}
	h.Trip(map[timer.TopicPartition]error{one: late})
	if h.Allow(one, first) {
		t.Error("what was admitted passes a breaker that is open again")
	}
	h.probed(one, nil)
	if h.Allow(one, first) {
		t.Error("what an earlier window has admitted passes")
	}
	if _, second := w.Admit(one, 10); !h.Allow(one, second) {
		t.Error("what the window has admitted does not pass")
	}
}

// Waiters are not woken or asked while nothing may pass, only when something may.
func TestWaitersAreNotWokenWithoutAdmission(t *testing.T) {
	now := time.Now()
	h := newHealth(nil)
	h.o.Now = func() time.Time { return now }
	w, other := newPatron(h), newPatron(h)
	const n = 1000
	unhealthy := map[timer.TopicPartition]error{}
	for i := range int32(n) {
		unhealthy[timer.TopicPartition{Topic: "t", Partition: i}] = kerr.LeaderNotAvailable
	}
	h.Trip(unhealthy)
	for p := range unhealthy {
		w.Wait(p)
	}
	for range 100 {
		h.due(true)
	}
	if w.woken.Load() > 0 || len(w.Ready()) > 0 {
		t.Errorf("woken %d times for what may not pass", w.woken.Load())
	}
	p := timer.TopicPartition{Topic: "t", Partition: 7}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"its window opened", func() { h.probed(p, nil) }},
		{"its window grew", func() { w.passes(p, 1); h.Committed(p, 1) }},
		{"what was admitted came to nothing", func() { w.passes(p, 2); now = now.Add(admitAgain + 1); h.due(true) }},
		{"it is healthy", func() { h.probed(p, kerr.TopicAuthorizationFailed) }},
		{"it was well before", func() { w.Wait(p) }},
	} {
		woken := w.woken.Load()
		step.do()
		if ready := w.Ready(); !slices.Equal(ready, []timer.TopicPartition{p}) || w.woken.Load() == woken {
			t.Errorf("%s: ready %v", step.name, ready)
		}
	}
	if len(other.Ready()) > 0 {
		t.Error("one who waits for nothing is told")
	}
	// The breaker closes and opens again before the waiter has come: the waiter is still told.
	h.Trip(map[timer.TopicPartition]error{p: late})
	if w.passes(p, 1) != 0 {
		t.Error("something passes")
	}
	h.probed(p, nil)
	if len(w.Ready()) != 1 {
		t.Error("who was told of a breaker that closed is not told of the next one")
	}
}

// Emissions that wait for a topic as a whole go on when the topic is known. Emissions without a key go on when a
// partition is healthy, or has room in its window.
func TestWaitingForATopic(t *testing.T) {
	c, targets := fakeTargets(t, 2)
	h := NewHealth(HealthOptions{Targets: targets, Logger: slog.New(slog.DiscardHandler)})
	w := newPatron(h)
	unplaced, anyOf := timer.TopicPartition{Topic: "t", Partition: timer.Unplaced},
		timer.TopicPartition{Topic: "t", Partition: timer.AnyPartition}
	p0, p1 := timer.TopicPartition{Topic: "t", Partition: 0}, timer.TopicPartition{Topic: "t", Partition: 1}
	f := behind(c)
	targets.lookUp(t, "t")
	w.Wait(unplaced)
	h.due(true)
	if len(w.Ready()) > 0 || h.Allow(unplaced, nil) {
		t.Error("told of a topic that nobody knows")
	}
	now := time.Now().Add(verdictAgain)
	targets.o.Now = func() time.Time { return now }
	h.due(true)
	if !slices.Equal(wantedOf(targets), []string{"t"}) {
		t.Error("nobody asks for a topic that is waited for")
	}
	f.Remove()
	targets.lookUp(t, "t") // the answer has come
	select {
	case <-h.wake:
	default:
		t.Error("nobody looks when metadata is heard")
	}
	if h.due(true); !slices.Equal(w.Ready(), []timer.TopicPartition{unplaced}) || !h.AllHealthy() {
		t.Error("not told of a topic that is known")
	}

	h.Trip(map[timer.TopicPartition]error{p0: late})
	h.Trip(map[timer.TopicPartition]error{p1: kerr.LeaderNotAvailable})
	w.Wait(anyOf)
	if h.due(true); len(w.Ready()) > 0 || w.passes(anyOf, 5) != 0 {
		t.Error("told though no partition is healthy")
	}
	h.probes = 2
	h.probed(p0, errors.New("away"))
	h.probed(p1, nil)
	if h.due(true); !slices.Equal(w.Ready(), []timer.TopicPartition{anyOf}) {
		t.Error("not told though a partition has room")
	}
	n, permit := w.Admit(anyOf, 5)
	if n != 1 || permit.To != p1 || !h.Allow(p1, permit) {
		t.Errorf("%d may pass to %+v, want 1 to %v", n, permit, p1)
	}
	h.probed(p0, kerr.InvalidRecord) // an answer of the target
	if h.due(true); !slices.Equal(w.Ready(), []timer.TopicPartition{anyOf}) || w.passes(anyOf, 5) != 5 {
		t.Error("not told though a partition is healthy")
	}
}

// While the leader of a partition is unreachable, its window has no room for emissions to any partition: they could not
// be written there.
func TestNoRoomWhileTheLeaderIsUnreachable(t *testing.T) {
	_, targets := fakeTargets(t, 1)
	targets.lookUp(t, "t")
	h := NewHealth(HealthOptions{Targets: targets, Logger: slog.New(slog.DiscardHandler)})
	reach := &kafkatest.Reach{}
	h.leaders = reach
	w, p, anyOf := newPatron(h), timer.TopicPartition{Topic: "t", Partition: 0},
		timer.TopicPartition{Topic: "t", Partition: timer.AnyPartition}
	h.Trip(map[timer.TopicPartition]error{p: late})
	h.probes++
	h.probed(p, nil)
	w.Wait(anyOf)
	reach.LoseLeader(p)
	if n := w.passes(anyOf, 1); n != 0 {
		t.Errorf("%d may pass to a partition whose leader is unreachable", n)
	}
	reach.LoseLeader(timer.TopicPartition{Topic: "elsewhere", Partition: 0})
	if n := w.passes(anyOf, 1); n != 1 {
		t.Errorf("%d may pass when it is back", n)
	}
}
