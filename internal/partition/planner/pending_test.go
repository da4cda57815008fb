package planner

import (
	"fmt"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// A planned firing may be rolled back, so its timer keeps its place in the count until the firing
// is committed: otherwise a timer that took the place would be one too many.
func TestARolledBackFiringKeepsItsPlaceInTheCount(t *testing.T) {
	for _, rolledBack := range []bool{true, false} {
		const most = 3
		p := New(0, 0, 1<<40)
		p.Begin(0)
		p.Open(0)
		p.Load(Lowest, timer.Ref{Due: 1 << 40}, nil)
		offset := int64(0)
		schedule := func(id string) (refused bool) {
			tm := &timer.Timer{ID: []byte(id), Offset: offset, Due: 1 + offset, Occurrence: 1}
			defer func() { offset++ }()
			return plan(p, timer.Request{ID: tm.ID, Offset: offset, Schedule: tm}, func(n int64) *timer.Refusal {
				if n >= most {
					return &timer.Refusal{Reason: "over-quota", Detail: "too many"}
				}
				return nil
			})
		}
		for _, id := range []string{"a", "b", "c"} {
			if schedule(id) {
				t.Fatal("refused below the limit")
			}
		}
		p.Fire(2, timer.Size{Entries: 1 << 20, Bytes: 1 << 40}, timer.Unlimited, free) // a and b
		if schedule("a") {
			t.Error("what is scheduled again in place of a firing that is planned is refused")
		}
		if !schedule("d") {
			t.Error("one is added that would be too many were the firings rolled back")
		}
		out := p.Take(1<<20, 1<<40)
		if rolledBack {
			var firings []*Entry
			for e := range out.Entries() {
				if e.Emit != nil {
					firings = append(firings, e)
				}
			}
			p.RollBack(firings...)
		}
		p.Commit()
		if want := map[bool]int64{true: 3, false: 2}[rolledBack]; p.pending() != want || p.Pending() != want {
			t.Errorf("rolled back %v: %d are pending, %d committed, want %d", rolledBack, p.pending(),
				p.Pending(), want)
		}
		if schedule("e") == !rolledBack {
			t.Errorf("rolled back %v: refused %v with %d pending", rolledBack, !rolledBack, p.pending())
		}
	}
}

// plan plans one request and reports whether it was refused.
func plan(p *Planner, r timer.Request, full func(int64) *timer.Refusal) (refused bool) {
	b := NewBatch(1)
	b.Position, b.Full = r.Offset+1, full
	b.Add(fmt.Sprint("record ", r.Offset), r, nil)
	p.planNew(b)
	last := p.sequence.rest[len(p.sequence.rest)-1]
	e := &last.entries[0]
	return e.Refusal != nil && e.Tag == fmt.Sprint("record ", r.Offset)
}
