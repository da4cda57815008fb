package history

import (
	"slices"
	"time"

	"github.com/waterclock/waterclock"
)

// told: the events of a timer are its history. Each request has an event, in the order of the log. Each emission and
// each dead letter has one, and no event tells of another. Each event continues from the state that the one before it
// left.
func told(x *index, f *facts) {
	if !x.Scope.Events[f.Topic] || f.moves || x.moved[topicID{f.Topic, f.id}] {
		return
	}
	eventOfEach(x, f)
	chained(x, f)
	firingsAndEvents(x, f)
	lettersAndEvents(x, f)
	labelsAndEvents(x, f)
}

// labelsAndEvents finds events that have other labels than the request of their timer.
func labelsAndEvents(x *index, f *facts) {
	for _, e := range f.events {
		r := x.sent[e.Source]
		if e.Type != waterclock.EventRejected && r != nil && r.Action == Schedules && e.Labelled != r.Emits.Labels {
			x.broken("told", f.id, []Place{r.Place, e.Place}, "the event %s does not have the labels of the request",
				e.Type)
		}
	}
}

// decidedBy returns the request whose outcome the event is, if it is the outcome of a request.
func (e *Event) decidedBy() (Place, bool) {
	switch e.Type {
	case waterclock.EventScheduled, waterclock.EventReplaced, waterclock.EventMoved, waterclock.EventRejected:
		return e.Source, true
	case waterclock.EventCancelled:
		return e.Cancel, true
	case waterclock.EventTriggered, waterclock.EventPaused, waterclock.EventResumed, waterclock.EventConditionNotMet,
		waterclock.EventUnchanged:
		return e.Request, true
	}
	return Place{}, false
}

// expiredAtOnce reports whether an event is the only one of a timer that calendars skip: it was never pending.
func (f *facts) expiredAtOnce(e *Event) bool {
	return e.Type == waterclock.EventExpired && e.Detail != "" && !slices.ContainsFunc(f.events, func(o *Event) bool {
		return o.Source == e.Source && (o.Type == waterclock.EventScheduled || o.Type == waterclock.EventReplaced)
	})
}

// eventOfEach finds requests that have no event, or two, or events out of order.
func eventOfEach(x *index, f *facts) {
	by := make(map[Place]*Event)
	last := int64(-1)
	for _, e := range f.events {
		r, ok := e.decidedBy()
		if f.expiredAtOnce(e) {
			r, ok = e.Source, true
		}
		if !ok {
			continue
		}
		if first := by[r]; first != nil {
			x.broken("told", f.id, []Place{first.Place, e.Place}, "%s has two events, %s and %s", r, first.Type, e.Type)
		}
		if r.Offset < last {
			x.broken("told", f.id, []Place{e.Place}, "the event of %s comes behind that of a later request", r)
		}
		by[r], last = e, max(last, r.Offset)
	}
	for i, r := range f.requests {
		if by[r.Place] == nil && (r.Action == Schedules || r.Action == Poison) && f.fates.byRequest[i] != Undecided &&
			x.seen(f.Topic+eventsSuffix, r.Timestamp) {
			x.broken("told", f.id, []Place{r.Place}, "%s has no event", r.Place)
		}
	}
}

// chained finds events that do not continue from the state that the event before them left.
func chained(x *index, f *facts) {
	var known bool // the pending timer is known
	var pending Place
	next := int64(0) // its occurrence
	var due time.Time
	var triggered bool
	calendars := slices.ContainsFunc(f.requests, func(r *Request) bool { return r.NotOn })
	for _, e := range f.events {
		finds, needs := e.Source, true
		switch e.Type {
		case waterclock.EventScheduled:
			finds = Place{}
		case waterclock.EventExpired:
			if f.expiredAtOnce(e) {
				finds = Place{}
			}
		case waterclock.EventReplaced, waterclock.EventMoved:
			finds = e.Previous
		case waterclock.EventRejected, waterclock.EventConditionNotMet:
			needs = false // the latter's source may be remembered
		}
		if known && needs && finds != pending {
			x.broken("told", f.id, []Place{e.Place}, "the event %s finds %s pending, but the event before left %s",
				e.Type, orNothing(finds), orNothing(pending))
		}
		if e.Unknown || e.Type == waterclock.EventConditionNotMet {
			continue
		}
		p := e.Event.Pending
		follows := int64(1) // by how much the number of the pending occurrence is greater than that of the event
		if e.Type == waterclock.EventMoved {
			follows = 0
		}
		if o := e.Event.Occurrence; o > 0 && (o < next || p != nil && p.Occurrence < o+follows) {
			x.broken("told", f.id, []Place{e.Place},
				"the event %s is about occurrence %d, which does not follow from the events before and after", e.Type,
				o)
		}
		if e.Lateness != 0 && e.Lateness != e.At.Sub(e.Due) {
			x.broken("told", f.id, []Place{e.Place},
				"the event %s says %s late, but was due at %s and written at %s", e.Type, e.Lateness, e.Due, e.At)
		}
		byTrigger := e.Type == waterclock.EventFired &&
			(e.Event.Occurrence == 0 || e.Event.Occurrence == next && !e.Due.Equal(due))
		// A calendar that changes may give an occurrence another time in the moment in which it fires.
		if known && byTrigger && !triggered && !calendars && x.requested(e.Source) {
			x.broken("told", f.id, []Place{e.Place},
				"the event %s is about a triggered firing, but no earlier event is about the trigger",
				e.Type)
		}
		triggered = e.Type == waterclock.EventTriggered || p != nil && triggered && !byTrigger
		known, pending, next = true, Place{}, 0
		if p != nil {
			pending, next, due = e.Source, p.Occurrence, p.Due
		}
	}
}

func orNothing(p Place) string {
	if p.Topic == "" {
		return "nothing"
	}
	return p.String()
}

// firingsAndEvents compares firings with their events, if their requests are in the history. For other requests only
// one of the two may have been read, because logs were read from a time on, and clocks differ.
func firingsAndEvents(x *index, f *facts) {
	emitted := make(map[string]*Emission)
	for _, m := range f.emissions {
		emitted[m.Event] = m
	}
	reported := make(map[string]bool)
	for _, e := range f.events {
		if e.Type != waterclock.EventFired {
			continue
		}
		reported[e.Emission] = true
		if later(x, f, e.Source) || !x.requested(e.Source) {
			continue
		}
		m := emitted[e.Emission]
		switch {
		case m == nil && x.seen(e.Target, e.At.UnixMilli()):
			x.broken("loss", f.id, []Place{e.Place}, "occurrence %d of %s fired to %s by its event, but is not there",
				e.Occurrence, e.Source, e.Target)
		case m == nil:
		case m.Partition != e.Partition, m.Topic != e.Target, m.Source != e.Source, m.Due != e.Due.UnixMilli(),
			m.Occurrence != e.Occurrence, m.Timestamp != e.At.UnixMilli() && !m.Stamped:
			x.broken("told", f.id, []Place{e.Place, m.Place}, "the event of the firing does not describe the emission")
		}
	}
	for _, m := range f.emissions {
		if !reported[m.Event] && x.requested(m.Source) && !later(x, f, m.Source) &&
			x.seen(f.Topic+eventsSuffix, m.Timestamp) {
			x.broken("told", f.id, []Place{m.Place}, "the emission has no event")
		}
	}
}

// lettersAndEvents compares dead letters with their events. The dead letter of a batch stands for all of the batch's
// requests, so it is left out.
func lettersAndEvents(x *index, f *facts) {
	type refusal struct {
		request Place
		reason  waterclock.Reason
	}
	more := make(map[refusal]int) // letters than events
	add := func(r refusal, n int) {
		if x.requested(r.request) && !later(x, f, r.request) && !ofBatch(r.reason) {
			more[r] += n
		}
	}
	for _, l := range f.letters {
		add(refusal{l.Source, l.Reason}, 1)
	}
	for _, e := range f.events {
		if e.Type == waterclock.EventRejected || e.Type == waterclock.EventUndeliverable {
			add(refusal{e.Source, e.Reason}, -1)
		}
	}
	for r, n := range more {
		if n != 0 && len(x.Scope.Unseen) == 0 {
			x.broken("told", f.id, []Place{r.request}, "%s has %d more dead letters for %s than events",
				r.request, n, r.reason)
		}
	}
}

// goesOn reports whether the timer of a request may have been changed by requests that were written after the others
// were read.
func goesOn(x *index, f *facts, request Place) bool { return f.moves || later(x, f, request) }

// later reports whether a request is at or behind the position. Its fate may be in some logs and not in others, because
// they were not read to their ends at the same moment.
func later(x *index, f *facts, source Place) bool {
	settled, known := x.settled(f.Log, source.Offset)
	return known && !settled
}
