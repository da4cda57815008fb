package wheel

import "math/bits"

// A list is a circular, doubly linked chain of entries, named by its head; nil
// is the empty one. The head's prev is the tail.

// listAppend adds e at the tail and returns the head.
func listAppend[T any](head, e *Entry[T]) *Entry[T] {
	if head == nil {
		e.prev, e.next = e, e
		return e
	}
	tail := head.prev
	e.prev, e.next = tail, head
	tail.next, head.prev = e, e
	return head
}

// listRemove takes e out and returns the head of what is left.
func listRemove[T any](head, e *Entry[T]) *Entry[T] {
	next := e.next
	if next == e {
		head = nil
	} else {
		e.prev.next, next.prev = next, e.prev
		if head == e {
			head = next
		}
	}
	e.prev, e.next = nil, nil
	return head
}

// drain takes the list apart and calls fn with each entry, in order. fn may
// link the entry elsewhere.
func drain[T any](head *Entry[T], fn func(*Entry[T])) {
	if head == nil {
		return
	}
	head.prev.next = nil
	for e := head; e != nil; {
		next := e.next
		e.prev, e.next = nil, nil
		fn(e)
		e = next
	}
}

// sortList sorts a list by key and marks its entries as ready. It is a natural
// merge sort: stable, in place, linear for a list that is in order, which is
// the usual case, and O(n log n) for any other.
func sortList[T any](head *Entry[T]) *Entry[T] {
	if head == nil {
		return nil
	}
	head.prev.next = nil // from here on a chain over next alone, ended by nil

	// stack[i] holds a chain merged of 2^i runs; lower chains come later in the
	// list, so that merging a higher with a lower one is stable.
	var stack [bits.UintSize]*Entry[T]
	for head != nil {
		var run *Entry[T]
		run, head = cutRun(head)
		i := 0
		for ; stack[i] != nil; i++ {
			run, stack[i] = merge(stack[i], run), nil
		}
		stack[i] = run
	}
	var all *Entry[T]
	for _, chain := range stack {
		all = merge(chain, all)
	}
	return closeRing(all)
}

// cutRun cuts the longest ascending run off the front of a chain.
func cutRun[T any](head *Entry[T]) (run, rest *Entry[T]) {
	last := head
	for last.next != nil && !last.next.Key.less(last.Key) {
		last = last.next
	}
	rest = last.next
	last.next = nil
	return head, rest
}

// merge merges two sorted chains; of equal keys those of a come first.
func merge[T any](a, b *Entry[T]) *Entry[T] {
	var head *Entry[T]
	tail := &head
	for a != nil && b != nil {
		if b.Key.less(a.Key) {
			*tail, b = b, b.next
		} else {
			*tail, a = a, a.next
		}
		tail = &(*tail).next
	}
	if a == nil {
		a = b
	}
	*tail = a
	return head
}

// closeRing restores the prev links of a sorted chain, makes it circular, and
// marks its entries as being in the sorted list.
func closeRing[T any](head *Entry[T]) *Entry[T] {
	last := head
	for e := head; e != nil; e = e.next {
		e.prev, e.at = last, inSorted
		last = e
	}
	head.prev, last.next = last, head
	return head
}
