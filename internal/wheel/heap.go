package wheel

// The heap of late entries is a pairing heap: intrusive like the lists, with
// constant insert and O(log n) amortised removal of any entry. Fredman,
// Sedgewick, Sleator, Tarjan: The Pairing Heap (Algorithmica 1, 1986).

// meld joins two heaps, each given by its root or nil, and returns the root.
// Invariant: a root has neither prev nor next.
func meld[T any](a, b *Entry[T]) *Entry[T] {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	if b.Key.less(a.Key) {
		a, b = b, a
	}
	b.prev, b.next = a, a.child
	if a.child != nil {
		a.child.prev = b
	}
	a.child = b
	return a
}

// heapRemove takes e out of the heap and returns the new root.
func heapRemove[T any](root, e *Entry[T]) *Entry[T] {
	below := combine(e.child)
	e.child = nil
	if e == root {
		return below
	}
	if e.prev.child == e {
		e.prev.child = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	return meld(root, below)
}

// combine melds siblings, given by the first, into one heap: in pairs from the
// left, then the pairs from the right. It is a loop, not a recursion, because
// there may be hundreds of thousands of them.
func combine[T any](first *Entry[T]) *Entry[T] {
	var pairs *Entry[T] // chained over next, the last pair first
	for first != nil {
		a := first
		b := a.next
		first = nil
		if b != nil {
			first = b.next
			b.prev, b.next = nil, nil
		}
		a.prev, a.next = nil, nil
		pair := meld(a, b)
		pair.next = pairs
		pairs = pair
	}
	var root *Entry[T]
	for pairs != nil {
		pair := pairs
		pairs = pair.next
		pair.next = nil
		root = meld(root, pair)
	}
	return root
}

// flatten takes a heap apart and calls fn with each entry, in no order.
func flatten[T any](root *Entry[T], fn func(*Entry[T])) {
	for todo := root; todo != nil; {
		e := todo
		todo = e.next
		// The children go in front: their last is found by a walk that each
		// entry takes part in once.
		if e.child != nil {
			last := e.child
			for last.next != nil {
				last = last.next
			}
			last.next = todo
			todo = e.child
		}
		e.prev, e.next, e.child = nil, nil, nil
		fn(e)
	}
}
