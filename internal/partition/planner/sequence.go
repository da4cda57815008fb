package planner

import (
	"iter"
	"math"
	"slices"

	"github.com/waterclock/waterclock/internal/timer"
)

// fires reports whether these are firings.
func (b *Batch) fires() bool { return b.Position < 0 }

// Size returns the size of the entries in memory.
func (b *Batch) Size() timer.Size { return timer.Size{Entries: len(b.entries), Bytes: b.Bytes} }

// Never is later than every due time.
const Never = math.MaxInt64

// sequence has everything that is planned and not committed: first, then rest. Every step takes a prefix of it. An
// abort changes nothing in it, but RollBack may. A batch is first ready, then sealed (in the segment in flight), then
// committed.
//
// Requests are in rest, in the order of their log. So a position never passes a request that is not settled. A firing
// is in first, so that it does not wait for requests of other IDs, unless an earlier entry of its own ID is in rest.
// Then it is in rest, behind that.
//
// Invariant: entries of one ID are taken in the order in which they were planned. No entry in first was planned on one
// in rest. And a request whose ID has an entry in first is not taken before that, because a segment holds all of first
// before anything of rest.
type sequence struct {
	first, rest []*Batch
	inFlight    *Segment
	position    int64 // every request below is settled
}

// Segment is the prefix of one planner's sequence that a step holds.
type Segment struct {
	// Position is that of the step.
	Position int64
	// Requests and Firings are the sizes of the entries in memory.
	Requests, Firings timer.Size
	// Room is memory that Changes may reuse.
	Room []timer.Change

	first, rest []*Batch
	changes     []timer.Change
	begins      []*Entry // the first entry of each change
	adds        int64    // by how much it changes the number of pending timers
	listed      bool     // changes are those of the entries
}

// Entries returns all entries, in order.
func (s *Segment) Entries() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, list := range [2][]*Batch{s.first, s.rest} {
			for _, b := range list {
				for i := range b.entries {
					if !yield(&b.entries[i]) {
						return
					}
				}
			}
		}
	}
}

// Len returns the number of entries.
func (s *Segment) Len() int { return s.Requests.Entries + s.Firings.Entries }

// oldest returns the earliest due time of a firing, Never if there is none.
func (s *sequence) oldest() (due int64) {
	due = Never
	for _, list := range [2][]*Batch{s.first, s.rest} {
		for _, b := range list {
			due = min(due, b.due)
		}
	}
	return due
}

// behind returns the rest of a list whose first batches are committed.
func behind(list, committed []*Batch) []*Batch {
	clear(list[:len(committed)])
	if len(committed) == len(list) {
		return nil // frees a list that was long
	}
	return list[len(committed):]
}

// Ready returns the size of the firings that wait to be taken ahead of all requests, and whether requests wait.
func (p *Planner) Ready() (firings timer.Size, requests bool) {
	for _, b := range p.sequence.first {
		firings = firings.Plus(b.Size())
	}
	return firings, len(p.sequence.rest) > 0
}

// Changes lists the change of each ID in the segment: from the state before its first entry to the state after its
// last, with the bytes of that. It needs no look-up, because entries carry the state that they were planned on. It
// leaves out an ID that is afterwards as it was before: absent both times, or paused and resumed, or its firing was
// rolled back. The holder of the segment calls it when nothing will be rolled back any more.
func (s *Segment) Changes() []timer.Change {
	if s.listed {
		return s.changes
	}
	s.changes, s.begins = slices.Grow(s.Room[:0], s.Len()), make([]*Entry, 0, s.Len())
	for e := range s.Entries() {
		it := e.item
		if it == nil {
			continue
		}
		if it.segment != s {
			it.segment, it.at = s, int32(len(s.changes))
			s.changes, s.begins = append(s.changes, timer.Change{ID: e.ID, Before: e.Before}), append(s.begins, e)
		}
		s.changes[it.at].Timer, s.changes[it.at].Bytes = e.After, e.Value
	}
	n := 0
	for i, c := range s.changes {
		first := s.begins[i]
		first.item.segment = nil
		c.After = c.Timer.Ref()
		// New rules of a time zone, or a request, may have moved the timer to the place that its next occurrence has.
		if c.After != c.Before || c.Timer != nil && c.Timer.Occurrence != first.found {
			if c.Bytes == nil && c.Timer != nil { // after a request whose result depends on the pending timer
				c.Bytes = c.Timer.AppendTo(nil)
			}
			s.changes[n], s.begins[n] = c, first
			n++
			s.adds += adds(c.Before, c.Timer)
		}
	}
	clear(s.changes[n:])
	clear(s.begins[n:])
	s.changes, s.begins, s.listed = s.changes[:n], s.begins[:n], true
	return s.changes
}

// Entry is a planned decision, with everything that the caller needs to carry it out.
type Entry struct {
	timer.Entry
	Value []byte // the bytes of After; nil if the request depends on the pending timer and does not schedule
	// Refusal is why the request, or the emission, becomes a dead letter.
	Refusal *timer.Refusal
	// Tag belongs to the caller: the record of a rejected request, or the permit of a firing.
	Tag any
	// Partition and Suspect belong to the caller: the partition that an emission goes to, and whether its target has
	// rejected a batch that contained it.
	Partition int32
	Suspect   bool

	firing bool  // it was planned because a timer was due, not for a request
	leaves bool  // its timer counts as pending until it is committed: see note
	item   *Item // nil for a rejected request
	// the occurrence that was pending at Before; 0 if it is not known, and then After comes from another request
	found   int64
	missed  int64          // for a firing: Item.missed of its item
	request *timer.Request // of the entry, if its result depends on the pending timer
	next    *Entry         // the entry of the same ID that was planned on this one
	behind  int64          // Unix ms: it is emitted behind what was due by then; see Order
}

// Refused reports whether this is a rejected request, which changes nothing and becomes a dead letter.
func (e *Entry) Refused() bool { return e.Refusal != nil && e.Emit == nil }

// Expire removes the emission of a firing in the segment in flight, because it has become too late while its step was
// tried. It does nothing if the firing was rolled back.
func (e *Entry) Expire() {
	if e.Emit != nil {
		e.Entry.Expire()
	}
}

// Firing reports whether this entry was planned because a timer was due, and not for a request.
func (e *Entry) Firing() bool { return e.firing }

// adds returns by how much e changes the number of pending timers.
func (e *Entry) adds() int64 { return adds(e.Before, e.After) }

func adds(before timer.Ref, after *timer.Timer) int64 {
	switch before := !before.IsAbsent(); {
	case !before && after != nil:
		return 1
	case before && after == nil:
		return -1
	}
	return 0
}

// Order returns the due time, in Unix ms, by which an emission has its place among those of a step. It is its own or,
// if that is later, the one of an uncommitted firing of the same ID before it: an occurrence that a request has moved
// comes before those that it passes.
func (e *Entry) Order() int64 {
	if e.Emit != nil {
		return max(e.behind, e.Emit.FiresAt())
	}
	return e.behind
}

// follow links e to the entry of its ID before it.
func (e *Entry) follow() {
	e.behind = math.MinInt64
	if last := e.item.last; last != nil {
		last.next, e.behind = e, last.Order()
	}
	e.item.last = e
}

// Result returns the outcome of the request or of the occurrence.
func (e *Entry) Result() timer.Outcome {
	switch {
	case e.Refusal == nil:
		return e.Outcome
	case e.Emit != nil:
		return timer.Undeliverable
	}
	return timer.Refused
}
