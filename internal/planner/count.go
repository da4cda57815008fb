package planner

import (
	"sync"
	"sync/atomic"
)

// Count is how many timers are pending once all that is planned is committed, and how many
// entries leave, see note; of all planners that share it. Those may plan side by side, so mu is
// held from when one asks whether there may be one more until that is counted. What else changes
// the number leaves it as it was, or makes it less.
type Count struct {
	mu sync.Mutex
	n  atomic.Int64
}

// tally is what a planner knows of how many timers are pending.
type tally struct {
	count   *Count // see CountIn
	settled int64  // timers that are pending by what is committed
	leaving int64  // entries that leave, see note
}

// others counts the timers that are or may be pending under IDs other than the item's, committed or not. Call it only
// if nothing is pending under the item's ID.
func (c *tally) others(it *Item) int64 {
	n := c.count.n.Load()
	if it.last != nil && it.last.leaves {
		n--
	}
	return n
}

// note adds e to the entries of its item.
//
// A firing after which nothing is pending keeps its place in the count until it is committed, because a rollback would
// bring the timer back. So does a request behind it that leaves nothing either, but would decide otherwise if the firing
// were rolled back. Any other entry counts at once.
func (c *tally) note(e *Entry) {
	last := e.item.last
	e.follow()
	e.item.entries++
	more, leaving := e.adds(), c.leaving
	switch {
	case e.firing && e.After == nil:
		e.leaves = true
		c.leaving++
	case last != nil && last.leaves:
		last.leaves, e.leaves = false, e.After == nil && e.request != nil
		if !e.leaves {
			c.leaving--
		}
	}
	if more += c.leaving - leaving; more != 0 {
		c.count.n.Add(more)
	}
}

// stays ends that an entry leaves: it is committed, or rolled back. It returns by how many fewer
// are counted.
func (c *tally) stays(e *Entry) (fewer int64) {
	if !e.leaves {
		return 0
	}
	e.leaves = false
	c.leaving--
	return 1
}
