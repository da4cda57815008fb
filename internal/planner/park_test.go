package planner

import (
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
