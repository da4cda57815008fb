package planner

import (
	"iter"
	"math"
	"slices"
)

// chunk is what a step takes whole: a batch of requests, or some firings.
type chunk struct {
	entries   []Entry
	bytes     int64
	position  int64 // of a batch: just behind its last request; else -1
	due       int64 // the earliest due time of a firing that was to be emitted; never: there is none
	committed bool
}

// never is later than every due time.
const never = math.MaxInt64

// sequence is what is planned and not committed: first, then rest. The life of a
// chunk: ready, sealed (in the segment that is out), committed.
//
// Firings that depend on nothing in rest are in first. Invariant: no entry in first
// was planned on one in rest; and no request is added to rest whose ID has an entry
// in first and which could be taken before that, because a segment holds all of first
// before anything of rest.
type sequence struct {
	first, rest []*chunk
	out         *Segment
	position    int64 // just behind the last request of the committed chunks
}

// Segment is the prefix of the sequence that one step holds.
type Segment struct {
	// Position is the intake position once the segment is committed; it is the
	// committed one when the segment settles no request.
	Position int64
	// Requests and Firings are how many entries there are, RequestBytes and
	// FiringBytes about what they hold in memory.
	Requests, Firings         int
	RequestBytes, FiringBytes int64

	number      int64 // of the step among those that are committed, from 1
	first, rest []*chunk
	changes     []Change
	adds        int64 // by how many timers more are pending behind it
	listed      bool  // changes are those of the entries
	folded      int   // changes, then entries: see Fold
}

// Entries returns all entries, in order.
func (s *Segment) Entries() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, list := range [2][]*chunk{s.first, s.rest} {
			for _, c := range list {
				for i := range c.entries {
					if !yield(&c.entries[i]) {
						return
					}
				}
			}
		}
	}
}

// Len is how many entries there are.
func (s *Segment) Len() int { return s.Requests + s.Firings }

// Bytes is about what they hold in memory.
func (s *Segment) Bytes() int64 { return s.RequestBytes + s.FiringBytes }

// Take seals a prefix of the sequence: whole chunks, as many as fit into so many
// entries and bytes, one at least. It returns nil when nothing is planned. There is
// one segment at a time: Commit or Return ends it.
func (p *Planner) Take(entries int, bytes int64) *Segment {
	q := &p.sequence
	if q.out != nil {
		panic("planner: a segment is out already")
	}
	s := &Segment{Position: q.position}
	var all bool
	if s.first, all = s.take(q.first, entries, bytes); all {
		s.rest, _ = s.take(q.rest, entries, bytes)
	}
	if s.Len() == 0 {
		return nil
	}
	q.out = s
	return s
}

// take takes chunks of a list, and says whether it took all.
func (s *Segment) take(list []*chunk, entries int, bytes int64) (taken []*chunk, all bool) {
	for i, c := range list {
		if s.Len() > 0 && (s.Len()+len(c.entries) > entries || s.Bytes()+c.bytes > bytes) {
			return slices.Clone(list[:i]), false
		}
		if c.position >= 0 {
			s.Position = c.position
			s.Requests, s.RequestBytes = s.Requests+len(c.entries), s.RequestBytes+c.bytes
		} else {
			s.Firings, s.FiringBytes = s.Firings+len(c.entries), s.FiringBytes+c.bytes
		}
	}
	return slices.Clone(list), true
}

// Return puts the segment that is out back, in its old order.
func (p *Planner) Return() { p.sequence.out = nil }

// Commit takes the segment that is out from the sequence. It is to be folded.
func (p *Planner) Commit() {
	q := &p.sequence
	s := q.out
	q.first, q.rest = behind(q.first, s.first), behind(q.rest, s.rest)
	q.position, q.out = s.Position, nil
	p.commits++
	s.number = p.commits
	s.Changes()
	p.settled += s.adds
	if p.leaving > 0 {
		for e := range s.Entries() {
			p.stays(e)
		}
	}
	p.committed = append(p.committed, s)
	p.notes.add(s)
}

// Uncommitted returns the earliest due time of a firing that is planned and not committed,
// sealed ones included; one that was rolled back counts until its step is. false: there is none.
func (p *Planner) Uncommitted() (due int64, ok bool) {
	due = never
	for _, list := range [2][]*chunk{p.sequence.first, p.sequence.rest} {
		for _, c := range list {
			due = min(due, c.due)
		}
	}
	return due, due != never
}

// Pending is how many timers are pending by what is committed.
func (p *Planner) Pending() int64 { return p.settled }

// Position is just behind the last request that is settled.
func (p *Planner) Position() int64 { return p.sequence.position }

// behind returns what is left of a list whose first chunks are committed.
func behind(list, committed []*chunk) []*chunk {
	for i, c := range committed {
		c.committed = true
		list[i] = nil
	}
	if len(committed) == len(list) {
		return nil // not to hold on to a list that was long once
	}
	return list[len(committed):]
}

// Ready returns how many firings wait to be taken before all requests, about what they
// hold in memory, and whether requests wait.
func (p *Planner) Ready() (firings int, bytes int64, requests bool) {
	for _, c := range p.sequence.first {
		firings, bytes = firings+len(c.entries), bytes+c.bytes
	}
	return firings, bytes, len(p.sequence.rest) > 0
}
