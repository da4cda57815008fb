package query

import "slices"

// Page is a question for some timers of a list.
type Page struct {
	Filter Filter
	Order  Order // empty: ByDue
	Limit  int   // timers at most; less than 1, or too many: as many as one answer may have
	After  Place // the last one of the page before; zero: from the beginning
	Bytes  int   // of the timers, without their payloads, but for one that has more alone; 0: any
}

// List is a page: timers in order, and where the next page begins. A zero Next says that
// there are no more. Another one says nothing: a page can have less than was asked for,
// even nothing, and be followed by more, for what one question may look at is bounded.
type List struct {
	Timers []*Timer
	Next   Place
}

// Cut ends the list behind the timer that is the last to be within so many bytes, without payloads,
// or behind the first. No bytes: it stays as it is.
func (l *List) Cut(o Order, bytes int) {
	if bytes <= 0 {
		return
	}
	for i, t := range l.Timers {
		if bytes -= shownSize(t); bytes < 0 && i > 0 {
			clear(l.Timers[i:])
			l.Timers, l.Next = l.Timers[:i], PlaceOf(o, l.Timers[i-1])
			return
		}
	}
}

// Size is how many bytes of memory the list's timers take, without payloads.
func (l *List) Size() (n int) {
	for _, t := range l.Timers {
		n += shownSize(t)
	}
	return n
}

func shownSize(t *Timer) int { return t.Size() - len(t.Value) }

// Merge makes one page of those that several partitions have answered to the same
// question. A timer behind the place that a partition has got to must wait: that one may
// have others before it.
func Merge(o Order, limit int, parts []List) List {
	if o == "" {
		o = ByDue
	}
	var all List
	for _, l := range parts {
		if !l.Next.IsZero() && (all.Next.IsZero() || l.Next.Compare(all.Next) < 0) {
			all.Next = l.Next
		}
		all.Timers = append(all.Timers, l.Timers...)
	}
	slices.SortFunc(all.Timers, func(a, b *Timer) int { return PlaceOf(o, a).Compare(PlaceOf(o, b)) })
	n, _ := slices.BinarySearchFunc(all.Timers, all.Next, func(t *Timer, end Place) int {
		if end.IsZero() || PlaceOf(o, t).Compare(end) <= 0 {
			return -1
		}
		return 1
	})
	if limit > 0 && n > limit {
		n = limit
		all.Next = PlaceOf(o, all.Timers[n-1])
	}
	all.Timers = all.Timers[:n:n]
	return all
}

// Count is how many timers there are. If it is not Exact there are more: the question
// was about more than one may look at.
type Count struct {
	N     int64
	Exact bool
}
