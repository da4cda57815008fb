package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/waterclock/waterclock"
)

// loss: every request has an outcome, and every occurrence was emitted unless it was rightly skipped. A request that
// replaces another timer is never lost, even if that timer is just firing: this is the rule "kept".
func loss(x *index, f *facts) {
	for _, w := range f.fates.wrong {
		if !w.lost {
			continue
		}
		rule := "loss"
		if slices.ContainsFunc(f.requests[:w.at], func(r *Request) bool { return r.Action == Schedules }) {
			rule = "kept"
		}
		x.broken(rule, f.id, w.where, "%s", w.text)
	}
	for i, r := range f.requests {
		if r.Action != Schedules {
			continue
		}
		if r.Recurs == nil {
			overdue(x, f, i)
		} else {
			gaps(x, f, r)
		}
	}
}

// overdue finds a timer that must have fired by the end, if no changelog tells which timers are pending.
func overdue(x *index, f *facts, i int) {
	r := f.requests[i]
	if f.fates.byRequest[i] != StillPending || x.endKnown(f.Log) || x.Scope.Settle == 0 {
		return
	}
	from := i
	if r.mayTakeOver() {
		from = 0
	}
	paused := slices.ContainsFunc(f.requests[from:], func(r *Request) bool { return r.Action == Pauses })
	due := time.UnixMilli(r.Due + r.Jitter)
	if r.Acked.After(due) {
		due = r.Acked
	}
	if !paused && !due.Add(x.Scope.Settle).After(x.ended) && x.Quiet(due, x.ended) {
		x.broken("loss", f.id, []Place{r.Place}, "scheduled by %s for %d: it has not fired, "+
			"and no request cancelled or replaced it", r.Place, r.Due)
	}
}

// gaps finds occurrences that should not have been skipped. If the timer catches up with all, that is each occurrence
// before another one, or before the pending one. Otherwise it is an occurrence that another overtook for no reason.
func gaps(x *index, f *facts, r *Request) {
	if r.MaxLate > 0 || !x.seen(f.Topic+lettersSuffix, r.Due) || !x.seen(r.Emits.Topic, r.Due) {
		return
	}
	type occurrence struct {
		n, due int64
		at     time.Time
		place  Place
	}
	var seen []occurrence
	sources := f.sources(r)
	for _, source := range sources {
		for _, m := range f.fired.ofRequest(source) {
			if m.Occurrence > 0 {
				seen = append(seen, occurrence{m.Occurrence, m.Due, m.Seen, m.Place})
			}
		}
		for _, l := range f.refused.ofRequest(source) {
			if l.Occurrence < 0 {
				return // it was cut, and does not say which
			}
			if l.Occurrence > 0 {
				seen = append(seen, occurrence{n: l.Occurrence, place: l.Place})
			}
		}
	}
	moved := len(sources) > 1 // an occurrence that was moved lets others be missed
	slices.SortFunc(seen, func(a, b occurrence) int { return cmp.Compare(a.n, b.n) })
	last := int64(0)
	if r.continues() && len(seen) > 0 {
		last = seen[0].n - 1
	}
	for _, o := range seen {
		if o.n > last+1 && (r.Recurs.CatchUp == waterclock.CatchUpAll ||
			!moved && skipped(x, f, r, last+1, o.due, o.at)) {
			x.broken("loss", f.id, []Place{o.place}, "of %s, occurrences %d to %d are missing before this one", r.Place,
				last+1, o.n-1)
		}
		last = max(last, o.n)
	}
	if r.continues() && len(seen) == 0 {
		return
	}
	if t := f.pending; t != nil && slices.Contains(sources, t.Source) && !f.moves &&
		r.Recurs.CatchUp == waterclock.CatchUpAll &&
		t.Occurrence > last+1 {
		x.broken("loss", f.id, []Place{r.Place}, "of %s, occurrences %d to %d are missing before the pending one",
			r.Place, last+1, t.Occurrence-1)
	}
}

// skipped reports whether nothing explains that occurrence n was skipped for one that was due later.
func skipped(x *index, f *facts, r *Request, n, due int64, at time.Time) bool {
	if r.Recurs.Every == 0 || x.Scope.Settle == 0 || at.IsZero() || x.Pacing(r.Emits.Topic) {
		return false
	}
	missed := r.Due + (n-1)*r.Recurs.Every
	if due-missed <= x.Scope.Settle.Milliseconds() || !x.Quiet(time.UnixMilli(missed), at) {
		return false
	}
	for _, c := range x.log(f.Log) {
		if c.Kind == Claim && c.Timestamp >= missed {
			return false // it was acquired since
		}
	}
	return !slices.ContainsFunc(f.requests, func(r *Request) bool { return r.Action == Pauses }) && r.Timestamp < missed
}
