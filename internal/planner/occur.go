package planner

import "github.com/waterclock/waterclock/internal/timer"

// Unreckoned is what a timer waits for whose recurrence cannot be worked out here, because this
// instance has no rules for its time zone. Another instance may have them, or this one later: so the
// timer is neither fired nor ended. What ends it: [Planner.Reckons]. No topic has its name.
var Unreckoned = timer.TopicPartition{Topic: "?", Partition: timer.Unplaced}

// Reckons reports whether what follows the occurrence that t is pending for can be worked out here.
// It may be called without the lock.
func (p *Planner) Reckons(t *timer.Timer) bool {
	if t.Recurrence == nil || t.IsTriggered() {
		return true
	}
	_, err := p.schedules.Recurrence(t.Recurrence)
	return err == nil
}

// occur decides what becomes of the occurrence of an item that is due: it fires, or is
// too late; or occurrences were missed, and the timer's policy lets some of them go.
func (p *Planner) occur(it *Item, now int64) timer.Entry {
	t := it.timer
	e := timer.Entry{ID: t.ID, Before: t.Ref(), Outcome: timer.Fired, Emit: t}
	if t.IsRemembered() { // its memory has ended
		e.Emit, e.Outcome = nil, timer.None
		return e
	}
	if t.IsTriggered() {
		e.After = p.rescheduled(t.Untriggered())
	} else if t.Recurrence != nil {
		r, err := p.schedules.Recurrence(t.Recurrence)
		if err != nil { // the zone is not known any more: it is held the next time
			e.Emit, e.After, e.Outcome = nil, t, timer.None
			return e
		}
		e.Emit = r.CatchUp(t, now, max(p.opened, it.missed))
		switch {
		case e.Emit == nil: // all that is left was missed
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

// Expires reports whether the pending occurrence of t is too late at now, and is not one that catch-up would skip
// anyway: which missed occurrence is the last is known only once the target is healthy. A remembered ID waits for no
// target either: it is forgotten.
func Expires(t *timer.Timer, now int64) bool {
	return t.IsRemembered() || t.IsTooLate(now) && (t.Recurrence == nil || t.Recurrence.CatchUp == timer.CatchUpAll || t.IsTriggered())
}

// Expire has a firing of the segment that is out not be emitted: it has become too
// late while its step was tried. One that was rolled back meanwhile is no firing.
func (p *Planner) Expire(e *Entry) {
	if e.Emit != nil {
		e.Expire()
	}
}

// reschedule plans that an item is pending for another time, or not any more.
func (p *Planner) reschedule(it *Item, t *timer.Timer) {
	c := &chunk{entries: make([]Entry, 1), bytes: Held(it.timer) + EntryMemory, position: -1, due: never}
	e := &c.entries[0]
	e.Entry = timer.Entry{ID: it.timer.ID, Before: it.ref, After: t}
	e.item, e.chunk, e.firing = it, c, true
	if t == nil {
		e.Outcome = timer.Completed
	} else {
		e.Value = t.AppendTo(nil)
	}
	p.tally.note(e)
	p.known.set(it, t)
	p.sequence.rest = append(p.sequence.rest, c)
	p.moved = p.moved.Plus(c.size())
}

// resume restarts, at now, a timer that was resumed. Which of the occurrences that were missed meanwhile fire is decided
// here, once, and is part of what is stored. If that is
// none, and none is left, the timer is over. One that is triggered too fires first.
func (p *Planner) resume(e *timer.Entry, now int64) {
	t := p.rescheduled(e.After)
	if t != nil && t.Recurrence != nil && !t.IsTriggered() {
		if r, err := p.schedules.Recurrence(t.Recurrence); err == nil { // else it is Unreckoned when it is due
			t = r.CatchUp(t, now, now)
		}
	}
	if e.After = t; t == nil {
		e.Outcome = timer.Completed
	}
}

// rescheduled is a timer that comes from the store as it is pending by the rules of
// its time zone as they are now: t itself, mostly. What is triggered fires first: the rules may
// have ended what it recurs by, and not what was asked for.
func (p *Planner) rescheduled(t *timer.Timer) *timer.Timer {
	if t == nil || t.IsTriggered() || t.Recurrence == nil || t.Recurrence.Every > 0 {
		return t
	}
	r, err := p.schedules.Recurrence(t.Recurrence)
	if err != nil {
		return t // it is Unreckoned when it is due
	}
	return r.Again(t)
}
