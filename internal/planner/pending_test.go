package planner

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/packed"
	"github.com/waterclock/waterclock/internal/timer"
)

// TestPendingIsCounted: whatever is scheduled, replaced, cancelled, fired, recurs and
// is rolled back, what is counted is what is pending by all that is planned; and
// beyond a limit no timer is added, others take its place or end.
func TestPendingIsCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 4
		p := New(0, 0, 1<<40)
		p.Begin(0)
		p.Open(0)
		p.Load(Lowest, timer.Ref{Due: 1 << 40}, nil)
		pending := map[string]bool{}
		now, offset := int64(0), int64(0)
		var out *Segment // a step that is tried
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, 3).Draw(t, "time")
			switch rapid.SampledFrom([]string{"schedule", "cancel", "take", "end"}).Draw(t, "what") {
			case "cancel":
				id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "id")
				plan(p, timer.Request{ID: []byte(id), Offset: offset}, nil)
				delete(pending, id)
			case "schedule":
				id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "id")
				tm := &timer.Timer{ID: []byte(id), Offset: offset, Due: now + rapid.Int64Range(0, 5).Draw(t, "in"), Occurrence: 1}
				if rapid.Bool().Draw(t, "recurs") {
					tm.Recurrence = &timer.Recurrence{Every: 4, Until: timer.NoUntil, CatchUp: timer.CatchUpAll}
				}
				refused := plan(p, timer.Request{ID: tm.ID, Offset: offset, Schedule: tm}, func(n int64) *Refusal {
					if n >= most {
						return &Refusal{"over-quota", "too many"}
					}
					return nil
				})
				if want := !pending[id] && len(pending) >= most; refused != want {
					t.Fatalf("refused %v with %d pending", refused, len(pending))
				}
				if !refused {
					pending[id] = true
				}
			case "take":
				if out == nil {
					p.Fire(now, 1<<20, 1<<40, free)
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
						_, done = p.Fold(out, 1<<20)
					}
				}
				out = nil
			}
			offset++
			clear(pending)
			for id, it := range p.ids.all() {
				if !it.ref.IsAbsent() {
					pending[id] = true
				}
			}
			p.packed.Marks(func(r packed.Record) { pending[string(unpacked(r.Bytes).ID)] = true })
			if int64(len(pending)) != p.pending {
				t.Fatalf("%d are pending, counted %d: %v", len(pending), p.pending, pending)
			}
		}
	})
}

// plan plans one request and reports whether it was refused.
func plan(p *Planner, r timer.Request, full func(int64) *Refusal) (refused bool) {
	b := NewBatch(1)
	b.Position, b.Full = r.Offset+1, full
	b.Add(fmt.Sprint("record ", r.Offset), r, nil)
	unknown := p.Meet(b)
	refs := make([]timer.Ref, len(unknown.IDs))
	for i := range refs {
		refs[i] = timer.Absent
	}
	unknown.Found(refs, nil)
	p.Plan(b)
	last := p.sequence.rest[len(p.sequence.rest)-1]
	e := &last.entries[0]
	return e.Refusal != nil && e.Tag == fmt.Sprint("record ", r.Offset)
}
