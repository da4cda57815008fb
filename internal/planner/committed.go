package planner

import (
	"github.com/waterclock/waterclock/internal/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// Committed is what the planner knows of the committed state of one ID: what the last committed step has left that
// has changed the ID and is not applied; otherwise what the delta has. If neither has the ID, the caller asks the
// store, without the lock. Meanwhile the store may have learned of later steps. It never lacks a step: what the
// planner had forgotten by then, the store had. So the answer is a state that was committed while the question was
// open.
type Committed struct {
	id    string
	steps [][]Change // committed, not applied
	after *timer.Timer
	known bool
}

// Committed asks for what is committed of an ID.
func (p *Planner) Committed(id []byte) (c Committed) {
	at := p.known.table.Find(id)
	switch at.Kind() {
	case memtable.None:
		return c
	case memtable.Object:
	default:
		r := p.known.table.At(at)
		if c.known = r.State != 0; c.known && at.Kind() != memtable.Tombstone {
			c.after = decoded(r.Bytes)
		}
		return c
	}
	it := p.known.items[at.Number()]
	c.id, c.after, c.known = it.id, it.change.after, it.change.stale()
	if it.entries > 0 {
		for _, s := range p.committed {
			c.steps = append(c.steps, s.Changes())
		}
	}
	return c
}

// Find returns what is pending, nil for nothing, unless the store is to be asked. It
// needs no lock.
func (c *Committed) Find() (t *timer.Timer, known bool) {
	for i := len(c.steps) - 1; i >= 0; i-- {
		for k := range c.steps[i] {
			if x := &c.steps[i][k]; string(x.ID) == c.id {
				return x.After, true
			}
		}
	}
	if !c.known {
		return nil, false
	}
	return c.after, true
}
