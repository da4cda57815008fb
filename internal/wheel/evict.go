package wheel

import (
	"math/bits"
	"slices"
)

// EvictFrom removes every entry with a key >= k and calls fn with each, already
// removed, in no order. fn must not call the wheel. It costs what it removes,
// plus the entries of the one slot that k lies in, plus the ready ones if k is
// among them.
func (w *Wheel[T]) EvictFrom(k Key, fn func(*Entry[T])) {
	from := instant(k.Due)
	evict := func(e *Entry[T]) {
		w.n--
		e.at = nowhere
		fn(e)
	}
	for level := levels - 1; level >= 0; level-- {
		for mask := w.occupied[level]; mask != 0; {
			slot := 63 - bits.LeadingZeros64(mask)
			mask &^= 1 << slot
			if w.end(level, slot) < from {
				break // as do all slots before it
			}
			drain(w.detach(level*slots+slot), func(e *Entry[T]) {
				if e.Key.less(k) {
					w.link(e, instant(e.Key.Due))
				} else {
					evict(e)
				}
			})
		}
	}
	if from <= w.taken {
		w.evictReady(k, evict)
	}
}

func (w *Wheel[T]) evictReady(k Key, evict func(*Entry[T])) {
	for w.sorted != nil && !w.sorted.prev.Key.less(k) {
		e := w.sorted.prev
		w.sorted = listRemove(w.sorted, e)
		evict(e)
	}
	late := w.late
	w.late = nil
	flatten(late, func(e *Entry[T]) {
		if e.Key.less(k) {
			w.late = meld(w.late, e)
		} else {
			evict(e)
		}
	})
}

// end returns the last instant that belongs to a slot.
func (w *Wheel[T]) end(level, slot int) uint64 {
	return w.start(level, slot) | (1<<(level*slotBits) - 1)
}

// Farthest returns the key of the n-th entry from the far end, so that
// EvictFrom of it frees n entries (more only if keys are equal), or the first
// key if there are fewer than n. It returns false for an empty wheel and for
// n < 1. It visits about n entries plus one slot, and allocates 16 bytes for
// each entry of that slot: for rare use, when memory has run short.
func (w *Wheel[T]) Farthest(n int) (Key, bool) {
	if n < 1 || w.n == 0 {
		return Key{}, false
	}
	n = min(n, w.n)
	for level := levels - 1; level >= 0; level-- {
		for mask := w.occupied[level]; mask != 0; {
			slot := 63 - bits.LeadingZeros64(mask)
			mask &^= 1 << slot
			keys := listKeys(nil, w.heads[level*slots+slot])
			if len(keys) >= n {
				return nthLast(keys, n), true
			}
			n -= len(keys)
		}
	}
	return nthLast(heapKeys(listKeys(nil, w.sorted), w.late), n), true
}

// nthLast returns the n-th largest key; 1 <= n <= len(keys).
func nthLast(keys []Key, n int) Key {
	slices.SortFunc(keys, Key.Compare)
	return keys[len(keys)-n]
}

func listKeys[T any](keys []Key, head *Entry[T]) []Key {
	if head == nil {
		return keys
	}
	keys = append(keys, head.Key)
	for e := head.next; e != head; e = e.next {
		keys = append(keys, e.Key)
	}
	return keys
}

// heapKeys appends the keys of a heap, walking it without a stack: down to the
// first child, else on to the sibling, else up.
func heapKeys[T any](keys []Key, root *Entry[T]) []Key {
	for e := root; e != nil; {
		keys = append(keys, e.Key)
		if e.child != nil {
			e = e.child
			continue
		}
		for e != nil && e.next == nil {
			e = heapParent(e)
		}
		if e != nil {
			e = e.next
		}
	}
	return keys
}

// heapParent returns the parent of e, nil for a root.
func heapParent[T any](e *Entry[T]) *Entry[T] {
	for e.prev != nil && e.prev.child != e {
		e = e.prev
	}
	return e.prev
}
