package planner

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/partition/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// TestPendingIsCounted: whatever is scheduled, replaced, cancelled, fired, recurs and is rolled
// back, the count equals the number of timers that are pending by everything planned. At the
// limit no timer is added, but timers may be replaced and may end.
func TestPendingIsCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 4
		p := New(0, 0, 1<<40)
		p.Begin(0)
		p.Open(0)
		p.Load(Lowest, timer.Ref{Due: 1 << 40}, nil)
		pending, leaving := map[string]bool{}, map[string]bool{} // leaving: fired, and not committed
		now, offset := int64(0), int64(0)
		var out *Segment // a step that is being tried
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, 3).Draw(t, "time")
			switch rapid.SampledFrom([]string{"schedule", "cancel", "take", "end"}).Draw(t, "what") {
			case "cancel":
				id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "id")
				plan(p, timer.Request{ID: []byte(id), Offset: offset}, nil)
				delete(pending, id)
				delete(leaving, id)
			case "schedule":
				id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "id")
				tm := &timer.Timer{ID: []byte(id), Offset: offset, Due: now + rapid.Int64Range(0, 5).Draw(t, "in"),
					Occurrence: 1}
				if rapid.Bool().Draw(t, "recurs") {
					tm.Recurrence = &timer.Recurrence{Every: 4, Until: timer.NoUntil, CatchUp: timer.CatchUpAll}
				}
				refused := plan(p, timer.Request{ID: tm.ID, Offset: offset, Schedule: tm}, func(n int64) *Refusal {
					if n >= most {
						return &Refusal{"over-quota", "too many"}
					}
					return nil
				})
				others := maps.Clone(leaving)
				delete(others, id)
				if want := !pending[id] && len(pending)+len(others) >= most; refused != want {
					t.Fatalf("refused %v with %d pending, and %d leaving", refused, len(pending), len(others))
				}
				if !refused {
					pending[id], leaving = true, others
				}
			case "take":
				if out == nil {
					leaving = maps.Clone(pending)
					p.Fire(now, timer.Size{Entries: 1 << 20, Bytes: 1 << 40}, timer.Unlimited, free)
					out = p.Take(1<<20, 1<<40)
				}
			case "end":
				if out == nil {
					break
				}
				var firings []*Entry
				for e := range out.Entries() {
					if e.firing {
						firings = append(firings, e)
					}
				}
				if rapid.Bool().Draw(t, "aborted") {
					p.Return()
					p.RollBack(firings...)
				} else {
					p.Commit()
					for done := false; !done; {
						_, done = p.Apply(out, 1<<20)
					}
				}
				out = nil
				clear(leaving)
			}
			offset++
			clear(pending)
			for id, it := range p.all() {
				if !it.ref.IsAbsent() {
					pending[id] = true
				}
			}
			p.eachUnflushed(func(k memtable.Kind, r memtable.Record) {
				if k != memtable.Tombstone {
					pending[string(r.ID())] = true
				}
			})
			for id := range pending {
				delete(leaving, id)
			}
			if int64(len(leaving)) != p.tally.leaving || len(pending) > most {
				t.Fatalf("%d of %d may be pending: %v, and leaving, counted %d: %v", len(pending), most, pending,
					p.tally.leaving, leaving)
			}
			if int64(len(pending)) != p.pending() {
				t.Fatalf("%d are pending, counted %d: %v", len(pending), p.pending(), pending)
			}
		}
	})
}

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
			return plan(p, timer.Request{ID: tm.ID, Offset: offset, Schedule: tm}, func(n int64) *Refusal {
				if n >= most {
					return &Refusal{"over-quota", "too many"}
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
		for done := false; !done; {
			_, done = p.Apply(out, 1<<20)
		}
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
func plan(p *Planner, r timer.Request, full func(int64) *Refusal) (refused bool) {
	b := NewBatch(1)
	b.Position, b.Full = r.Offset+1, full
	b.Add(fmt.Sprint("record ", r.Offset), r, nil)
	p.planNew(b)
	last := p.sequence.rest[len(p.sequence.rest)-1]
	e := &last.entries[0]
	return e.Refusal != nil && e.Tag == fmt.Sprint("record ", r.Offset)
}
