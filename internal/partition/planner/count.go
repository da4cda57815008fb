package planner

import (
	"sync"
	"sync/atomic"
)

// Count is the number of timers that are pending once everything planned is committed, plus the number of entries that
// leave (see note), of all planners that share it. They may plan in parallel. So a planner holds mu from asking whether
// there may be one more timer until it has counted that timer. All other changes leave the number as it was, or reduce
// it.
type Count struct {
	mu        sync.Mutex // held over asking and adding, see above; it guards no field
	n         atomic.Int64
	committed atomic.Int64 // pending timers in the committed state; the planners of a step add to it side by side
}

// NewCount returns a Count that begins with the number of timers that were pending when the partition was acquired.
func NewCount(pending int64) *Count {
	c := new(Count)
	c.committed.Store(pending)
	c.n.Store(pending)
	return c
}

// Committed returns how many timers are pending in the committed state. The caller holds the locks of all planners.
func (c *Count) Committed() int64 { return c.committed.Load() }

// tally counts the pending timers of a planner.
type tally struct {
	count   *Count // see Share
	leaving int64  // entries that leave, see note
}

// others counts the timers that are or may be pending under IDs other than the item's, committed or not. Call it only
// if nothing is pending under the item's ID.
func (ta *tally) others(it *Item) int64 {
	n := ta.count.n.Load()
	if it.last != nil && it.last.leaves {
		n--
	}
	return n
}

// note adds e to the entries of its item, which is still as it was before e.
//
// A firing after which nothing is pending keeps its place in the count until it is committed, because a rollback would
// bring the timer back. So does a request behind it that leaves nothing either, but would decide otherwise if the
// firing were rolled back. Any other entry counts immediately.
func (ta *tally) note(e *Entry) {
	last := e.item.last
	e.follow()
	e.item.entries++
	if t := e.item.timer; t != nil {
		e.found = t.Occurrence
	}
	more, leaving := e.adds(), ta.leaving
	switch {
	case e.firing && e.After == nil:
		e.leaves = true
		ta.leaving++
	case last != nil && last.leaves:
		last.leaves, e.leaves = false, e.After == nil && e.request != nil
		if !e.leaves {
			ta.leaving--
		}
	}
	if more += ta.leaving - leaving; more != 0 {
		ta.count.n.Add(more)
	}
}

// commit counts the changes of a committed segment.
func (ta *tally) commit(s *Segment) {
	ta.count.committed.Add(s.adds)
	if ta.leaving == 0 {
		return
	}
	fewer := int64(0)
	for e := range s.Entries() {
		fewer += ta.stays(e)
	}
	ta.count.n.Add(-fewer)
}

// stays ends the leaving of an entry, because it is committed or rolled back. It returns by how many the count of
// timers decreases.
func (ta *tally) stays(e *Entry) (fewer int64) {
	if !e.leaves {
		return 0
	}
	e.leaves = false
	ta.leaving--
	return 1
}
