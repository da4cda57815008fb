package witness

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
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
		answered := make(map[string]*history.Timer, len(a.Timers))
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
			x.broken("stale", id, []history.Place{t.Source},
				"%s answers with a timer that was never committed, asked at %s", a.Instance, a.Asked)
		}
	}
}

// asked returns the lives of the timers in an answer.
func asked(x *index, a *Answer) (asked []*changed) {
	ids := make(map[string]bool, len(a.IDs))
	for _, id := range a.IDs {
		ids[id] = true
	}
	for _, f := range x.lives {
		if f.Topic == a.Requests && (a.IDs == nil || ids[f.id]) {
			asked = append(asked, f)
		}
	}
	return asked
}

// was reports whether, by the changelog, t was pending under the ID at some moment after a given one. With nil, it
// reports whether no timer was.
func (c *changed) was(t *history.Timer, after time.Time) bool {
	t = pending(t)
	for state := range c.states(after) {
		if state == t || state != nil && t != nil && same(state, t) {
			return true
		}
	}
	return false
}

// states yields each state of the ID after a moment, first the one at that moment; nil: no timer was pending.
func (c *changed) states(after time.Time) iter.Seq[*history.Timer] {
	return func(yield func(*history.Timer) bool) {
		if c.changes[0].Seen.After(after) && !yield(nil) { // it was not there yet
			return
		}
		for i, change := range c.changes {
			past := i+1 < len(c.changes) && !c.changes[i+1].Seen.After(after) // the next one had been seen
			if !past && !yield(pending(change.Timer)) {
				return
			}
		}
	}
}

func wrongAnswer(x *index, a *Answer, f *changed, t *history.Timer) {
	if t == nil {
		x.broken("stale", f.id, nil, "%s answers that no timer is pending; that was never true from %s to %s",
			a.Instance, a.Asked, a.Given)
		return
	}
	x.broken("stale", f.id, []history.Place{t.Source}, "%s answers %+v; that was never true from %s to %s",
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

// pending returns the timer, or nil if it has fired and is only remembered.
func pending(t *history.Timer) *history.Timer {
	if t == nil || t.Remembered {
		return nil
	}
	return t
}

// views: a local store holds the fold of the changelog up to its position.
func views(x *index) {
	for i := range x.Stores {
		unfolded(x, &x.Stores[i])
	}
}

// unfolded compares the contents of a local store with the changelog up to its position.
func unfolded(x *index, v *StoreContents) {
	log := history.Log{Topic: v.Requests, Partition: v.Partition}
	if x.changes[log] == nil || x.Scope.Compacted {
		return
	}
	want := make(map[string]*history.Timer)
	for _, c := range x.changes[log] {
		if c.Kind != history.TimerChange || c.Offset >= v.Position {
			continue
		}
		if c.Timer == nil {
			delete(want, c.ID)
		} else {
			want[c.ID] = c.Timer
		}
	}
	for i := range v.Timers {
		t := &v.Timers[i]
		if x.cut(v.Requests, t.ID) {
			continue
		}
		switch folded := want[t.ID]; {
		case folded == nil:
			x.broken("fold", t.ID, []history.Place{t.Source},
				"the store of %s has a timer of %s/%d that the changelog up to %d does not have", v.Instance, log.Topic,
				log.Partition, v.Position)
		case !same(folded, t):
			x.broken("fold", t.ID, []history.Place{folded.Source, t.Source},
				"the store of %s differs from the changelog up to %d on a timer of %s/%d: %+v, not %+v",
				v.Instance, v.Position, log.Topic, log.Partition, *t, *folded)
		}
		delete(want, t.ID)
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		x.broken("fold", id, []history.Place{want[id].Source},
			"the store of %s lacks a timer of %s/%d that the changelog up to %d has", v.Instance, log.Topic,
			log.Partition, v.Position)
	}
}

// same reports whether two timers are the same. Their payloads are compared if both are known.
func same(a, b *history.Timer) bool {
	x, y := *a, *b
	if x.Emits == (history.Payload{}) || y.Emits == (history.Payload{}) {
		x.Emits, y.Emits = history.Payload{}, history.Payload{}
	}
	return x == y
}
