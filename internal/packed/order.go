package packed

import (
	"math/bits"
	"slices"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/wheel"
)

// Next returns when First should be called next, in Unix milliseconds, or false for an empty
// wheel. It is never later than the earliest due time, and may be earlier by what a slot
// spans; First at that instant makes Next move on.
func (w *Wheel) Next() (due int64, ok bool) {
	if w.trim(); len(w.ready) > 0 {
		return w.ready[len(w.ready)-1].key.Due, true
	}
	level, slot, ok := w.firstSlot()
	if !ok {
		return 0, false
	}
	return int64(w.start(level, slot)<<w.grain ^ 1<<63), true
}

// First returns the key of the first record if that is due by now, in Unix milliseconds. Now
// may go back: then records wait until the clock is there again. What is due by now, and in
// the time of a slot that was opened, is refused by Add from then on.
func (w *Wheel) First(now int64) (wheel.Key, bool) {
	for {
		if w.trim(); len(w.ready) > 0 {
			e := &w.ready[len(w.ready)-1]
			return e.key, e.key.Due <= now
		}
		level, slot, ok := w.firstSlot()
		if !ok {
			return wheel.Key{}, false
		}
		limit, start := w.tick(now), w.start(level, slot)
		if start > limit {
			// Slots that begin later keep their place when taken moves up to now: the digits
			// above theirs are those of now as well.
			w.taken = max(w.taken, limit)
			return wheel.Key{}, false
		}
		w.openSlot(level, slot, start)
	}
}

// Pop takes out the record whose key First has returned just now.
func (w *Wheel) Pop() Record {
	e := w.ready[len(w.ready)-1]
	w.ready = w.ready[:len(w.ready)-1]
	r := w.at(e.at)
	w.remove(&r, e.at)
	w.tidy(0, int(w.taken&(slots-1)))
	return r.public()
}

// trim forgets what was taken out of what is ready.
func (w *Wheel) trim() {
	for n := len(w.ready); n > 0; n-- {
		if w.at(w.ready[n-1].at).State&alive != 0 {
			return
		}
		w.ready = w.ready[:n-1]
	}
	if cap(w.ready) > maxReady {
		w.ready = nil // not to hold on to what was long once
	}
}

// maxReady is how many entries there is room for while none is ready.
const maxReady = 4096

// firstSlot returns the place of the earliest slot that has a record and is not open.
func (w *Wheel) firstSlot() (level, slot int, ok bool) {
	for level, mask := range w.occupied {
		if mask != 0 {
			return level, bits.TrailingZeros64(mask), true
		}
	}
	return 0, 0, false
}

// start returns the first tick that belongs to a slot: the digits of taken above the level,
// then the slot's number, then zeros.
func (w *Wheel) start(level, slot int) uint64 {
	shift := level * slotBits
	above := w.taken >> shift >> slotBits << slotBits << shift
	return above | uint64(slot)<<shift
}

// openSlot moves taken to start, the first tick of the earliest slot, and spreads its
// records, or lists them if they have no other tick. Nothing is ready.
func (w *Wheel) openSlot(level, slot int, start uint64) {
	b := &w.buckets[level][slot]
	w.occupied[level] &^= 1 << slot
	w.taken = start
	if level > 0 {
		old := *b
		*b = bucket{}
		w.spread(&old)
		return
	}
	w.ready = slices.Grow(w.ready[:0], b.n)
	w.each(0, slot, func(r *Record, at place) {
		w.ready = append(w.ready, entry{r.key(), at})
	})
	slices.SortFunc(w.ready, func(x, y entry) int { return y.key.Compare(x.key) })
}

func (r *Record) key() wheel.Key {
	_, at, _ := timer.DecodePlace(r.Bytes)
	return wheel.Key{Due: at.Due, Seq: at.Offset}
}

// each calls fn with each record of a slot, which it may take out.
func (w *Wheel) each(level, slot int, fn func(*Record, place)) {
	w.buckets[level][slot].each(func(r *Record, i, offset int) { fn(r, placeOf(level, slot, i, offset)) })
}

// each calls fn with each record, which is not to be kept, and the chunk and offset that it is
// at.
func (b *bucket) each(fn func(r *Record, i, offset int)) {
	var r Record // one: it escapes
	for i := range b.chunks {
		c := chunk{b: b.chunks[i].b} // fn may empty it
		for offset, next := 0, 0; offset < len(c.b); offset = next {
			if r, next = c.read(offset); r.State&alive != 0 {
				fn(&r, i, offset)
			}
		}
	}
}

// markedSlots calls fn with each slot that has records that are stale or frozen. fn may take
// them out.
func (w *Wheel) markedSlots(fn func(level, slot int)) {
	for level, all := range w.buckets {
		if all == nil {
			continue
		}
		for slot := range all {
			if all[slot].marked > 0 {
				fn(level, slot)
			}
		}
	}
}

// Marks calls fn with each record that is stale or frozen, in no order.
func (w *Wheel) Marks(fn func(Record)) {
	w.markedSlots(func(level, slot int) {
		w.each(level, slot, func(r *Record, _ place) {
			if marks(r.State) != 0 {
				fn(r.public())
			}
		})
	})
}

// Freeze calls fn with each record that is stale, which is frozen then, in no order. None is
// frozen before.
func (w *Wheel) Freeze(fn func(Record)) {
	w.markedSlots(func(level, slot int) {
		w.each(level, slot, func(r *Record, at place) {
			if r.State&Stale != 0 {
				fn(r.public())
				w.mark(at, r.State&^Stale|Frozen)
				w.stale -= r.Size()
			}
		})
	})
}

// mark changes the state of a record that stays marked.
func (w *Wheel) mark(at place, s State) {
	level, slot, c, offset := at.split()
	w.buckets[level][slot].chunks[c].b[offset] = byte(s)
}

// Thaw has each record that is frozen be neither stale nor frozen; or takes it out and calls
// takeOut, which may be nil, with it.
func (w *Wheel) Thaw(takeOut func(Record)) {
	w.markedSlots(func(level, slot int) {
		b := &w.buckets[level][slot]
		w.each(level, slot, func(r *Record, at place) {
			if r.State&Frozen == 0 {
				return
			}
			if takeOut != nil {
				w.remove(r, at)
				takeOut(r.public())
				return
			}
			w.mark(at, r.State&^Frozen)
			b.marked--
			w.marked--
		})
		w.tidy(level, slot)
	})
}

// EvictFrom takes out every record with a key >= k and calls fn with each, in no order. It
// costs what it takes out, and the records of the one slot that k lies in.
func (w *Wheel) EvictFrom(k wheel.Key, fn func(Record)) {
	from := w.tick(k.Due)
	for level := levels - 1; level >= 0; level-- {
		for mask := w.occupied[level]; mask != 0; {
			slot := 63 - bits.LeadingZeros64(mask)
			mask &^= 1 << slot
			if w.start(level, slot)|(1<<(level*slotBits)-1) < from {
				break // as do all slots before it
			}
			w.each(level, slot, func(r *Record, at place) {
				if r.key().Compare(k) >= 0 {
					w.remove(r, at)
					fn(r.public())
				}
			})
			w.tidy(level, slot)
		}
	}
	i, _ := slices.BinarySearchFunc(w.ready, k, func(e entry, k wheel.Key) int { return k.Compare(e.key) })
	for i < len(w.ready) && w.ready[i].key == k {
		i++
	}
	for _, e := range w.ready[:i] {
		if r := w.at(e.at); r.State&alive != 0 {
			w.remove(&r, e.at)
			fn(r.public())
		}
	}
	if w.ready = slices.Delete(w.ready, 0, i); i > 0 {
		w.tidy(0, int(w.taken&(slots-1)))
	}
}

// Farthest returns the key of the n-th record from the far end, so that EvictFrom of it takes
// out n; 1 <= n <= Len. It visits about n records, and one slot: for rare use, when memory
// has run short.
func (w *Wheel) Farthest(n int) wheel.Key {
	var keys []wheel.Key
	for level := levels - 1; level >= 0; level-- {
		for mask := w.occupied[level]; mask != 0; {
			slot := 63 - bits.LeadingZeros64(mask)
			mask &^= 1 << slot
			if has := w.buckets[level][slot].n; has < n {
				n -= has
				continue
			}
			w.each(level, slot, func(r *Record, _ place) { keys = append(keys, r.key()) })
			slices.SortFunc(keys, wheel.Key.Compare)
			return keys[len(keys)-n]
		}
	}
	for i := range w.ready {
		if w.at(w.ready[i].at).State&alive == 0 {
			continue
		}
		if n--; n == 0 {
			return w.ready[i].key
		}
	}
	return wheel.Key{}
}

// Lower moves the wheel back, so that Add takes what is due from a time on. Records below the
// level at which the two times differ move to that level, where all of them are later.
func (w *Wheel) Lower(due int64) {
	to := max(w.tick(due), 1) - 1
	if to >= w.taken {
		return
	}
	open := int(w.taken & (slots - 1))
	if w.buckets[0] != nil && w.buckets[0][open].n > 0 {
		w.occupied[0] |= 1 << open
	}
	level := (63 - bits.LeadingZeros64(to^w.taken)) / slotBits
	w.taken, w.ready = to, nil
	for below, all := range w.buckets[:level] {
		if all == nil {
			continue
		}
		w.occupied[below] = 0
		for i := range all {
			old := all[i]
			all[i] = bucket{}
			w.spread(&old)
		}
	}
	if level == 0 && w.buckets[0] != nil {
		w.tidy(0, open) // which it left alone while it was open
	}
}
