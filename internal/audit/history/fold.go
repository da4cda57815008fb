package history

import (
	"maps"
	"slices"
)

// fold: the pending timers are the fold of the committed changelog. A local store holds the fold up to its position, a
// stored timer is as requested, and events end at the same state.
func fold(x *index, f *facts) {
	for _, c := range f.changes {
		storedAsAsked(x, f, c.Timer, c.Place)
	}
	if x.Scope.Pending {
		storedAsAsked(x, f, f.pending, Place{})
	}
	lastEvent(x, f)
}

func views(x *index) {
	for i := range x.Stores {
		unfolded(x, &x.Stores[i])
	}
}

// unfolded compares the contents of a local store with the changelog up to its position.
func unfolded(x *index, v *StoreContents) {
	log := Log{v.Requests, v.Partition}
	if x.steps[log] == nil || x.Scope.Compacted {
		return
	}
	want := make(map[string]*Timer)
	for _, c := range x.log(log) {
		if c.Kind != TimerChange || c.Offset >= v.Position {
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
			x.broken("fold", t.ID, []Place{t.Source},
				"the store of %s has a timer of %s/%d that the changelog up to %d does not have", v.Instance, log.Topic,
				log.Partition, v.Position)
		case !same(folded, t):
			x.broken("fold", t.ID, []Place{folded.Source, t.Source},
				"the store of %s differs from the changelog up to %d on a timer of %s/%d: %+v, not %+v",
				v.Instance, v.Position, log.Topic, log.Partition, *t, *folded)
		}
		delete(want, t.ID)
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		x.broken("fold", id, []Place{want[id].Source},
			"the store of %s lacks a timer of %s/%d that the changelog up to %d has", v.Instance, log.Topic,
			log.Partition, v.Position)
	}
}

// same reports whether two timers are the same. Their payloads are compared if both are known.
func same(a, b *Timer) bool {
	x, y := *a, *b
	if x.Emits == (Payload{}) || y.Emits == (Payload{}) {
		x.Emits, y.Emits = Payload{}, Payload{}
	}
	return x == y
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
