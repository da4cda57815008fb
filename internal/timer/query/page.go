package query

import "slices"

// Page asks for a part of a list.
type Page struct {
	Filter Filter
	Order  Order  // empty: ByDue
	Limit  int    // timers at most, or looked at by a count; less than 1, or too many: as many as one answer may have
	After  Cursor // the last one of the page before; zero: from the beginning
	Bytes  int    // of the timers, without their payloads, but for one that has more alone; 0: any
}

// List is a page: timers in order, and where the next page begins. A zero Next says that
// there are no more. Any other Next promises nothing: one question may look at only so many timers, so
// a page can be short, or empty, although more follow.
type List struct {
	Timers []*Timer `json:"timers,omitempty"`
	Next   Cursor   `json:"next"`
}

// Cut shortens the list to so many bytes, payloads not counted, but keeps at least one timer. With no
// bytes it does nothing.
func (l *List) Cut(o Order, bytes int) {
	if bytes <= 0 {
		return
	}
	for i, t := range l.Timers {
		if bytes -= shownSize(t); bytes < 0 && i > 0 {
			clear(l.Timers[i:])
			l.Timers, l.Next = l.Timers[:i], CursorOf(o, l.Timers[i-1])
			return
		}
	}
}

// Size returns the bytes of memory that the list's timers take, payloads not counted.
func (l *List) Size() (n int) {
	for _, t := range l.Timers {
		n += shownSize(t)
	}
	return n
}

func shownSize(t *Timer) int { return t.Size() - len(t.Value) }

// Merge merges the pages with which several partitions have answered the same
// question. A timer behind the Next of a partition must wait, because that partition may
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
	slices.SortFunc(all.Timers, func(a, b *Timer) int { return CursorOf(o, a).Compare(CursorOf(o, b)) })
	n, _ := slices.BinarySearchFunc(all.Timers, all.Next, func(t *Timer, end Cursor) int {
		if end.IsZero() || CursorOf(o, t).Compare(end) <= 0 {
			return -1
		}
		return 1
	})
	if limit > 0 && n > limit {
		n = limit
		all.Next = CursorOf(o, all.Timers[n-1])
	}
	all.Timers = all.Timers[:n:n]
	return all
}

// Count is a number of timers. If it is not Exact there are more: one question may look at only so
// many.
type Count struct {
	N     int64
	Exact bool
}
