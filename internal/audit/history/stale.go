package history

import (
	"iter"
	"time"
)

// stale: an answer was true at some moment between the question and the answer. So it reflects every change that a
// consumer had seen before the question, and no uncommitted change.
func stale(x *index) {
	if x.Scope.Compacted {
		return
	}
	for i := range x.Answers {
		a := &x.Answers[i]
		if a.Count >= 0 {
			countOf(x, a)
			continue
		}
		answered := make(map[string]*Timer, len(a.Timers))
		for i := range a.Timers {
			answered[a.Timers[i].ID] = &a.Timers[i]
		}
		for _, f := range asked(x, a) {
			if !f.was(answered[f.id], a.Asked) {
				wrongAnswer(x, a, f, answered[f.id])
			}
			delete(answered, f.id)
		}
		for id, t := range answered {
			if x.cut(a.Requests, id) {
				continue
			}
			x.broken("stale", id, []Place{t.Source}, "%s answers with a timer that was never committed, asked at %s",
				a.Instance, a.Asked)
		}
	}
}

// asked returns the facts about the timers in an answer.
func asked(x *index, a *Answer) (asked []*facts) {
	ids := make(map[string]bool, len(a.IDs))
	for _, id := range a.IDs {
		ids[id] = true
	}
	for _, f := range x.byID {
		if f.Topic == a.Requests && len(f.changes) > 0 && (a.IDs == nil || ids[f.id]) {
			asked = append(asked, f)
		}
	}
	return asked
}

// was reports whether, by the changelog, t was pending under the ID at some moment after a given one. With nil, it
// reports whether no timer was.
func (f *facts) was(t *Timer, after time.Time) bool {
	t = t.pending()
	for state := range f.states(after) {
		if state == t || state != nil && t != nil && same(state, t) {
			return true
		}
	}
	return false
}

// states yields each state of the ID after a moment, first the one at that moment; nil: no timer was pending.
func (f *facts) states(after time.Time) iter.Seq[*Timer] {
	return func(yield func(*Timer) bool) {
		if (len(f.changes) == 0 || f.changes[0].Seen.After(after)) && !yield(nil) { // it was not there yet
			return
		}
		for i, c := range f.changes {
			past := i+1 < len(f.changes) && !f.changes[i+1].Seen.After(after) // the next one had been seen
			if !past && !yield(c.Timer.pending()) {
				return
			}
		}
	}
}

// pending returns the timer, or nil if it has fired and is only remembered.
func (t *Timer) pending() *Timer {
	if t == nil || t.Remembered {
		return nil
	}
	return t
}

func wrongAnswer(x *index, a *Answer, f *facts, t *Timer) {
	if t == nil {
		x.broken("stale", f.id, nil, "%s answers that no timer is pending; that was never true from %s to %s",
			a.Instance, a.Asked, a.Given)
		return
	}
	x.broken("stale", f.id, []Place{t.Source}, "%s answers %+v; that was never true from %s to %s",
		a.Instance, *t, a.Asked, a.Given)
}

// countOf checks a count: timers that were pending all the time are in it, timers that never were are not.
func countOf(x *index, a *Answer) {
	if len(x.Scope.Cut[a.Requests])+len(x.Scope.Undone[a.Requests]) > 0 {
		return
	}
	least, most := int64(0), int64(0)
	for _, f := range asked(x, a) {
		may, must := false, true
		for state := range f.states(a.Asked) {
			may, must = may || state != nil, must && state != nil
		}
		if may {
			most++
		}
		if must {
			least++
		}
	}
	if a.Count < least || a.Count > most {
		x.broken("stale", "", nil, "%s counts %d pending timers of %s; from %s to %s they were %d to %d", a.Instance,
			a.Count, a.Requests, a.Asked, a.Given, least, most)
	}
}
