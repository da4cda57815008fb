package planner

import (
	"github.com/waterclock/waterclock/internal/partition/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// Committed is what the planner knows of the committed state of one ID: the state after the last committed step that
// has changed the ID and is not applied; otherwise what is dirty or being flushed. If none of these has the ID, the
// caller asks the store, without the lock. By then the store may have later steps, too, but it lacks none, because the
// planner forgets only what the store has. So the answer is a state that was committed at some moment of the call.
type Committed struct {
	id    string
	steps [][]Change // committed, not applied
	after *timer.Timer
	known bool
}

// Committed returns what the planner knows of the committed state of an ID.
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

// Find returns what is pending, nil for nothing. It returns false if the caller has to ask the store. It needs no lock.
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
