package memtable

import (
	"math/bits"
	"slices"

	"github.com/waterclock/waterclock/internal/timer"
)

// wheel has records and references in the order of firing. It is a hierarchical timing wheel whose slots are buckets.
// So a record takes no memory for the order, and when records fire, or move to a lower level, whole chunks become free.
// A slot of the finest level is sorted when its time has come.
//
// A record that is past due when it is added is ready immediately. If the clock goes back, records wait until the clock
// has reached their due times again.
//
// Invariant: the queue has an entry for each record of the open slot.
type wheel struct {
	slotted
	queue  queue
	moved  func(r *Record, id []byte, from, to Ref)
	as     Ref // the Ref of each record, without the place
	n      int
	bytes  int64 // see Record.Size
	marked int   // records that are dirty or being flushed
}

func newWheel(as Ref, now int64, grain uint, moved func(*Record, []byte, Ref, Ref)) *wheel {
	w := &wheel{as: as, moved: moved, slotted: slotted{grain: grain}}
	w.taken = w.tick(now)
	return w
}

func (w *wheel) ref(p place) Ref { return w.as | Ref(p) }

// fits reports whether a timer can be a record. A large timer cannot, nor one that is due before the open slot ends,
// because it would be decoded again soon.
func (w *wheel) fits(r *Record, key timer.Ref) bool {
	return len(r.Bytes) <= MaxBytes && !w.isOpen(key.Due)
}

// add adds a copy of a record.
func (w *wheel) add(r *Record, key timer.Ref) Ref {
	w.count(r, 1)
	return w.ref(w.put(r, key))
}

// put puts a record in its slot.
func (w *wheel) put(r *Record, key timer.Ref) place {
	at := w.append(r, w.tick(key.Due))
	if w.isOpen(key.Due) && w.occupied[0]>>w.open()&1 == 0 { // otherwise the slot is about to be opened
		w.queue.late.push(entry{key, at})
	}
	return at
}

// take takes out a record. The caller updates the directory.
func (w *wheel) take(at place) Record {
	r := w.at(at)
	w.remove(&r, at)
	level, slot, _, _ := at.split()
	w.tidy(level, slot)
	return r
}

// remove takes out a record. The caller tidies its slot after that.
func (w *wheel) remove(r *Record, at place) {
	level, slot, i, offset := at.split()
	w.buckets[level][slot].remove(r, i, offset)
	w.count(r, -1)
}

// count counts a record that was added (1) or removed (-1).
func (w *wheel) count(r *Record, n int) {
	w.n += n
	w.bytes += r.Size() * int64(n)
	w.marked += marks(r.State) * n
}

// tidy looks at a slot that has lost records. If dead records take much of it, or have many entries, the others move.
func (w *wheel) tidy(level, slot int) {
	b, open := &w.buckets[level][slot], level == 0 && slot == w.open()
	switch {
	case b.n == 0:
		*b = bucket{}
		w.occupied[level] &^= 1 << slot
		if open {
			w.queue.clear()
		}
	case b.wasteful(), open && w.queue.len() > 2*b.n+maxReady:
		if open {
			w.queue.clear()
		}
		w.spread(level, slot)
	}
}

// spread takes all records of a slot and puts each into the slot that is right for it now.
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
				w.moved(&r, id, w.ref(placeOf(level, slot, i, offset)), w.ref(w.put(&r, key)))
			}
		}
		c.b = nil // its records are elsewhere now
	}
}

// next returns when first should be called next: see Table.Next.
func (w *wheel) next() (due int64, ok bool) {
	if e, ok := w.queue.head(w.isAlive); ok {
		return e.key.Due, true
	}
	level, slot, ok := w.slotted.first()
	if !ok {
		return 0, false
	}
	return int64(w.start(level, slot)<<w.grain ^ 1<<63), true
}

// first returns the first record, and whether it is due.
func (w *wheel) first(now int64) (entry, bool) {
	for {
		if e, ok := w.queue.head(w.isAlive); ok {
			return e, e.key.Due <= now
		}
		level, slot, ok := w.slotted.first()
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

// openSlot moves taken to start, the first tick of the earliest slot. It spreads the slot's records, or queues them if
// all have that tick. The queue has no live record before.
func (w *wheel) openSlot(level, slot int, start uint64) {
	w.taken = start
	if w.queue.clear(); level > 0 {
		w.occupied[0] |= 1 << w.open() // it is opened next
		w.spread(level, slot)
		return
	}
	w.occupied[0] &^= 1 << slot
	if w.buckets[0] == nil {
		return
	}
	ready := slices.Grow(w.queue.ready, w.buckets[0][slot].n)
	w.each(0, slot, func(r *Record, at place) { ready = append(ready, entry{r.key(), at}) })
	slices.SortFunc(ready, func(x, y entry) int { return y.key.Compare(x.key) })
	w.queue.ready = ready
}

// flush makes each dirty record a flushing one, and calls fn with it. There is no flushing one before.
func (w *wheel) flush(fn func(Record)) {
	w.eachMarked(func(r *Record, at place) {
		fn(r.public())
		w.mark(at, r.State&^Dirty|Flushing)
	})
}

// flushed makes each flushing record clean.
func (w *wheel) flushed() {
	w.eachMarked(func(r *Record, at place) {
		if r.State&Flushing == 0 {
			return
		}
		w.mark(at, r.State&^Flushing)
		level, slot, c, _ := at.split()
		w.buckets[level][slot].mark(c, -1)
		w.marked--
	})
}

func (w *wheel) mark(at place, s State) {
	level, slot, c, offset := at.split()
	w.buckets[level][slot].chunks[c].set(offset, s)
}

// evict takes out every record with a key >= k and calls fn with each, in no order. It reads these records, those of
// the slot that k lies in, and those of the open slot if k is due there.
func (w *wheel) evict(k timer.Ref, fn func(r *Record, at place)) {
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
	for level, slot := range w.backward {
		if w.start(level, slot)|(1<<(level*slotBits)-1) < from {
			break // as do all slots before it
		}
		evict(level, slot)
	}
	if from <= w.taken && w.buckets[0] != nil {
		evict(0, w.open())
	}
}

// farthest returns the key of the n-th record from the far end, 1 <= n <= w.n. evict takes out n records from there. It
// sorts one slot, which is acceptable because it is called only when memory has run short.
func (w *wheel) farthest(n int) timer.Ref {
	for level, slot := range w.backward {
		size := w.buckets[level][slot].n
		if size >= n {
			return w.nthLast(level, slot, n)
		}
		n -= size
	}
	return w.nthLast(0, w.open(), n)
}

// nthLast returns the n-th largest key of a slot.
func (w *wheel) nthLast(level, slot, n int) timer.Ref {
	var keys []timer.Ref
	w.each(level, slot, func(r *Record, _ place) { keys = append(keys, r.key()) })
	slices.SortFunc(keys, timer.Ref.Compare)
	return keys[len(keys)-n]
}

// lower moves the wheel back, so that records that are due from a time on wait in slots again. Records below the level
// at which the two times differ move to that level, except those that are due before.
func (w *wheel) lower(due int64) {
	to := max(w.tick(due), 1) - 1
	if to >= w.taken {
		return
	}
	level := (63 - bits.LeadingZeros64(to^w.taken)) / slotBits
	w.taken = to
	w.queue.clear()
	for below, all := range w.buckets[:max(level, 1)] {
		if all == nil {
			continue
		}
		for slot := range all {
			w.spread(below, slot)
		}
	}
}
