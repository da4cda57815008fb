package wheel

import "math/bits"

// link puts e, due at due > w.taken, into its slot.
func (w *Wheel[T]) link(e *Entry[T], due uint64) {
	level := (63 - bits.LeadingZeros64(due^w.taken)) / slotBits
	slot := int(due>>(level*slotBits)) & (slots - 1)
	i := level*slots + slot
	w.heads[i] = listAppend(w.heads[i], e)
	w.occupied[level] |= 1 << slot
	w.filled |= 1 << level
	e.at = firstSlot + spot(i)
}

// unlinkSlot takes e out of its slot.
func (w *Wheel[T]) unlinkSlot(e *Entry[T]) {
	i := int(e.at - firstSlot)
	w.heads[i] = listRemove(w.heads[i], e)
	if w.heads[i] == nil {
		w.markEmpty(i)
	}
}

func (w *Wheel[T]) markEmpty(i int) {
	level, slot := i/slots, i%slots
	w.occupied[level] &^= 1 << slot
	if w.occupied[level] == 0 {
		w.filled &^= 1 << level
	}
}

// detach empties slot i and returns its circular list, whose entries still say
// that they are there.
func (w *Wheel[T]) detach(i int) *Entry[T] {
	head := w.heads[i]
	w.heads[i] = nil
	w.markEmpty(i)
	return head
}

// open moves taken to start, the first instant of the earliest slot, and
// spreads the slot's entries: those due at start become ready, the others move
// to a lower level. The caller has made sure that nothing is ready yet.
func (w *Wheel[T]) open(level, slot int, start uint64) {
	head := w.detach(level*slots + slot)
	w.taken = start
	if level == 0 { // the slot is a single millisecond
		w.sorted = sortList(head)
		return
	}
	var due *Entry[T]
	drain(head, func(e *Entry[T]) {
		if at := instant(e.Key.Due); at > start {
			w.link(e, at)
		} else {
			due = listAppend(due, e)
		}
	})
	w.sorted = sortList(due)
}
