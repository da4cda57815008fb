package memtable

import (
	"math/bits"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	slotBits = 6
	slots    = 1 << slotBits
	levels   = (64 + slotBits - 1) / slotBits
)

// place is the position of a record: level, slot, chunk and offset.
type place uint64

const (
	offsetBits = 16
	chunkBits  = 32
	slotAt     = offsetBits + chunkBits
	levelAt    = slotAt + slotBits
)

func placeOf(level, slot, chunk, offset int) place {
	return place(level)<<levelAt | place(slot)<<slotAt | place(chunk)<<offsetBits | place(offset)
}

func (p place) split() (level, slot, chunk, offset int) {
	return int(p >> levelAt), int(p >> slotAt & (slots - 1)), int(p >> offsetBits & (1<<chunkBits - 1)),
		int(p & (1<<offsetBits - 1))
}

// slotted has records in the slots of a timing wheel.
//
// Invariant: a record whose tick is after taken lies in the slot named by the highest digit (of slotBits bits) in
// which the two differ: the level is the digit's place, the slot its value. All others lie in the open slot, that
// of taken at the finest level, which is not occupied.
type slotted struct {
	grain uint   // a tick has 1<<grain ms
	taken uint64 // the last tick whose slot was opened, or passed over

	occupied [levels]uint64 // bit s: slot s of the level has a record
	buckets  [levels]*[slots]bucket
}

func (s *slotted) tick(ms int64) uint64 { return (uint64(ms) ^ 1<<63) >> s.grain }

// isOpen reports whether the slot of an instant is, or was, open.
func (s *slotted) isOpen(due int64) bool { return s.tick(due) <= s.taken }

// open returns the slot that is open.
func (s *slotted) open() int { return int(s.taken & (slots - 1)) }

// append adds a copy of a record to its slot.
func (s *slotted) append(r *Record, tick uint64) place {
	level, slot := 0, s.open()
	if tick > s.taken {
		level = (63 - bits.LeadingZeros64(tick^s.taken)) / slotBits
		slot = int(tick>>(level*slotBits)) & (slots - 1)
		s.occupied[level] |= 1 << slot
	}
	if s.buckets[level] == nil {
		s.buckets[level] = new([slots]bucket)
	}
	c, offset := s.buckets[level][slot].append(r)
	return placeOf(level, slot, c, offset)
}

// at returns the record at a place.
func (s *slotted) at(p place) Record {
	level, slot, c, offset := p.split()
	return s.buckets[level][slot].at(c, offset)
}

func (s *slotted) isAlive(p place) bool {
	level, slot, c, offset := p.split()
	return s.buckets[level][slot].isAlive(c, offset)
}

// first returns the earliest slot that is occupied.
func (s *slotted) first() (level, slot int, ok bool) {
	for level, mask := range s.occupied {
		if mask != 0 {
			return level, bits.TrailingZeros64(mask), true
		}
	}
	return 0, 0, false
}

// start returns the first tick that belongs to a slot: the digits of taken above the level, then the slot's number,
// then zeros.
func (s *slotted) start(level, slot int) uint64 {
	shift := level * slotBits
	above := s.taken >> shift >> slotBits << slotBits << shift
	return above | uint64(slot)<<shift
}

// backward returns the slots that are occupied, the latest one first.
func (s *slotted) backward(yield func(level, slot int) bool) {
	for level := levels - 1; level >= 0; level-- {
		for mask := s.occupied[level]; mask != 0; {
			slot := 63 - bits.LeadingZeros64(mask)
			mask &^= 1 << slot
			if !yield(level, slot) {
				return
			}
		}
	}
}

// each calls fn with each record of a slot. fn may take it out.
func (s *slotted) each(level, slot int, fn func(*Record, place)) {
	s.buckets[level][slot].each(func(r *Record, i, offset int) { fn(r, placeOf(level, slot, i, offset)) })
}

// eachMarked calls fn with each record that is dirty or being flushed.
func (s *slotted) eachMarked(fn func(*Record, place)) {
	for level, all := range s.buckets {
		if all == nil {
			continue
		}
		for slot := range all {
			all[slot].eachMarked(func(r *Record, i, offset int) { fn(r, placeOf(level, slot, i, offset)) })
		}
	}
}

// share appends to a list the chunks with a record that is dirty or being flushed.
func (s *slotted) share(list []Chunk, as Chunk) []Chunk {
	for _, all := range s.buckets {
		if all == nil {
			continue
		}
		for slot := range all {
			list = all[slot].share(list, as)
		}
	}
	return list
}

// layer has later records and tombstones: the committed changes above the horizon. There are two layers. The active one
// takes the changes of committed steps. A checkpoint writes the other one. When a checkpoint begins, the two change
// places. When it has ended, the layer that it has written is forgotten as a whole, without a look at any record,
// because each layer has memory and an index of its own.
//
// These things can happen between the two moments:
//
//   - A request or a firing meets a record that is being flushed, and Decode takes it out of its layer. Then the end of
//     the checkpoint does not forget it. It is an object, and when it is a record or a tombstone again, that is dirty
//     and goes to the active layer. The caller knows the place that the store will have for it.
//   - The horizon rises or falls, and a record becomes soon or later. It keeps its state, and a later record is in the
//     layer of its state. So each layer has records of one state.
//   - A step is rolled back or aborted. Its entries refer to objects, which are in no layer.
//   - The checkpoint fails, or the process dies. Then the table is not used any more: the store's state is replayed
//     from its position. So nothing that is being flushed becomes dirty again.
//
// Invariant: the layer that is not active is empty unless a checkpoint is under way.
type layer struct {
	later      *wheel // records only
	tombstones bucket
	buried     int64 // bytes of the tombstones
}

// layers are the active layer and the one that a checkpoint writes.
type layers struct {
	both   [2]layer
	active int // the number of the active one; a checkpoint writes the other one
}

// in returns the layer for records in a state.
func (l *layers) in(s State) *layer {
	if s&Flushing != 0 {
		return &l.both[1-l.active]
	}
	return &l.both[l.active]
}

// whole completes a record or a tombstone that was read from a layer. When a checkpoint begins, the records of its
// layer are not marked one by one.
func (l *layers) whole(at Ref, r Record) Record {
	if at.layer() != l.active {
		r.State, r.Stored = Flushing, timer.Absent
	}
	return r.public()
}

// tombstoneBytes returns about how many bytes of memory a tombstone takes.
func tombstoneBytes(id []byte) int64 { return int64(len(id)) + 16 + overhead }

// bury adds a tombstone.
func (l *layer) bury(r *Record) place {
	l.buried += tombstoneBytes(r.Bytes)
	c, offset := l.tombstones.append(r)
	return placeOf(0, 0, c, offset)
}

// exhume takes out a tombstone. If dead ones then take much of the memory, the others move.
func (l *layer) exhume(at place, moved func(id []byte, from, to place)) {
	_, _, c, offset := at.split()
	r := l.tombstones.at(c, offset)
	l.buried -= tombstoneBytes(r.Bytes)
	if l.tombstones.remove(&r, c, offset); !l.tombstones.wasteful() {
		return
	}
	old := l.tombstones
	l.tombstones, l.buried = bucket{}, 0
	old.each(func(r *Record, c, offset int) { moved(r.Bytes, placeOf(0, 0, c, offset), l.bury(r)) })
}

// maxReady is the number of entries for which memory is kept while none is ready. It is also the number by which the
// entries of dead records may exceed half of all entries.
const maxReady = 256

// queue has the records of the open slot in the order of firing. Dead records may have an entry, too.
type queue struct {
	ready []entry // in order, the next one last
	late  heap    // records that were added since the slot was opened
}

// entry is a record of the open slot.
type entry struct {
	key timer.Ref
	at  place
}

func (q *queue) len() int { return len(q.ready) + len(q.late) }

// head returns the first entry of a live record, and forgets the entries before it.
func (q *queue) head(isAlive func(place) bool) (e entry, ok bool) {
	for n := len(q.ready); n > 0 && !isAlive(q.ready[n-1].at); n-- {
		q.ready = q.ready[:n-1]
	}
	for len(q.late) > 0 && !isAlive(q.late[0].at) {
		q.late.pop()
	}
	if n := len(q.ready); n > 0 {
		e, ok = q.ready[n-1], true
	}
	if len(q.late) > 0 && (!ok || q.late[0].key.Compare(e.key) < 0) {
		e, ok = q.late[0], true
	}
	return e, ok
}

// clear forgets all entries.
func (q *queue) clear() {
	q.ready, q.late = q.ready[:0], q.late[:0]
	if cap(q.ready) > maxReady { // frees a list that was long
		q.ready = nil
	}
	if cap(q.late) > maxReady {
		q.late = nil
	}
}

// heap is a binary heap, the least key first.
type heap []entry

func (h *heap) push(e entry) {
	*h = append(*h, e)
	a := *h
	for i := len(a) - 1; i > 0; {
		up := (i - 1) / 2
		if a[up].key.Compare(a[i].key) <= 0 {
			return
		}
		a[up], a[i] = a[i], a[up]
		i = up
	}
}

func (h *heap) pop() {
	a := *h
	last := len(a) - 1
	a[0] = a[last]
	a = a[:last]
	*h = a
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if a[child].key.Compare(a[least].key) < 0 {
				least = child
			}
		}
		if least == i {
			return
		}
		a[i], a[least] = a[least], a[i]
		i = least
	}
}
