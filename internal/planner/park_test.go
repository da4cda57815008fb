package planner

import (
	"fmt"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// A timer is on its way to the parked rows when another takes its place, which is held
// too: that the first one did not get there says nothing of the second.
func TestParkedForgetsWhatWasParked(t *testing.T) {
	held := func(*timer.Timer, any) (by timer.TopicPartition, held bool) { return by, true }
	const due = 10
	p := loaded(1, due, 0)
	_, first := p.Fire(due, 1, 1<<30, held)
	b := NewBatch(1)
	again := &timer.Timer{ID: []byte("id0"), Offset: 1, Due: due, Occurrence: 1}
	b.Add(nil, timer.Request{ID: again.ID, Offset: again.Offset, Schedule: again}, again.AppendTo(nil))
	b.Position = 2
	p.Meet(b)
	p.Plan(b)
	s := p.Take(1, 1<<30)
	p.Commit()
	p.Fold(s, 10)
	p.Freeze()
	p.Thaw()
	_, second := p.Fire(due, 1, 1<<30, held)
	var by timer.TopicPartition
	if len(first) != 1 || len(second) != 1 || second[by].Timers[0] != again {
		t.Fatalf("to be parked first %v, then %v; want each timer once", first, second)
	}
	p.Parked(first[by])
	if items, _ := p.Size(); items != 1 {
		t.Error("a timer is forgotten that is not parked")
	}
	p.Parked(second[by])
	if items, _ := p.Size(); items != 0 {
		t.Errorf("%d timers are kept of one that is parked", items)
	}
}

// What was missed while it was held stays missed when it comes back, does not fit into memory, is
// forgotten and loaded again: of catch-up none nothing fires. Memory for that has a limit too.
func TestWhatWasMissedIsKeptThroughEviction(t *testing.T) {
	const n, first, every, now, some = 400, 1000, 1_000_000, 5000, 100
	store := make(map[string]*timer.Timer)
	var parked []*timer.Timer
	for i := range n {
		tm := recurring(fmt.Sprint("id", i), first+int64(i), every, timer.CatchUpNone)
		tm.Offset, tm.Value = int64(i), make([]byte, 100)
		parked = append(parked, tm)
	}
	limit := n * Held(parked[0]) / 10
	p := New(0, 0, limit)
	p.Open(0)
	end := timer.Ref{Due: every}
	p.Load(Lowest, end, nil)
	reached, evicted, most := end, false, int64(0)
	for round := 0; len(parked) > 0 || pendingBelow(end, store) > 0; round++ {
		if round > 1000 {
			t.Fatalf("after %d rounds %d are parked still, and %d wait", round, len(parked), pendingBelow(end, store))
		}
		if len(parked) > 0 && !p.Crowded() {
			for _, tm := range parked[:some] {
				store[string(tm.ID)] = tm
			}
			p.Admit(parked[:some], nil, now)
			parked = parked[some:]
		}
		if got := fired(p, now, 20); len(got) > 0 {
			t.Fatalf("%v were missed, and fire", got)
		}
		for _, c := range p.Freeze() {
			delete(store, string(c.ID))
			if b := c.AppendTo(nil); len(b) > 0 {
				store[string(c.ID)] = unpacked(b)
			}
		}
		p.Thaw()
		p.Relieved()
		from, ok := p.LoadFrom(reached)
		evicted = evicted || from.Compare(reached) < 0
		if reached = from; ok && from.Compare(end) < 0 {
			var found []*timer.Timer
			for _, tm := range store {
				if tm.Ref().Compare(from) >= 0 && tm.Ref().Compare(end) < 0 {
					found = append(found, tm)
				}
			}
			inOrder(found)
			p.Load(from, end, found)
			reached = end
		}
		most = max(most, p.missed)
	}
	if !evicted {
		t.Error("nothing was evicted")
	}
	if most > limit/2+some*Held(store["id0"]) || p.missed != 0 {
		t.Errorf("%d bytes were kept at most of what was missed, and %d in the end", most, p.missed)
	}
}

// pendingBelow is how many timers the store has below a place.
func pendingBelow(end timer.Ref, store map[string]*timer.Timer) (n int) {
	for _, tm := range store {
		if tm.Ref().Compare(end) < 0 {
			n++
		}
	}
	return n
}
