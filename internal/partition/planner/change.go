package planner

import "github.com/waterclock/waterclock/internal/timer"

// Change is what a segment does to one ID: from the state before its first entry to the state after its last. It needs
// no look-up, because entries carry the state that they were planned on. A look-up could be wrong, because the store
// may not have the last step yet.
type Change struct {
	ID     []byte
	Before timer.Ref    // what was pending, Absent for nothing
	After  *timer.Timer // what is pending now, nil for nothing
	Value  []byte       // the bytes of After

	item  *Item
	found int64 // Entry.found of the first entry
}

// Changes lists what the segment changes. It leaves out an ID that is afterwards as it was before: absent both times,
// or paused and resumed, or its firing was rolled back. The holder of the segment calls it when nothing will be rolled
// back any more.
func (s *Segment) Changes() []Change {
	if s.listed {
		return s.changes
	}
	s.changes = make([]Change, 0, s.Len())
	for e := range s.Entries() {
		it := e.item
		if it == nil {
			continue
		}
		if it.segment != s {
			it.segment, it.at = s, int32(len(s.changes))
			s.changes = append(s.changes, Change{ID: e.ID, Before: e.Before, item: it, found: e.found})
		}
		s.changes[it.at].After, s.changes[it.at].Value = e.After, e.Value
	}
	n := 0
	for _, c := range s.changes {
		c.item.segment = nil
		// New rules of a time zone may have moved the timer to the place that its next occurrence has.
		if c.After.Ref() != c.Before || c.After != nil && c.After.Occurrence != c.found {
			if c.Value == nil && c.After != nil { // after a request whose result depends on what it found
				c.Value = c.After.AppendTo(nil)
			}
			s.changes[n] = c
			n++
			s.adds += adds(c.Before, c.After)
		}
	}
	clear(s.changes[n:])
	s.changes, s.listed = s.changes[:n], true
	return s.changes
}
