package planner

import (
	"fmt"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// Notes that nobody takes end with what they keep in memory, and an overlay with what it does,
// whether that came with its begin or later.
func TestOverlaysAreBounded(t *testing.T) {
	const most, size = 1 << 20, 1 << 10
	p := New(0, 0, 1<<20)
	p.Open(0)
	p.Load(Lowest, timer.Ref{Due: 1 << 20}, nil)
	n := 0
	step := func() {
		n++
		id := fmt.Appendf(nil, "%d", n)
		plan(p, timer.Request{ID: id, Offset: int64(n), Schedule: &timer.Timer{ID: id, Offset: int64(n), Due: 1 << 10, Occurrence: 1, Value: make([]byte, size)}}, nil)
		out := p.Take(1, 1<<20)
		p.Commit()
		p.Fold(out, 1<<20)
	}
	begin := func() (o *Overlay) {
		o = new(Overlay)
		o.Begin(p, nil, most)
		for done := false; !done; {
			done = o.Copy(p)
			o.Put()
		}
		return o
	}
	whole := func(o *Overlay) bool {
		o.Look(p)
		if !o.Take(p) {
			return false
		}
		o.Settle()
		return true
	}
	o := begin()
	for range most / size / 2 {
		step()
	}
	if !whole(o) || o.Bytes() < most/2 || o.Bytes() > most {
		t.Fatalf("half of what fits ends it at %d bytes", o.Bytes())
	}
	for whole(o) {
		step()
	}
	if more := n - most/size/2; more > most/size/2 {
		t.Errorf("it has %d bytes and no end", o.Bytes())
	}
	if o = begin(); whole(o) {
		t.Errorf("one that begins with %d bytes is whole", o.Bytes())
	}
	p.Freeze()
	p.Thaw()
	if o = begin(); !whole(o) || len(o.All()) != 0 {
		t.Errorf("%d IDs, though the store has all", len(o.All()))
	}
	for range most/size + 1 {
		step()
	}
	if len(o.notes.list) > 0 || whole(o) {
		t.Errorf("%d bytes are noted, and no end", o.notes.bytes)
	}
}

// What is packed again between Begin and Copy is copied: no step has changed it, so no note
// tells of it.
func TestWhatIsPackedMeanwhileIsCopied(t *testing.T) {
	p := New(0, 0, 1<<20)
	p.Open(0)
	p.Load(Lowest, timer.Ref{Due: 1 << 20}, nil)
	s := &timer.Timer{ID: []byte("a"), Offset: 1, Due: 1 << 10, Occurrence: 1}
	step := func() {
		out := p.Take(1, 1<<20)
		p.Commit()
		p.Fold(out, 1<<20)
	}
	plan(p, timer.Request{ID: s.ID, Offset: 1, Schedule: s}, nil)
	step()
	b := NewBatch(1)
	b.Position = 3
	b.Add(nil, timer.Request{ID: s.ID, Offset: 2, Schedule: s, If: timer.Condition{Kind: timer.IfAbsent}}, nil)
	if unknown := p.Meet(b); !unknown.Empty() || p.records() != 0 {
		t.Fatal("it is packed though a batch has met it")
	}
	var o Overlay
	o.Begin(p, nil, 1<<30)
	p.Plan(b) // which changes nothing
	step()
	if p.records() != 1 {
		t.Fatal("it is not packed again")
	}
	for done := false; !done; {
		done = o.Copy(p)
		o.Put()
	}
	o.Look(p)
	if !o.Take(p) {
		t.Fatal("the overlay is lapsed")
	}
	if o.Settle(); len(o.All()) != 1 || o.All()[0].ID != "a" || !equal(o.All()[0].Timer, s) {
		t.Errorf("%v is copied", o.All())
	}
}

// What is gone, while a checkpoint writes it, is gone for an overlay too, whether the overlay
// is begun before that or after.
func TestWhatIsGoneIsCopied(t *testing.T) {
	for _, late := range []bool{false, true} {
		p := New(0, 0, 1<<20)
		p.Open(0)
		p.Load(Lowest, timer.Ref{Due: 1 << 20}, nil)
		s := &timer.Timer{ID: []byte("a"), Offset: 1, Due: 1 << 10, Occurrence: 1}
		plan(p, timer.Request{ID: s.ID, Offset: 1, Schedule: s}, nil)
		p.fold()
		p.Freeze()
		var o Overlay
		if !late {
			o.Begin(p, nil, 1<<30)
		}
		plan(p, timer.Request{ID: s.ID, Offset: 2}, nil)
		p.fold()
		if p.known.table.Buried() != 1 || p.known.table.Objects() != 0 {
			t.Fatalf("%d are gone, %d items", p.known.table.Buried(), p.known.table.Objects())
		}
		if late {
			o.Begin(p, nil, 1<<30)
		}
		for done := false; !done; {
			done = o.Copy(p)
			o.Put()
		}
		o.Look(p)
		if !o.Take(p) {
			t.Fatal("the overlay is lapsed")
		}
		if o.Settle(); len(o.All()) != 1 || o.All()[0].ID != "a" || o.All()[0].Timer != nil {
			t.Errorf("begun late %v: %v is copied", late, o.All())
		}
		p.Thaw()
		if c := p.Committed(s.ID); !c.known || c.after != nil {
			t.Errorf("begun late %v: known %v, %v", late, c.known, c.after)
		}
	}
}
