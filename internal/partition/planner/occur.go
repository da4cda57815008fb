package planner

import (
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// UnknownZone stands in for a target if this instance cannot compute the recurrence of a timer, because it has no rules
// for the time zone. Another instance may have them, or this one may get them. So the timer is neither fired nor ended;
// it waits until [KnowsZone] is true. No topic has this name.
var UnknownZone = timer.TopicPartition{Topic: "?", Partition: timer.Unplaced}

// recurrences compute when recurring timers are due.
type recurrences struct{ schedules *calendar.Cache }

// Decide decides one request alone, as Plan does. pending is the timer that it finds; nil for none.
func Decide(schedules *calendar.Cache, r *timer.Request, pending *timer.Timer) timer.Entry {
	var e Entry
	recurrences{schedules}.decide(&e, r, pending.Ref(), pending)
	return e.Entry
}

// Occur decides what happens to a timer alone that is due at now, as Fire does. Occurrences that were due by missed were
// missed.
func Occur(schedules *calendar.Cache, t *timer.Timer, now, missed int64) timer.Entry {
	return recurrences{schedules}.occur(t, now, missed)
}

// KnowsZone reports whether this instance can compute the occurrence after the pending one of t.
func KnowsZone(schedules *calendar.Cache, t *timer.Timer) bool {
	if !t.Recurs() || t.IsTriggered() {
		return true
	}
	_, err := schedules.Recurrence(t.Recurrence)
	return err == nil
}

// occur decides what happens to the pending occurrence of t, which is due. It fires, or it is too late. Occurrences
// that were due by missed were missed, and the timer's catch-up policy may skip some of them.
func (re recurrences) occur(t *timer.Timer, now, missed int64) timer.Entry {
	e := timer.Entry{ID: t.ID, Before: t.Ref(), Outcome: timer.Fired, Emit: t}
	if t.IsRemembered() { // its memory has ended
		e.Emit, e.Outcome = nil, timer.None
		return e
	}
	if t.IsTriggered() {
		e.After = re.again(t.Untriggered())
	} else if t.Recurs() {
		r, err := re.schedules.Recurrence(t.Recurrence)
		if err != nil { // the rules of the zone are gone: the timer is held the next time
			e.Emit, e.After, e.Outcome = nil, t, timer.None
			return e
		}
		e.Emit = r.CatchUp(t, now, missed)
		switch {
		case e.Emit == nil: // all remaining occurrences were missed
			e.Outcome, e.After = timer.Completed, t.Ended(now)
			return e
		case e.Emit.Due > now:
			e.Emit, e.After, e.Outcome = nil, e.Emit, timer.None
			return e
		}
		e.After = r.After(e.Emit)
	}
	if e.After == nil {
		e.After = e.Emit.Ended(now)
	}
	if e.Emit.IsTooLate(now) {
		e.Expire()
	}
	return e
}

// Expires reports whether the pending occurrence of t expires at now even if its target is unhealthy. It does not if
// catch-up may skip the occurrence anyway, because the last missed occurrence is known only when the target is healthy
// again. A remembered ID does not wait for a target either: it is forgotten.
func Expires(t *timer.Timer, now int64) bool {
	return t.IsRemembered() || t.IsTooLate(now) && (!t.Recurs() || t.Recurrence.CatchUp == timer.CatchUpAll ||
		t.IsTriggered())
}

// reschedule makes an item pending for another time, or ends it if t is nil. It then counts as ended when it was due,
// or at the acquisition if that was later.
func (p *Planner) reschedule(it *Item, t *timer.Timer) {
	b := &Batch{entries: make([]Entry, 1), Bytes: Held(it.timer) + EntryMemory, Position: -1, due: Never}
	e := &b.entries[0]
	e.Entry = timer.Entry{ID: it.timer.ID, Before: it.ref, After: t}
	e.item, e.firing = it, true
	if t == nil {
		t = it.timer.Ended(max(p.began, it.timer.Due))
		e.Outcome, e.After = timer.Completed, t
	}
	if t != nil {
		e.Value = t.AppendTo(nil)
	}
	p.tally.note(e)
	p.known.set(it, t)
	p.sequence.rest = append(p.sequence.rest, b)
	p.rescheduled = p.rescheduled.Plus(b.Size())
}

// again schedules an item from the store by the rules of its time zone as they are now. A paused timer keeps its time
// until it is resumed.
func (p *Planner) again(it *Item) {
	if t := p.recurrences.again(it.timer); t != it.timer && !it.timer.IsPaused() {
		p.reschedule(it, t)
	}
}

// resume restarts a timer that was resumed at now. It decides once which of the missed occurrences fire, and that
// becomes part of the stored timer. If none fires and none is left, the timer has ended, and its ID may be
// remembered. If the timer is also triggered, it fires first.
func (re recurrences) resume(e *timer.Entry, now int64) {
	resumed := e.After
	t := re.again(resumed)
	if t != nil && t.Recurs() && !t.IsTriggered() {
		if r, err := re.schedules.Recurrence(t.Recurrence); err == nil { // else it waits as UnknownZone when it is due
			t = r.CatchUp(t, now, now)
		}
	}
	if e.After = t; t == nil {
		e.Outcome, e.After = timer.Completed, resumed.Ended(now)
	}
}

// movable reports whether new rules of a time zone may move t, because it recurs by an expression or by the calendar.
// So the store may have another occurrence at the same place.
func movable(t *timer.Timer) bool { return t != nil && t.Recurs() && t.Recurrence.Every == 0 }

// again returns a timer of the store as it is pending by the current rules of its time zone: mostly t itself. A
// triggered timer fires first: the rules may have ended its recurrence, but not the firing that was requested.
func (re recurrences) again(t *timer.Timer) *timer.Timer {
	if !movable(t) || t.IsTriggered() {
		return t
	}
	r, err := re.schedules.Recurrence(t.Recurrence)
	if err != nil {
		return t // it waits as UnknownZone when it is due
	}
	return r.Again(t)
}
