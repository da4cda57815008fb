package memtable

import "github.com/waterclock/waterclock/internal/timer"

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
