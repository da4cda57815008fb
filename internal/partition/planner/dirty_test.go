package planner

import (
	"github.com/waterclock/waterclock/internal/timer"
)

// committed plans and commits requests for timers that are due at these times.
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
	p.commitAll()
	return timers
}

// planNew plans a batch for IDs that are not in the store.
func (p *Planner) planNew(b *Batch) {
	p.Prepare(b)
	refs := make([]timer.Ref, len(b.IDs))
	for i := range refs {
		refs[i] = timer.Absent
	}
	p.Resolve(b, refs, nil, nil, 0)
	p.Plan(b)
}

// commitAll commits everything that is planned.
func (p *Planner) commitAll() {
	for p.Take(1<<30, 1<<30) != nil {
		p.Commit()
	}
}
