package planner

import (
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// What is committed of an ID is not what an item has left that was another one's before.
func TestCommittedOfAnItemThatIsUsedAgain(t *testing.T) {
	p := New(0, 0, 1<<40)
	p.Open(0)
	p.Load(Lowest, timer.Ref{Due: 1 << 30}, nil)
	ask := func(id string, off int64) {
		tm := &timer.Timer{ID: []byte(id), Offset: off, Due: 100_000, Occurrence: 1}
		b := NewBatch(1)
		b.Position = off + 1
		b.Add(nil, timer.Request{ID: tm.ID, Offset: off, Schedule: tm}, tm.AppendTo(nil))
		u := p.Meet(b)
		refs := make([]timer.Ref, len(u.IDs))
		for i := range refs {
			refs[i] = timer.Absent
		}
		u.Found(refs, nil)
		p.Plan(b)
	}
	ask("a", 0)
	ask("c", 1)
	s := p.Take(1000, 1<<40)
	p.Commit()
	if _, done := p.Fold(s, 3); done { // both changes, the chunk of a
		t.Fatal("folded to the end")
	}
	ask("b", 2) // planned, not committed
	c := p.Committed([]byte("b"))
	if tm, known := c.Find(); known {
		t.Fatalf("committed of b: %q", tm.ID)
	}
}
