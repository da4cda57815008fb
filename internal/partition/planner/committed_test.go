package planner

import (
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// If an item is used again for another ID, the committed state of its former ID is not returned for it: the first part
// of a step is applied and freed before its last.
func TestCommittedIsOfTheID(t *testing.T) {
	p := New(0, 0, 1<<40)
	p.Open(0)
	for i, id := range []string{"a", "b"} { // a batch for each
		s := &timer.Timer{ID: []byte(id), Offset: int64(i), Due: 1000, Occurrence: 1}
		plan(p, timer.Request{ID: s.ID, Offset: s.Offset, Schedule: s}, nil)
	}
	s := p.Take(2, 1<<40)
	p.Commit()
	if _, done := p.Apply(s, 3); done { // both changes, and the entries of the first batch
		t.Fatal("all is applied")
	}
	c := &timer.Timer{ID: []byte("c"), Offset: 2, Due: 1000, Occurrence: 1}
	plan(p, timer.Request{ID: c.ID, Offset: c.Offset, Schedule: c}, nil)
	for _, id := range []string{"a", "b", "c"} {
		committed := p.Committed([]byte(id))
		got, known := committed.Find()
		if known != (id != "c") || got != nil && string(got.ID) != id {
			t.Errorf("of %q is committed: %v, known: %v", id, got, known)
		}
	}
}
