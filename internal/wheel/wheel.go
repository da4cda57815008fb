// Package wheel keeps the timers of one partition that fall due soon, in
// memory, and hands them out in the order they fall due.
//
// It is a hierarchical timing wheel with a grain of one millisecond. Insert and
// Remove take constant time and allocate nothing: entries are linked through
// themselves. The obvious design, one heap, pays O(log n) with a cache miss at
// each step for every timer, also for the many that are cancelled or replaced
// before they fall due. Here an unsorted slot is sorted once, when its
// millisecond has come, and a slot whose entries came in order is only walked.
//
// What it promises: an entry is never popped before its due time by the caller's
// clock; entries are popped in (Due, Seq) order, whatever the order they came
// in; a clock that jumps by hours costs no step per millisecond, and one that
// goes back delays entries and breaks nothing.
//
// What it does not: it has no clock, starts no goroutine, takes no lock and
// bounds no memory (see [Wheel.Farthest] for how the caller does). A Wheel
// belongs to one goroutine at a time.
package wheel

import "math/bits"

// Key places an entry in the order of firing: by Due, then by Seq.
type Key struct {
	// Due is the instant from which the entry may be popped, in Unix
	// milliseconds. Every int64 is allowed; what is past is due at once.
	Due int64
	// Seq breaks ties of Due. Entries with equal keys pop in any order.
	Seq int64
}

// Compare orders keys by Due, then Seq: -1, 0 or +1.
func (k Key) Compare(o Key) int {
	switch {
	case k.less(o):
		return -1
	case o.less(k):
		return 1
	}
	return 0
}

func (k Key) less(o Key) bool {
	return k.Due < o.Due || k.Due == o.Due && k.Seq < o.Seq
}

// Entry is one timer in a wheel. It is intrusive: hold or embed it, by pointer.
// It is in at most one wheel at a time. Invariant: neither Key nor the address
// changes while it is in a wheel.
type Entry[T any] struct {
	Key   Key
	Value T

	// In a slot or the sorted list: circular neighbours. In the heap: next is
	// the next sibling, prev the previous sibling or, for the first, the parent.
	prev, next *Entry[T]
	child      *Entry[T] // first child in the heap
	at         spot      // where it is linked; nowhere for the zero value
}

// InWheel reports whether e is in a wheel.
func (e *Entry[T]) InWheel() bool { return e.at != nowhere }

// spot tells where an entry is linked: nowhere, the heap, the sorted list, or
// firstSlot + level*slots + slot.
type spot uint16

const (
	nowhere spot = iota
	inHeap
	inSorted
	firstSlot
)

const (
	slotBits = 6             // bits of the due time that one level looks at
	slots    = 1 << slotBits // slots per level: one word of bitmap
	// levels is enough for all 64 bits of a due time: level 0 has slots of
	// 1 ms, level 3 of 4.4 minutes, level 5 of 12 days. So there is no overflow
	// list, and an entry moves down at most levels-1 times in its life.
	levels = (64 + slotBits - 1) / slotBits
)

// Wheel is a set of entries ordered by key. Make one with [New].
//
// An entry whose due time is not after taken is ready: it lies in sorted or, if
// it came late and out of order, in late. Every other entry lies in the slot
// named by the highest digit (of slotBits bits) in which its due time differs
// from taken: the level is the digit's place, the slot its value.
//
// Invariant: so all entries of one level fall due before all of the next, in
// the order of their slots, and the earliest slot is found by two bit scans.
type Wheel[T any] struct {
	taken  uint64    // the last millisecond taken from the slots; see instant
	sorted *Entry[T] // circular list of ready entries in key order
	late   *Entry[T] // root of the pairing heap of the other ready entries
	n      int

	filled   uint16         // bit l: level l has an entry
	occupied [levels]uint64 // bit s: slot s of the level has an entry
	heads    [levels * slots]*Entry[T]
}

// New returns an empty wheel at the instant now, in Unix milliseconds.
func New[T any](now int64) *Wheel[T] {
	return &Wheel[T]{taken: instant(now)}
}

// instant maps Unix milliseconds to unsigned numbers of the same order.
func instant(ms int64) uint64 { return uint64(ms) ^ 1<<63 }

// millis is the inverse of instant.
func millis(i uint64) int64 { return int64(i ^ 1<<63) }

// Len returns the number of entries.
func (w *Wheel[T]) Len() int { return w.n }

// Insert adds e under e.Key. An entry whose due time has passed is due at once.
// It panics if e is in a wheel already.
func (w *Wheel[T]) Insert(e *Entry[T]) {
	if e.InWheel() {
		panic("wheel: insert of an entry that is in a wheel")
	}
	w.n++
	if due := instant(e.Key.Due); due > w.taken {
		w.link(e, due)
	} else {
		w.makeReady(e)
	}
}

// Remove takes e out; it does nothing if e is in no wheel. e must not be in
// another wheel.
func (w *Wheel[T]) Remove(e *Entry[T]) {
	if !e.InWheel() {
		return
	}
	w.n--
	w.unlink(e)
}

func (w *Wheel[T]) unlink(e *Entry[T]) {
	switch e.at {
	case inHeap:
		w.late = heapRemove(w.late, e)
	case inSorted:
		w.sorted = listRemove(w.sorted, e)
	default:
		w.unlinkSlot(e)
	}
	e.at = nowhere
}

// Pop removes the entries with Due <= now, at most limit of them, in key order,
// and calls fn with each. fn sees the entry already removed and may insert it
// again, insert others and remove others. If fn returns false, Pop stops and
// the entry stays in the wheel.
//
// now is in Unix milliseconds. It may go back: then entries wait until the clock is
// there again.
func (w *Wheel[T]) Pop(now int64, limit int, fn func(*Entry[T]) bool) {
	for ; limit > 0; limit-- {
		e := w.first(now)
		if e == nil {
			return
		}
		w.Remove(e)
		if !fn(e) {
			if !e.InWheel() {
				w.Insert(e)
			}
			return
		}
	}
}

// First returns the key of the first entry if that is due by now.
func (w *Wheel[T]) First(now int64) (Key, bool) {
	if e := w.first(now); e != nil {
		return e.Key, true
	}
	return Key{}, false
}

// first returns the first entry with Due <= now, which is then ready, or nil.
func (w *Wheel[T]) first(now int64) *Entry[T] {
	limit := instant(now)
	for {
		if e := w.firstReady(); e != nil {
			if e.Key.Due > now {
				return nil // the clock went back
			}
			return e
		}
		level, slot, ok := w.firstSlot()
		start := w.start(level, slot)
		if !ok || start > limit {
			// Slots that begin later keep their place when taken moves up to
			// now: the digits above theirs are those of now as well.
			w.taken = max(w.taken, limit)
			return nil
		}
		w.open(level, slot, start)
	}
}

// firstReady returns the smallest ready entry, or nil.
func (w *Wheel[T]) firstReady() *Entry[T] {
	if w.late == nil || w.sorted != nil && w.sorted.Key.less(w.late.Key) {
		return w.sorted
	}
	return w.late
}

// makeReady adds e to the ready entries: to an end of the sorted list if it
// belongs there, which needs no search, otherwise to the heap.
func (w *Wheel[T]) makeReady(e *Entry[T]) {
	switch {
	case w.sorted == nil || !e.Key.less(w.sorted.prev.Key):
		e.at = inSorted
		w.sorted = listAppend(w.sorted, e)
	case e.Key.less(w.sorted.Key):
		e.at = inSorted
		listAppend(w.sorted, e)
		w.sorted = e
	default:
		e.at = inHeap
		w.late = meld(w.late, e)
	}
}

// Next returns when Pop should be called next, in Unix milliseconds, or false
// for an empty wheel. It is never later than the earliest due time. It may be
// earlier, for an entry far ahead, at most levels-1 times in that entry's life;
// Pop at that instant makes Next move on.
func (w *Wheel[T]) Next() (due int64, ok bool) {
	if e := w.firstReady(); e != nil {
		return e.Key.Due, true
	}
	level, slot, ok := w.firstSlot()
	if !ok {
		return 0, false
	}
	return millis(w.start(level, slot)), true
}

// firstSlot returns the place of the earliest slot that has an entry.
func (w *Wheel[T]) firstSlot() (level, slot int, ok bool) {
	if w.filled == 0 {
		return 0, 0, false
	}
	level = bits.TrailingZeros16(w.filled)
	return level, bits.TrailingZeros64(w.occupied[level]), true
}

// start returns the first instant that belongs to a slot: the digits of taken
// above the level, then the slot's number, then zeros.
func (w *Wheel[T]) start(level, slot int) uint64 {
	shift := level * slotBits
	above := w.taken >> shift >> slotBits << slotBits << shift
	return above | uint64(slot)<<shift
}
