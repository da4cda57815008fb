package planner

import (
	"testing"

	"github.com/waterclock/waterclock/internal/partition/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// committed plans, commits and applies requests for timers that are due at these times.
func committed(p *Planner, dues ...int64) (timers []*timer.Timer) {
	b := NewBatch(len(dues))
	b.Position = p.sequence.position + int64(len(dues))
	for i, due := range dues {
		t := &timer.Timer{ID: []byte{byte('a' + i)}, Offset: p.sequence.position + int64(i), Due: due, Occurrence: 1,
			Value: make([]byte, 1000)}
		timers = append(timers, t)
		b.Add(nil, timer.Request{ID: t.ID, Offset: t.Offset, Schedule: t}, nil)
	}
	p.planNew(b)
	p.applyAll()
	return timers
}

// planNew plans a batch for IDs that are not in the store.
func (p *Planner) planNew(b *Batch) {
	unknown := p.Meet(b)
	refs := make([]timer.Ref, len(unknown.IDs))
	for i := range refs {
		refs[i] = timer.Absent
	}
	unknown.Found(refs, nil, nil, 0)
	p.Plan(b)
}

// applyAll commits and applies everything that is planned.
func (p *Planner) applyAll() {
	for s := p.Take(1<<30, 1<<30); s != nil; s = p.Take(1<<30, 1<<30) {
		p.Commit()
		p.Apply(s, 1<<30)
	}
}

// A timer in the wheel is counted once: only dirty timers outside of the wheel count,
// and what it gives out or forgets.
func TestOnlyDirtyTimersThatAreNotSoonCount(t *testing.T) {
	const due, far = 1000, 100_000
	p := New(0, 0, 1<<20)
	p.Open(0)
	p.Load(Lowest, timer.Ref{Due: far}, nil)
	wants := func(what string, want int64) {
		t.Helper()
		if got := p.DirtyBytes(); got != want {
			t.Errorf("%s: %d dirty bytes, want %d", what, got, want)
		}
	}
	one := committed(p, due, due+1, far+1)
	size := func(i int) int64 {
		r := memtable.Record{Bytes: one[i].AppendTo(nil)}
		return r.Size()
	}
	wants("two in the wheel, one beyond", size(2))
	p.Lower(timer.Ref{Due: due + 1})
	wants("one is forgotten", size(2)+size(1))
	p.Load(timer.Ref{Due: due + 1}, timer.Ref{Due: far}, nil)
	wants("and known again", size(2))
	p.Fire(due, timer.Size{Entries: 10, Bytes: 1 << 20}, timer.Unlimited,
		func(*timer.Timer, any) (timer.TopicPartition, bool) { return timer.TopicPartition{}, false })
	wants("one is given out", size(2)+Held(one[0]))
	p.applyAll()
	wants("and has fired", size(2))
	p.BeginFlush()
	wants("behind a checkpoint", 0)
	committed(p, due+5) // the timer that fired again
	p.Fire(due+1, timer.Size{Entries: 10, Bytes: 1 << 20}, timer.Unlimited,
		func(*timer.Timer, any) (timer.TopicPartition, bool) { return timer.TopicPartition{}, false })
	p.applyAll()
	gone := int64(len(one[1].ID)) + 64 // the ID and a place
	wants("one that is in the store has fired", gone)
	p.EndFlush()
	wants("the checkpoint is written", gone)
	if it, _, _ := p.lookup(one[1].ID); it != nil {
		t.Error("an item is kept of what is gone")
	}
	if len(p.BeginFlush()) != 2 {
		t.Error("what has changed since is not to be written")
	}
}
