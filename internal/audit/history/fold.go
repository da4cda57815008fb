package history

import "slices"

// fold: the pending timers are the fold of the committed changelog: a stored timer is as requested, and events end at
// the same state.
func fold(x *index, f *facts) {
	for _, c := range f.changes {
		storedAsAsked(x, f, c.Timer, c.Place)
	}
	if x.Scope.Pending {
		storedAsAsked(x, f, f.pending, Place{})
	}
	lastEvent(x, f)
}

// storedAsAsked compares a stored timer with its request.
func storedAsAsked(x *index, f *facts, t *Timer, at Place) {
	if t.pending() == nil || !x.requested(t.Source) {
		return
	}
	where := []Place{t.Source}
	if at.Topic != "" {
		where = append(where, at)
	}
	r := x.sent[t.Source]
	switch {
	case r == nil && f.moves: // it may have been written after the requests were read
	case r == nil, !r.makes(), r.ID != f.id:
		x.broken("fold", f.id, where, "a timer of %s is stored, but no request there schedules it", t.Source)
	case r.Action == Moves:
		movedAsAsked(x, f, t, r, where)
	case t.Emits != (Payload{}) && t.Emits != r.Emits:
		x.broken("altered", f.id, where, "the stored timer of %s does not emit what its request says", t.Source)
	case r.Recurs == nil && (!r.delays(t.Due) || t.Occurrence != 1):
		x.broken("altered", f.id, where, "the timer of %s is stored for %d, but its request says %d", t.Source,
			t.Due, r.Due)
	}
}

// movedAsAsked compares a stored timer with the request that has moved it, and with those that may have scheduled it.
func movedAsAsked(x *index, f *facts, t *Timer, r *Request, where []Place) {
	from := f.originsOf(r)
	if from.known && !slices.ContainsFunc(from.of, func(o *Request) bool {
		return (t.Emits == (Payload{}) || t.Emits == o.Emits) &&
			(o.Recurs != nil || t.Due == r.Due && t.Occurrence == 1)
	}) {
		x.broken("altered", f.id, where,
			"the stored timer of %s does not emit what its request says, or is not due at %d",
			t.Source, r.Due)
	}
}

// lastEvent compares the state after the last event of an ID with the pending timer.
func lastEvent(x *index, f *facts) {
	if !x.Scope.Events[f.Topic] || !x.endKnown(f.Log) || f.moves || x.moved[topicID{f.Topic, f.id}] {
		return
	}
	i := len(f.events) - 1
	for i >= 0 && f.events[i].Unknown {
		i--
	}
	if i < 0 {
		return
	}
	e, t := f.events[i], f.pending.pending()
	switch p := e.Event.Pending; {
	case (p == nil) != (t == nil):
		x.broken("fold", f.id, []Place{e.Place}, "the last event, %s, leaves a timer pending: %v; the changelog: %v",
			e.Type, p != nil, t != nil)
	case p != nil && (p.Due.UnixMilli() != t.Due || p.Occurrence != t.Occurrence || p.Paused != t.Paused):
		x.broken("fold", f.id, []Place{e.Place, t.Source}, "the last event, %s, leaves %+v pending, the changelog %+v",
			e.Type, *p, *t)
	}
}

// pending returns the timer, or nil if it has fired and is only remembered.
func (t *Timer) pending() *Timer {
	if t == nil || t.Remembered {
		return nil
	}
	return t
}
