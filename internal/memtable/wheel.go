package memtable

import (
	"math/bits"
	"slices"
)

const (
	slotBits = 6
	slots    = 1 << slotBits
	levels   = (64 + slotBits - 1) / slotBits
	// maxReady is how many entries there is room for while none is ready, and how many more than
	// half of them may be of dead records.
	maxReady = 256
)

// wheel has records and references in the order of firing. It is a hierarchical timing wheel whose slots are
// buckets: so the order costs a record no memory beside its bytes, and what is given out, or moves to a lower
// level, leaves whole chunks behind. A slot of the finest level is sorted when its time has come.
//
// It may be given what is past due: that is ready at once. Now may go back: then records wait until the clock is
// there again.
//
// Invariant: a record whose tick is after taken lies in the slot named by the highest digit (of slotBits bits) in
// which the two differ: the level is the digit's place, the slot its value. All others lie in the open slot, that
// of taken at the finest level. It is not occupied, and ready and late have an entry for each record in it, and for
// dead ones.
type wheel struct {
	moved  func(r *Record, id []byte, from, to Ref)
	kind   Kind
	grain  uint   // a tick has 1<<grain ms
	taken  uint64 // the last tick whose slot was opened, or passed over
	n      int
	bytes  int64 // see Record.Size
	dirty  int64 // those of records that are dirty
	marked int   // records that are dirty or being flushed

	occupied [levels]uint64 // bit s: slot s of the level has a record
	buckets  [levels]*[slots]bucket

	ready []entry // in order, the next one last
	late  heap    // of what came to the open slot since
}

// entry is a record of the open slot.
type entry struct {
	key Key
	at  place
}

// place is where a record begins: level, slot, chunk and offset.
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
	return int(p >> levelAt), int(p >> slotAt & (slots - 1)), int(p >> offsetBits & (1<<chunkBits - 1)), int(p & (1<<offsetBits - 1))
}

func newWheel(kind Kind, now int64, grain uint, moved func(*Record, []byte, Ref, Ref)) *wheel {
	w := &wheel{kind: kind, grain: grain, moved: moved}
	w.taken = w.tick(now)
	return w
}

func (w *wheel) tick(ms int64) uint64 { return (uint64(ms) ^ 1<<63) >> w.grain }

// isOpen reports whether the slot of an instant is open, or was.
func (w *wheel) isOpen(due int64) bool { return w.tick(due) <= w.taken }

// add takes in a copy of a record.
func (w *wheel) add(r *Record, key Key) Ref {
	w.count(r, 1)
	return refOf(w.kind, w.put(r, key))
}

// put puts a record in its slot.
func (w *wheel) put(r *Record, key Key) place {
	level, slot := 0, w.open()
	tick := w.tick(key.Due)
	if tick > w.taken {
		level = (63 - bits.LeadingZeros64(tick^w.taken)) / slotBits
		slot = int(tick>>(level*slotBits)) & (slots - 1)
		w.occupied[level] |= 1 << slot
	}
	if w.buckets[level] == nil {
		w.buckets[level] = new([slots]bucket)
	}
	c, offset := w.buckets[level][slot].append(r)
	at := placeOf(level, slot, c, offset)
	if tick <= w.taken && w.occupied[0]>>slot&1 == 0 { // else it is about to be opened
		w.late.push(entry{key, at})
	}
	return at
}

// open is the slot that is.
func (w *wheel) open() int { return int(w.taken & (slots - 1)) }

// at returns the record at a place.
func (w *wheel) at(p place) Record {
	level, slot, c, offset := p.split()
	return w.buckets[level][slot].at(c, offset)
}

func (w *wheel) isAlive(p place) bool {
	level, slot, c, offset := p.split()
	return w.buckets[level][slot].isAlive(c, offset)
}

// take takes out a record. The caller tells the index.
func (w *wheel) take(at place) Record {
	r := w.at(at)
	w.remove(&r, at)
	level, slot, _, _ := at.split()
	w.tidy(level, slot)
	return r
}

// remove takes out a record. Its slot is to be tidied then.
func (w *wheel) remove(r *Record, at place) {
	level, slot, i, offset := at.split()
	w.buckets[level][slot].remove(r, i, offset)
	w.count(r, -1)
}

// count counts a record that came, or with -1 went.
func (w *wheel) count(r *Record, n int) {
	size := r.Size() * int64(n)
	w.n += n
	w.bytes += size
	w.marked += marks(r.State) * n
	if r.State&Dirty != 0 {
		w.dirty += size
	}
}

// tidy looks at a slot of which records were taken out. If much of it is dead, or many entries are of dead records,
// the others move.
func (w *wheel) tidy(level, slot int) {
	b, open := &w.buckets[level][slot], level == 0 && slot == w.open()
	switch {
	case b.n == 0:
		*b = bucket{}
		w.occupied[level] &^= 1 << slot
		if open {
			w.clear()
		}
	case b.wasteful(), open && len(w.ready)+len(w.late) > 2*b.n+maxReady:
		if open {
			w.clear()
		}
		w.spread(level, slot)
	}
}

// clear forgets all entries.
func (w *wheel) clear() {
	w.ready, w.late = w.ready[:0], w.late[:0]
	if cap(w.ready) > maxReady { // not to hold on to what was long once
		w.ready = nil
	}
	if cap(w.late) > maxReady {
		w.late = nil
	}
}

// spread puts the records of a slot anew.
func (w *wheel) spread(level, slot int) {
	b := &w.buckets[level][slot]
	old := *b
	*b = bucket{}
	w.occupied[level] &^= 1 << slot
	var r Record // one: it escapes
	for i := range old.chunks {
		c := &old.chunks[i]
		for offset, next := 0, 0; offset < len(c.b); offset = next {
			if r, next = c.read(offset); r.State&alive != 0 {
				id, key := r.place()
				w.moved(&r, id, refOf(w.kind, placeOf(level, slot, i, offset)), refOf(w.kind, w.put(&r, key)))
			}
		}
		c.b = nil // it may be a lot, and what it held is elsewhere
	}
}

// next returns when first should be called next, false for an empty wheel. It is never later than the
// earliest key, and may be earlier by what a slot spans; first at that instant makes next move on.
func (w *wheel) next() (due int64, ok bool) {
	if e, ok := w.head(); ok {
		return e.key.Due, true
	}
	level, slot, ok := w.firstSlot()
	if !ok {
		return 0, false
	}
	return int64(w.start(level, slot)<<w.grain ^ 1<<63), true
}

// first returns the first record and reports whether that is due by now.
func (w *wheel) first(now int64) (entry, bool) {
	for {
		if e, ok := w.head(); ok {
			return e, e.key.Due <= now
		}
		level, slot, ok := w.firstSlot()
		if !ok {
			return entry{}, false
		}
		limit, start := w.tick(now), w.start(level, slot)
		if start > limit {
			// Slots that begin later keep their place when taken moves up to now: the digits
			// above theirs are those of now as well.
			w.taken = max(w.taken, limit)
			return entry{}, false
		}
		w.openSlot(level, slot, start)
	}
}

// head returns the first entry, and forgets those of dead records before it.
func (w *wheel) head() (e entry, ok bool) {
	for n := len(w.ready); n > 0 && !w.isAlive(w.ready[n-1].at); n-- {
		w.ready = w.ready[:n-1]
	}
	for len(w.late) > 0 && !w.isAlive(w.late[0].at) {
		w.late.pop()
	}
	if n := len(w.ready); n > 0 {
		e, ok = w.ready[n-1], true
	}
	if len(w.late) > 0 && (!ok || w.late[0].key.Compare(e.key) < 0) {
		e, ok = w.late[0], true
	}
	return e, ok
}

// firstSlot returns the place of the earliest slot that is occupied.
func (w *wheel) firstSlot() (level, slot int, ok bool) {
	for level, mask := range w.occupied {
		if mask != 0 {
			return level, bits.TrailingZeros64(mask), true
		}
	}
	return 0, 0, false
}

// start returns the first tick that belongs to a slot: the digits of taken
// above the level, then the slot's number, then zeros.
func (w *wheel) start(level, slot int) uint64 {
	shift := level * slotBits
	above := w.taken >> shift >> slotBits << slotBits << shift
	return above | uint64(slot)<<shift
}

// openSlot moves taken to start, the first tick of the earliest slot, and spreads its records, or lists them if
// they have no other tick. There is no entry of a live record.
func (w *wheel) openSlot(level, slot int, start uint64) {
	w.taken = start
	if w.clear(); level > 0 {
		w.occupied[0] |= 1 << w.open() // it is opened next
		w.spread(level, slot)
		return
	}
	w.occupied[0] &^= 1 << slot
	if w.buckets[0] == nil {
		return
	}
	w.ready = slices.Grow(w.ready, w.buckets[0][slot].n)
	w.each(0, slot, func(r *Record, at place) { w.ready = append(w.ready, entry{r.key(), at}) })
	slices.SortFunc(w.ready, func(x, y entry) int { return y.key.Compare(x.key) })
}

// each calls fn with each record of a slot, which it may take out.
func (w *wheel) each(level, slot int, fn func(*Record, place)) {
	w.buckets[level][slot].each(func(r *Record, i, offset int) { fn(r, placeOf(level, slot, i, offset)) })
}

// eachMarked calls fn with each record that is dirty or being flushed, which it may take out.
func (w *wheel) eachMarked(fn func(*Record, place)) {
	for level, all := range w.buckets {
		if all == nil {
			continue
		}
		for slot := range all {
			if all[slot].marked == 0 {
				continue
			}
			all[slot].eachMarked(func(r *Record, i, offset int) { fn(r, placeOf(level, slot, i, offset)) })
			w.tidy(level, slot)
		}
	}
}

// flush has each record that is dirty be one that is being flushed, and calls fn with it. None is before.
func (w *wheel) flush(fn func(Record)) {
	w.eachMarked(func(r *Record, at place) {
		fn(r.public())
		w.mark(at, r.State&^Dirty|Flushing)
		w.dirty -= r.Size()
	})
}

// clean has a record that is being flushed be neither.
func (w *wheel) clean(r *Record, at place) {
	level, slot, c, _ := at.split()
	w.mark(at, r.State&^Flushing)
	w.buckets[level][slot].mark(c, -1)
	w.marked--
}

func (w *wheel) mark(at place, s State) {
	level, slot, c, offset := at.split()
	w.buckets[level][slot].chunks[c].b[offset] = byte(s)
}

// evict takes out every record with a key >= k and calls fn with each, in no order. It
// costs what it takes out, and the records of the one slot that k lies in, and of the open one if k is due there.
func (w *wheel) evict(k Key, fn func(r *Record, at place)) {
	from := w.tick(k.Due)
	evict := func(level, slot int) {
		w.each(level, slot, func(r *Record, at place) {
			if r.key().Compare(k) >= 0 {
				w.remove(r, at)
				fn(r, at)
			}
		})
		w.tidy(level, slot)
	}
	for level := levels - 1; level >= 0; level-- {
		for mask := w.occupied[level]; mask != 0; {
			slot := 63 - bits.LeadingZeros64(mask)
			mask &^= 1 << slot
			if w.start(level, slot)|(1<<(level*slotBits)-1) < from {
				break // as do all slots before it
			}
			evict(level, slot)
		}
	}
	if from <= w.taken && w.buckets[0] != nil {
		evict(0, w.open())
	}
}

// farthest returns the key of the n-th record from the far end, so that evict of it takes
// out n; 1 <= n <= w.n. It visits about n records, and one slot: for rare use, when memory
// has run short.
func (w *wheel) farthest(n int) Key {
	for level := levels - 1; level >= 0; level-- {
		for mask := w.occupied[level]; mask != 0; {
			slot := 63 - bits.LeadingZeros64(mask)
			mask &^= 1 << slot
			if has := w.buckets[level][slot].n; has >= n {
				return w.nthLast(level, slot, n)
			} else {
				n -= has
			}
		}
	}
	return w.nthLast(0, w.open(), n)
}

// nthLast returns the n-th largest key of a slot.
func (w *wheel) nthLast(level, slot, n int) Key {
	var keys []Key
	w.each(level, slot, func(r *Record, _ place) { keys = append(keys, r.key()) })
	slices.SortFunc(keys, Key.Compare)
	return keys[len(keys)-n]
}

// lower moves the wheel back, so that what is due from a time on is in slots again. Records below the
// level at which the two times differ move to that level, but for what is due before.
func (w *wheel) lower(due int64) {
	to := max(w.tick(due), 1) - 1
	if to >= w.taken {
		return
	}
	level := (63 - bits.LeadingZeros64(to^w.taken)) / slotBits
	w.taken = to
	w.clear()
	for below, all := range w.buckets[:max(level, 1)] {
		if all == nil {
			continue
		}
		for slot := range all {
			w.spread(below, slot)
		}
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
