package planner

import (
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/waterclock/waterclock/internal/timer"
)

// Several planners may share a partition's requests, each with its own IDs: sub-partitions. They plan in parallel, and
// one may be far ahead of another. A step takes from all of them, and settles requests up to one position, which is the
// same for all.
//
//   - A step takes all requests below one position, from every planner, and none beyond it. The position is no higher
//     than the bound, below which all planners have planned (package tracker). So once the step is committed, no
//     request below its position is left, and none beyond it is settled. The next owner, with any number of planners,
//     reads from there, misses nothing, repeats nothing, and needs to know only the position. If a step takes all
//     requests below the bound, its position is the bound itself. At the end of a log that may be behind markers, which
//     then need not be read again.
//   - A firing has no position. It stands before the requests that wait, unless it was planned on a request of its own
//     ID; then it stands behind that in the sequence of its planner, and is taken with it or later. So a firing never
//     waits for a request of another ID.
//   - All entries of an ID are in the sequence of one planner, and each step takes a prefix of that. So they keep their
//     order.

// room is how much a step still has room for.
type room struct {
	timer.Size
	taken bool // something was taken: only the first batch may be larger than the room
}

// NoBound is the bound of a step that takes all requests there are.
const NoBound = math.MaxInt64

// take reports whether a batch fits, and then makes the room smaller by it. The first batch always fits.
func (r *room) take(b *Batch) bool {
	if r.taken && (len(b.entries) > r.Entries || b.Bytes > r.Bytes) {
		return false
	}
	r.taken, r.Size = true, r.Minus(b.Size())
	return true
}

// Step has the entries that one step takes from the planners of a partition.
type Step struct {
	// Position: every request below is settled once the step is committed.
	Position int64
	Segments []*Segment // by planner
}

// Len returns the number of entries.
func (s *Step) Len() int { return s.Size().Entries }

// Size returns the size of all entries in memory.
func (s *Step) Size() timer.Size { return s.Requests().Plus(s.Firings()) }

// Requests returns the size of the requests in memory.
func (s *Step) Requests() (n timer.Size) {
	for _, g := range s.Segments {
		n = n.Plus(g.Requests)
	}
	return n
}

// Firings returns the size of the firings in memory.
func (s *Step) Firings() (n timer.Size) {
	for _, g := range s.Segments {
		n = n.Plus(g.Firings)
	}
	return n
}

// Entries returns all entries. Those of one ID are in order.
func (s *Step) Entries() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, g := range s.Segments {
			for e := range g.Entries() {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// Take seals a prefix of each planner's sequence: first the firings that wait for nothing, by due time; then, if there
// is room for all those, requests below bound in the order of their log, with the firings that stand behind them. It
// takes whole batches, at least one. If there are several planners it cuts batches of requests at the step's position.
// It returns nil if there is nothing to take. With pass set, the step may be empty if that raises the position. There
// is one step at a time: Commit or Return ends it.
func Take(planners []*Planner, limit timer.Size, pass bool, bound int64) *Step {
	left := room{Size: limit}
	first, all := takeFirst(planners, &left)
	step := &Step{Position: planners[0].sequence.position, Segments: make([]*Segment, len(planners))}
	var rest []int
	if all {
		whole := bound
		if rest, bound = takeRest(planners, &left, bound); bound == whole && bound != NoBound {
			step.Position = max(step.Position, bound)
		}
	}
	for i, p := range planners {
		s := new(Segment)
		s.first = slices.Clone(p.sequence.first[:first[i]])
		if all {
			s.rest = slices.Clone(p.sequence.cut(rest[i], bound))
		}
		step.Position = max(step.Position, s.sum())
		step.Segments[i] = s
	}
	if step.Len() == 0 && (!pass || step.Position == planners[0].sequence.position) {
		return nil
	}
	step.send(planners)
	return step
}

// TakeNone seals a step without entries, which leaves the position where it is. Commit or Return ends it.
func TakeNone(planners []*Planner) *Step {
	step := &Step{Position: planners[0].sequence.position, Segments: make([]*Segment, len(planners))}
	for i := range planners {
		step.Segments[i] = new(Segment)
	}
	step.send(planners)
	return step
}

// send marks the segments as in flight at their planners.
func (s *Step) send(planners []*Planner) {
	for i, p := range planners {
		if p.sequence.inFlight != nil {
			panic("planner: a segment is in flight already")
		}
		s.Segments[i].Position = s.Position
		p.sequence.inFlight = s.Segments[i]
	}
}

// takeFirst returns how many batches of firings that wait for nothing are taken from each planner, and whether those
// are all.
func takeFirst(planners []*Planner, left *room) (taken []int, all bool) {
	taken = make([]int, len(planners))
	for {
		var next *Batch
		which := 0
		for i, p := range planners {
			if list := p.sequence.first; taken[i] < len(list) && (next == nil || list[taken[i]].due < next.due) {
				next, which = list[taken[i]], i
			}
		}
		if next == nil {
			return taken, true
		}
		if !left.take(next) {
			return taken, false
		}
		taken[which]++
	}
}

// takeRest does the same for requests and the firings behind them. It returns the position below which the
// step takes all requests: bound, or lower if there is no room.
func takeRest(planners []*Planner, left *room, bound int64) (taken []int, lowered int64) {
	taken = make([]int, len(planners))
	had := *left
	for {
		var next *Batch
		which, at := 0, bound
		for i, p := range planners {
			list := p.sequence.rest[taken[i]:]
			if len(list) == 0 {
				continue
			}
			begins := int64(math.MinInt64) // firings belong to the requests before them
			if !list[0].fires() {
				begins = list[0].entries[0].Request
			}
			if begins < at {
				next, which, at = list[0], i, begins
			}
		}
		if next == nil {
			return taken, bound
		}
		if !left.take(next) {
			break
		}
		taken[which]++
	}
	lowered = bound
	for i, p := range planners {
		for _, b := range p.sequence.rest[taken[i]:] {
			if !b.fires() {
				lowered = min(lowered, b.entries[0].Request)
				break
			}
		}
	}
	if len(planners) == 1 {
		return taken, lowered
	}
	// Batches of several planners overlap in the log, so those that fit may have almost nothing below the first one
	// that does not. They are cut at the end of the room.
	if highest := fits(planners, had, lowered, bound); highest > lowered {
		for i, p := range planners {
			taken[i] = len(p.sequence.rest)
		}
		lowered = highest
	}
	return taken, lowered
}

// fits returns the highest position up to bound below which everything has room, or from if there is none. Batches that
// are whole below from are counted once.
func fits(planners []*Planner, all room, from, bound int64) int64 {
	rests := make([][]*Batch, len(planners))
	for i, p := range planners {
		rests[i] = p.sequence.rest
		for len(rests[i]) > 0 && rests[i][0].below(from) == len(rests[i][0].entries) {
			all.leave(rests[i][0], from)
			rests[i] = rests[i][1:]
		}
	}
	return from + int64(sort.Search(int(bound-from), func(more int) bool {
		left := all
		for _, rest := range rests {
			for len(rest) > 0 && left.leave(rest[0], from+int64(more)+1) {
				rest = rest[1:]
			}
		}
		return left.Entries < 0 || left.Bytes < 0
	}))
}

// leave reduces the room by the part of a batch that is below a bound, and reports whether that is the whole batch and
// there was room.
func (r *room) leave(b *Batch, bound int64) bool {
	n := b.below(bound)
	r.Entries, r.Bytes = r.Entries-n, r.Bytes-b.Bytes*int64(n)/int64(len(b.entries))
	return n == len(b.entries) && r.Entries >= 0 && r.Bytes >= 0
}

// cut returns the first n batches of rest, or those up to the first request that is not below bound. It
// splits a batch that has requests on both sides.
func (s *sequence) cut(n int, bound int64) []*Batch {
	list := s.rest
	for i, b := range list[:n] {
		if b.fires() || b.entries[len(b.entries)-1].Request < bound {
			continue
		}
		k := b.below(bound)
		if k == 0 {
			return list[:i]
		}
		rest := b.Split(k, b.Bytes*int64(k)/int64(len(b.entries)))
		s.rest = slices.Insert(list, i+1, rest)
		return s.rest[:i+1]
	}
	return list[:n]
}

// below returns how many entries of a batch are requests below a bound, or firings.
func (b *Batch) below(bound int64) int {
	if b.fires() {
		return len(b.entries)
	}
	k, _ := slices.BinarySearchFunc(b.entries, bound,
		func(e Entry, at int64) int { return int(min(1, max(-1, e.Request-at))) })
	return k
}

// sum counts the contents of a segment, and returns the position of its requests, 0 if there are none.
func (s *Segment) sum() (position int64) {
	for _, list := range [2][]*Batch{s.first, s.rest} {
		for _, b := range list {
			if b.fires() {
				s.Firings = s.Firings.Plus(b.Size())
				continue
			}
			s.Requests = s.Requests.Plus(b.Size())
			position = b.Position
		}
	}
	return position
}

// Return puts the entries of the step in flight back into the sequence. Entries that were rolled back or have expired
// stay so.
func Return(planners []*Planner) {
	for _, p := range planners {
		p.sequence.inFlight = nil
	}
}

// Commit takes the segment in flight off the sequence, and applies it: from then on its changes are dirty. It returns
// by how much the number of pending timers has grown. The caller holds the locks of all planners, and commits all of
// them before it releases one.
func (p *Planner) Commit() (pending int64) {
	q := &p.sequence
	s := q.inFlight
	q.first, q.rest = behind(q.first, s.first), behind(q.rest, s.rest)
	q.position, q.inFlight = s.Position, nil
	s.Changes()
	p.tally.commit(s)
	p.known.apply(s)
	return s.adds
}
