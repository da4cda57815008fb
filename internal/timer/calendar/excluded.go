package calendar

import (
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/waterclock/waterclock/internal/timer"
)

// Calendars are the calendars of a group, as they are now.
type Calendars interface {
	// Calendar returns the calendar with a name, nil if there is none, and when it was last changed, in Unix
	// milliseconds: math.MinInt64 if that is not known.
	Calendar(name string) (e *Exclusion, changed int64)
}

// excluded is what calendars do to a recurrence. Without them it has nominal occurrences. Its occurrences are those
// that no calendar excludes and, with a shift, the times to which the others are moved, in the order of time: two that
// meet are one. So which occurrence comes after an instant depends only on the rules, and not on the occurrences before
// it.
//
// With a shift, an excluded Saturday at 18:00 comes behind an excluded Sunday at 9:00 if both move to Monday. Therefore
// a search for the next time looks at the nominal occurrences piece by piece, from a [Exclusions.barrier] on that no
// earlier one crosses. In one piece all calendars have the same rules, and a shift keeps the order of time, as long as
// the calendars have one time zone. (If their zones differ, an occurrence that the days of one calendar move across the
// midnight of another may be passed over. This is ugly, and no user is known to need it.)
type excluded struct {
	list    Exclusions
	names   []string // by list
	by      timer.Shift
	changed int64 // Unix ms: when the latest of the calendars was changed
}

// none is later than every occurrence.
const none = math.MaxInt64

const (
	// maxWork bounds a search for a time that is free, and the search for the earliest of the times to which shifts
	// move occurrences. It keeps them within some 20 ms, whatever the calendars are.
	maxWork work = 400_000
	// maxCounted is how many occurrences that calendars have moved are counted one by one, and from how many pieces of
	// time on the others are not counted exactly: then what calendars exclude, and what meets, has numbers too.
	maxCounted, maxCountedPieces = 50, 2000
)

// SplitNames reads names of calendars with commas between them, which may be wrong. They are in order and each there
// once, so that equal lists are equal texts.
func SplitNames(text string) []string {
	names := strings.Split(text, ",")
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// excludedBy returns what the calendars of a timer do; nil without names. A calendar that does not exist excludes
// nothing.
func excludedBy(all Calendars, of *timer.Recurrence) *excluded {
	if of.NotOn == "" {
		return nil
	}
	x := &excluded{by: of.Shift, changed: math.MinInt64}
	for name := range strings.SplitSeq(of.NotOn, ",") {
		if all == nil {
			break
		}
		e, changed := all.Calendar(name)
		if x.changed = max(x.changed, changed); e != nil {
			x.list, x.names = append(x.list, e), append(x.names, name)
		}
	}
	return x
}

// shifted returns when an occurrence comes that would come at a time without calendars; none if it does not come.
func (e *excluded) shifted(at int64, w *work) int64 {
	if to, ok := e.list.shifted(at, e.by, w); ok {
		return to
	}
	return none
}

// coming returns the first occurrence after an instant, and when it would come without calendars. Both are none if no
// occurrence comes within excludedYears.
func (r Recurrence) coming(after int64) (at, nominal int64) {
	const years = excludedYears * 366 * daySeconds * 1000
	x := r.excluded
	if len(x.list) == 0 {
		n := r.nominal(after)
		return n, n
	}
	if x.list.always() {
		return none, none
	}
	var w work
	if !r.recurs() {
		if n := r.Recurrence.Start.At; x.shifted(n, &w) > after {
			return x.shifted(n, &w), n
		}
		return none, none
	}
	from, last := after, int64(math.MaxInt64) // of the nominal occurrences
	if x.by == timer.ShiftNext {
		from = x.list.barrier(after, -1)
	}
	at, nominal = none, none
	n := r.nominal(from)
	for cost := x.list.cost(); w < maxWork && n != none && n <= last && n-after <= years; {
		if x.by == timer.ShiftSkip {
			w += cost
			i := x.list.Excludes(n)
			if i < 0 {
				return n, n
			}
			if n = x.list[i].ends(n, &w); n != none {
				n = r.nominal(n - 1)
			}
			continue
		}
		w += 2 * cost
		end := x.list.boundary(n)
		found, of, more := r.comingIn(n, end, after, &w)
		if found < at {
			at, nominal = found, of
			if last = at; x.by == timer.ShiftPrevious { // no other shift goes back
				last = x.list.barrier(at, 1)
			}
		}
		if !more {
			break
		}
		n = r.nominal(end - 1)
	}
	return at, nominal
}

// comingIn returns the first occurrence after an instant of those that would come without calendars from first on and
// before end. There all calendars have the same rules. more is false if no time is left free.
func (r Recurrence) comingIn(first, end, after int64, w *work) (at, nominal int64, more bool) {
	x := r.excluded
	to, last := first, end-1
	if x.list.Excludes(first) >= 0 {
		to, last = x.shifted(first, w), x.shifted(end-1, w)
	}
	switch {
	case to == none:
		return none, none, false
	case to > after:
		return to, first, true
	case last <= after:
		return none, none, true
	}
	first = r.nominal(first + int64(sort.Search(int(end-first), func(i int) bool {
		at, _ := x.list.shifted(first+int64(i), x.by, w)
		return at > after
	})) - 1)
	if first >= end {
		return none, none, true
	}
	return x.shifted(first, w), first, true
}

// occurrenceAfter returns the first occurrence after an instant, as one with a number.
func (r Recurrence) occurrenceAfter(after, number int64) Occurrence {
	at, nominal := r.coming(after)
	return Occurrence{Number: number, Scheduled: at, Since: after, Nominal: nominal}
}

// latestNotOn is latest for a recurrence with calendars: the last occurrence up to a time, from o on.
func (r Recurrence) latestNotOn(o Occurrence, until int64) Occurrence {
	next := r.occurrenceAfter(o.Scheduled, o.Number+1)
	if next.Scheduled > until || !r.has(next) {
		return o
	}
	last := r.lastBy(until, o.Scheduled)
	if r.excluded.by == timer.ShiftSkip {
		left := int64(math.MaxInt64)
		if r.Count > 0 {
			left = r.Count - o.Number
		}
		n, at := r.countFree(o.Scheduled, last.Scheduled, left)
		return Occurrence{Number: o.Number + n, Scheduled: at, Since: at - 1, Nominal: at}
	}
	for n := 1; next.Scheduled < last.Scheduled; n++ {
		if n == maxCounted {
			last.Number = next.Number + r.nominals(next.Scheduled, last.Scheduled)
			if r.Count > 0 {
				last.Number = min(last.Number, r.Count)
			}
			return last
		}
		if o, next = next, r.occurrenceAfter(next.Scheduled, next.Number+1); !r.has(next) {
			return o
		}
	}
	return next
}

// lastBy returns the last occurrence up to a time. One comes after an earlier instant.
func (r Recurrence) lastBy(until, after int64) Occurrence {
	begin := until - 1
	for step := int64(1000); begin > after && r.comes(begin) > until; step *= 2 {
		begin = max(after, begin-step)
	}
	// All that is searched lies in (begin, until].
	since := begin + int64(sort.Search(int(until-begin), func(i int) bool { return r.comes(begin+int64(i)+1) > until }))
	return r.occurrenceAfter(since, 0)
}

// comes returns when the first occurrence after an instant comes.
func (r Recurrence) comes(after int64) int64 {
	at, _ := r.coming(after)
	return at
}

// countFree returns how many nominal occurrences in (after, last] no calendar excludes, at most limit, and when the
// last of those comes. There is one, and one comes at last.
func (r Recurrence) countFree(after, last, limit int64) (count, at int64) {
	var w work
	n := r.nominal(after)
	for range maxCountedPieces {
		if n > last {
			return count, last
		}
		var end int64
		if i := r.excluded.list.Excludes(n); i >= 0 {
			end = min(r.excluded.list[i].ends(n, &w), last+1)
		} else {
			end = min(r.excluded.list.boundary(n), last+1)
			c := r.nominals(n-1, end-1)
			if left := limit - count; c >= left {
				return limit, r.nth(n, end, left)
			}
			count += c
		}
		n = r.nominal(end - 1)
	}
	c := r.nominals(n-1, last)
	if left := limit - count; c >= left {
		return limit, r.nth(n, last+1, left)
	}
	return count + c, last
}

// begin returns the first occurrence of a timer with calendars whose request was written at a time, and says that it
// begins at another one. One that moves back to a time before the request comes with the request.
func (r Recurrence) begin(at, written int64) Occurrence {
	after := at - 1
	if r.schedule != nil && !r.Recurrence.Start.Set {
		after = at
	}
	first, to := r.nominal(after), int64(none)
	if r.excluded.by == timer.ShiftPrevious && first != none {
		to = r.excluded.shifted(first, new(work))
	}
	if first > written && to <= written {
		return Occurrence{Number: 1, Scheduled: written, Since: written, Nominal: first}
	}
	if r.Recurrence.Start.Set && r.excluded.by == timer.ShiftPrevious {
		after = min(after, r.excluded.list.barrier(after, -1), to-1) // no nominal occurrence lies before the start
	}
	o := r.occurrenceAfter(after, 1)
	if begins := r.Recurrence.Start; begins.Set && begins.At < at { // those before have numbers
		if all := r.occurrenceAfter(begins.At-1, 1); all.Scheduled < o.Scheduled {
			o.Number = r.latestNotOn(all, o.Scheduled-1).Number + 1
		}
	}
	return o
}

// Skip makes t, which fires once at a time that its calendars exclude, pending in such a way that it expires: see
// [timer.Timer.IsSkipped]. It returns false if t is to be shifted instead, or recurs.
func (r Recurrence) Skip(t *timer.Timer, at, written int64) bool {
	if r.recurs() || r.excluded.by != timer.ShiftSkip {
		return false
	}
	c := *r.anchored(at).Recurrence
	c.Until, c.Since = timer.NoUntil, min(at, written)-1
	t.Recurrence, t.Due, t.Occurrence = &c, min(at, written), 1
	if t.Due == at {
		t.Due--
	}
	return true
}

// ExcludedBy names the calendar that excludes a time, in Unix milliseconds; "" if none does.
func (r Recurrence) ExcludedBy(at int64) string {
	if r.excluded == nil {
		return ""
	}
	if i := r.excluded.list.Excludes(at); i >= 0 {
		return r.excluded.names[i]
	}
	return ""
}

// againNotOn is [Recurrence.Again] for a timer with calendars. What was due before one of them changed is decided by
// the old rules, and stays. Everything after that is decided anew. If the rules have moved the pending occurrence to a
// time that has passed, it comes when they changed: that is now.
func (r Recurrence) againNotOn(t *timer.Timer) *timer.Timer {
	c := t.Recurrence
	o, since := pending(t), c.Since
	z, second := zone{r.Location()}, floorSeconds(since)
	if shown := second + c.Ahead; second+z.at(second).offset != shown {
		since += (z.reaches(shown) - second) * 1000 // readings are decided, not instants
	}
	if since == c.Since && o.Scheduled <= r.excluded.changed && !t.IsSkipped() {
		return t
	}
	after := max(since, r.excluded.changed)
	again := r.occurrenceAfter(after, o.Number)
	if r.excluded.by != timer.ShiftSkip && since == c.Since {
		if to := r.excluded.shifted(o.Nominal, new(work)); to <= after && to != none {
			again = Occurrence{Number: o.Number, Scheduled: after, Since: after, Nominal: o.Nominal}
		}
	}
	switch {
	case again.Scheduled == o.Scheduled && since == c.Since:
		return t
	case !r.has(again):
		return nil
	}
	return r.at(t, again)
}
