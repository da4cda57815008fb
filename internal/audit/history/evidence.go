package history

import (
	"cmp"
	"math"
	"slices"

	"github.com/waterclock/waterclock"
)

// evidence has the facts that are certain about a request and the timer that it makes.
type evidence struct {
	dead    bool // it is a dead letter
	made    bool // it made a timer
	end     Fate // how that has ended by itself: Fired, Undeliverable, or ""
	bare    bool // it recurs, and has fired because it was triggered
	request Fate // the request's fate, by its event
	timer   Fate // the timer's end, by its event
	// triggered is the earliest timestamp of later requests that trigger the timer, in Unix ms.
	triggered int64
}

// gone reports whether the timer of a state has ended by itself.
func (e *explainer) gone(s state) bool {
	if s.timer < 0 || e.known[s.source()].end == "" {
		return false
	}
	r := e.f.requests[s.timer]
	return r.Recurs == nil || r.last() > 0 && e.emitted(e.f.requests[s.source()], r.last())
}

// collect collects the evidence.
func (e *explainer) collect() {
	e.known = make([]evidence, len(e.f.requests))
	at := make(map[Place]int, len(e.f.requests))
	for i, r := range e.f.requests {
		at[r.Place] = i
	}
	made := func(source Place) *evidence {
		i, ok := at[source]
		if !ok {
			return new(evidence)
		}
		e.known[i].made = true
		return &e.known[i]
	}
	for _, m := range e.f.emissions {
		k := made(m.Source)
		k.end, k.bare = Fired, k.bare || m.Occurrence == 0
	}
	for _, l := range e.f.letters {
		if l.Emission {
			k := made(l.Source)
			k.end, k.bare = cmp.Or(k.end, Undeliverable), k.bare || l.Occurrence <= 0
		} else if i, ok := at[l.Source]; ok {
			e.known[i].dead = true
		}
	}
	triggered := int64(math.MaxInt64)
	for i, r := range slices.Backward(e.f.requests) {
		if e.known[i].triggered = triggered; r.Action == Triggers {
			triggered = min(triggered, r.Timestamp)
		}
	}
	if t := e.f.pending.pending(); t != nil {
		made(t.Source)
	}
	for _, c := range e.f.changes {
		if c.Timer != nil {
			made(c.Timer.Source)
		}
	}
	e.readEvents(at)
	if t := e.f.pending.pending(); e.f.moves && t != nil {
		if i, ok := at[t.Source]; ok { // later requests were not there yet
			k := &e.known[i]
			e.since = requestFate{i, k.end}
			k.end, k.timer = "", ""
		}
	}
}

// readEvents collects the evidence in events.
func (e *explainer) readEvents(at map[Place]int) {
	if e.x.Scope.Events[e.f.Topic] {
		for i, r := range e.f.requests {
			if r.Action != Schedules && r.Action != Poison && e.x.seen(e.f.Topic+eventsSuffix, r.Timestamp) {
				e.known[i].request = NothingToDo // unless an event says more
			}
		}
	}
	set := func(request Place, f Fate) {
		if i, ok := at[request]; ok {
			e.known[i].request = f
		}
	}
	ended := func(source Place, f Fate) {
		if i, ok := at[source]; ok {
			e.known[i].timer = f
		}
	}
	completed := false
	for _, v := range e.f.events {
		over := v.Pending == nil && !v.Unknown
		switch v.Type {
		case waterclock.EventScheduled:
			set(v.Source, Done)
		case waterclock.EventReplaced:
			set(v.Source, Done)
			ended(v.Previous, Replaced)
		case waterclock.EventMoved:
			set(v.Source, Done)
			ended(v.Previous, Moved)
		case waterclock.EventCancelled:
			set(v.Cancel, Done)
			ended(v.Source, Cancelled)
		case waterclock.EventTriggered, waterclock.EventPaused, waterclock.EventResumed:
			set(v.Request, Done)
		case waterclock.EventConditionNotMet:
			set(v.Request, Unmet)
		case waterclock.EventUnchanged:
			set(v.Request, NothingToDo)
		case waterclock.EventRejected:
			set(v.Source, Rejected)
		case waterclock.EventCompleted:
			ended(v.Source, Completed)
			completed = true
		default:
			if f := map[waterclock.EventType]Fate{
				waterclock.EventFired: Fired, waterclock.EventExpired: Expired,
				waterclock.EventUndeliverable: Undeliverable,
			}[v.Type]; f != "" && over {
				ended(v.Source, f)
			}
		}
	}
	for i, r := range e.f.requests {
		if completed && r.Action == Resumes && e.known[i].request == NothingToDo {
			e.known[i].request = "" // perhaps it completed the timer, and has no event of its own
		}
	}
}

// agrees reports whether the events allow an edge.
func (e *explainer) agrees(g edge) bool {
	if f := g.request.fate; f != "" {
		if fate := e.known[g.request.at].request; fate != "" && fate != f {
			return false
		}
	}
	if f := g.timer.fate; f != "" {
		fate := e.known[g.timer.at].timer
		unseen := f == Unknown && (fate == Fired || fate == Undeliverable)
		if fate != "" && fate != f && !unseen {
			return false
		}
	}
	return true
}
