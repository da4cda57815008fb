package planner

import (
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// Notes that nobody takes end with what they keep in memory, however few they are.
func TestNotesOfLargeTimersEnd(t *testing.T) {
	p := New(0, 0, 1<<20)
	var o Overlay
	o.Begin(p, nil)
	large := &timer.Timer{ID: []byte("a"), Value: make([]byte, 1<<20)}
	step := func() {
		p.notes.add(&Segment{listed: true, changes: []Change{{ID: large.ID, After: large}}})
	}
	for range maxNotedBytes >> 21 {
		step()
	}
	if !o.Take(p) {
		t.Fatal("half of what fits ends them")
	}
	for range maxNotedBytes>>20 - 1 {
		step()
	}
	if p.notes.lapsed {
		t.Fatal("what was taken counts")
	}
	step()
	if o.Take(p) || p.notes.steps != nil {
		t.Errorf("%d MiB are noted, and no end", len(p.notes.steps))
	}
}
