package packed

import (
	"bytes"

	"github.com/waterclock/waterclock/internal/timer"
)

// Gone are IDs of which nothing is pending, while the store has something: a checkpoint is to
// delete that. They are kept as their bytes, in chunks like those of a Wheel, found by ID alone.
// Make one with [NewGone].
type Gone struct {
	index *Index
	kind  int
	lists [2]bucket // what came since the last Freeze, and what a checkpoint deletes
	now   int       // which of them is the former
	bytes int64     // of that: see goneBytes
}

// NewGone returns an empty set, which tells an index of places of a kind.
func NewGone(index *Index, kind int) *Gone { return &Gone{index: index, kind: kind} }

// goneBytes is about how many bytes of memory an ID takes here.
func goneBytes(id []byte) int64 { return int64(len(id)) + 16 + overhead }

// Len is the number of IDs, those included that a checkpoint deletes.
func (g *Gone) Len() int { return g.lists[0].n + g.lists[1].n }

// Bytes is about how much memory those take that no checkpoint deletes yet.
func (g *Gone) Bytes() int64 { return g.bytes }

// Add takes in a copy of an ID with that sum, of at most MaxBytes, and where the store has it
// pending. It reports whether it did. The sum is nobody else's, in the index.
func (g *Gone) Add(id []byte, stored timer.Ref, sum uint64) bool {
	if len(id) > MaxBytes {
		return false
	}
	g.put(&Record{Bytes: id, State: Stale, Stored: stored}, sum)
	g.bytes += goneBytes(id)
	return true
}

func (g *Gone) put(r *Record, sum uint64) {
	c, offset := g.lists[g.now].append(r)
	g.index.Set(sum, RefOf(g.kind, uint64(placeOf(0, g.now, c, offset))))
}

// At returns an ID of the set, of which the index has said where it is. Its state is Stale, or
// Frozen where a checkpoint deletes it.
func (g *Gone) At(at Ref) (id []byte, stored timer.Ref, state State) {
	_, list, c, offset := place(at.Place()).split()
	r, _ := g.lists[list].chunks[c].read(offset)
	return g.public(list, &r)
}

// public is what a record of a list says.
func (g *Gone) public(list int, r *Record) (id []byte, stored timer.Ref, state State) {
	if list != g.now {
		return r.Bytes, timer.Absent, Frozen
	}
	return r.Bytes, r.Stored, Stale
}

// Take takes out an ID, of which the index has said where it is.
func (g *Gone) Take(at Ref) (id []byte, stored timer.Ref, state State) {
	id, stored, state = g.At(at)
	_, list, c, offset := place(at.Place()).split()
	g.lists[list].remove(c, offset)
	if list == g.now {
		g.bytes -= goneBytes(id)
		g.tidy()
	}
	return id, stored, state
}

// tidy copies what there is, if more than half of its memory is of what was taken out. What a
// checkpoint deletes is over soon.
func (g *Gone) tidy() {
	if b := &g.lists[g.now]; b.wasteful() {
		old := *b
		*b = bucket{}
		old.each(func(r *Record, _, _ int) { g.put(r, g.index.Sum(r.Bytes)) })
	}
}

// Each calls fn with each ID.
func (g *Gone) Each(fn func(id []byte, stored timer.Ref, state State)) {
	for i := range g.lists {
		g.lists[i].each(func(r *Record, _, _ int) { fn(g.public(i, r)) })
	}
}

// Clone is a copy for Each alone, whatever becomes of the set. It costs less than Each does.
func (g *Gone) Clone() (c Gone) {
	c.now = g.now
	for i := range g.lists {
		for _, from := range g.lists[i].chunks {
			if from.n > 0 {
				c.lists[i].chunks = append(c.lists[i].chunks, chunk{b: bytes.Clone(from.b)})
			}
		}
	}
	return c
}

// Freeze begins a checkpoint: it calls fn with each ID, and what the store has. The last one
// is over.
func (g *Gone) Freeze(fn func(id []byte, stored timer.Ref)) {
	g.lists[g.now].each(func(r *Record, _, _ int) { fn(r.Bytes, r.Stored) })
	g.now, g.bytes = 1-g.now, 0
}

// Thaw ends it: what it has deleted is forgotten, by the index too.
func (g *Gone) Thaw() {
	old := &g.lists[1-g.now]
	old.each(func(r *Record, _, _ int) { g.index.Delete(g.index.Sum(r.Bytes)) })
	*old = bucket{}
}
