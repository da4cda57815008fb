package emitter

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A breaker that opens again voids what its window had granted, and the next
// window does not take it for its own.
func TestPermitEndsWithItsWindow(t *testing.T) {
	h := newHealth(nil)
	w := newPatron(h)
	h.Accuse(map[TargetPartition]error{one: late})
	h.probed(one, nil)
	_, first := w.Grant(one, 10)
	if !h.Allow(one, first) || h.Allow(one, nil) || h.Allow(two, first) != true {
		t.Error("what was granted, and that alone, may pass")
	}
	h.Committed(one, 1)
	if !h.Allow(one, first) {
		t.Error("a window that grows voids what it has granted")
	}
	h.Accuse(map[TargetPartition]error{one: late})
	if h.Allow(one, first) {
		t.Error("what was granted passes a breaker that is open again")
	}
	h.probed(one, nil)
	if h.Allow(one, first) {
		t.Error("what an earlier window has granted passes")
	}
	if _, second := w.Grant(one, 10); !h.Allow(one, second) {
		t.Error("what the window has granted does not pass")
	}
}

// Nobody is asked, and nobody woken, for what may not pass: only when it may.
func TestWaiterIsToldOfWhatMayPass(t *testing.T) {
	now := time.Now()
	h := newHealth(nil)
	h.o.Now = func() time.Time { return now }
	w, other := newPatron(h), newPatron(h)
	const n = 1000
	sick := map[TargetPartition]error{}
	for i := range int32(n) {
		sick[TargetPartition{"t", i}] = kerr.LeaderNotAvailable
	}
	h.Accuse(sick)
	for p := range sick {
		w.Wait(p)
	}
	for range 100 {
		h.due()
	}
	if w.woken.Load() > 0 || len(w.Ready()) > 0 {
		t.Errorf("woken %d times for what may not pass", w.woken.Load())
	}
	p := TargetPartition{"t", 7}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"its window opened", func() { h.probed(p, nil) }},
		{"its window grew", func() { w.passes(p, 1); h.Committed(p, 1) }},
		{"what was granted came to nothing", func() { w.passes(p, 2); now = now.Add(grantAgain + 1); h.due() }},
		{"it is well", func() { h.probed(p, kerr.TopicAuthorizationFailed) }},
		{"it was well before", func() { w.Wait(p) }},
	} {
		woken := w.woken.Load()
		step.do()
		if ready := w.Ready(); !slices.Equal(ready, []TargetPartition{p}) || w.woken.Load() == woken {
			t.Errorf("%s: ready %v", step.name, ready)
		}
	}
	if len(other.Ready()) > 0 {
		t.Error("one who waits for nothing is told")
	}
	// Closed, and open again before the waiter came to ask: it is still among those
	// who are told.
	h.Accuse(map[TargetPartition]error{p: late})
	if w.passes(p, 1) != 0 {
		t.Error("something passes")
	}
	h.probed(p, nil)
	if len(w.Ready()) != 1 {
		t.Error("who was told of a breaker that closed is not told of the next one")
	}
}

// What waits for a topic as a whole goes on when the topic is known; what has no
// key when a partition is well, or has room in its window.
func TestWaitingForATopic(t *testing.T) {
	c, targets := fakeTargets(t, 2)
	h := NewHealth(HealthOptions{Targets: targets, Logger: slog.New(slog.DiscardHandler)})
	w := newPatron(h)
	unplaced, anyOf := TargetPartition{"t", Unplaced}, TargetPartition{"t", AnyPartition}
	p0, p1 := TargetPartition{"t", 0}, TargetPartition{"t", 1}
	f := behind(c)
	targets.lookUp(t, "t")
	w.Wait(unplaced)
	h.due()
	if len(w.Ready()) > 0 || h.Allow(unplaced, nil) {
		t.Error("told of a topic that nobody knows")
	}
	now := time.Now().Add(verdictAgain)
	targets.o.Now = func() time.Time { return now }
	h.due()
	if !slices.Equal(targets.takeWanted(), []string{"t"}) {
		t.Error("nobody asks for a topic that is waited for")
	}
	f.Remove()
	targets.lookUp(t, "t") // heard
	select {
	case <-h.wake:
	default:
		t.Error("nobody looks when metadata is heard")
	}
	if h.due(); !slices.Equal(w.Ready(), []TargetPartition{unplaced}) || !h.Well() {
		t.Error("not told of a topic that is known")
	}

	h.Accuse(map[TargetPartition]error{p0: late})
	h.Accuse(map[TargetPartition]error{p1: kerr.LeaderNotAvailable})
	w.Wait(anyOf)
	if h.due(); len(w.Ready()) > 0 || w.passes(anyOf, 5) != 0 {
		t.Error("told though no partition is well")
	}
	h.probes = 2
	h.probed(p0, errors.New("away"))
	h.probed(p1, nil)
	if h.due(); !slices.Equal(w.Ready(), []TargetPartition{anyOf}) {
		t.Error("not told though a partition has room")
	}
	n, permit := w.Grant(anyOf, 5)
	if n != 1 || permit.To != p1 || !h.Allow(p1, permit) {
		t.Errorf("%d may pass to %+v, want 1 to %v", n, permit, p1)
	}
	h.probed(p0, kerr.InvalidRecord) // an answer
	if h.due(); !slices.Equal(w.Ready(), []TargetPartition{anyOf}) || w.passes(anyOf, 5) != 5 {
		t.Error("not told though a partition is well")
	}
}
