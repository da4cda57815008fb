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

// Occur decides what happens to a timer alone that is due at now, as Fire does. Occurrences that were due by missed
// were missed.
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
	if t.Recurrence != nil && t.Recurrence.NotOn != "" { // a calendar may have changed just now
		switch again := re.again(t); {
		case again == nil:
			re.end(&e, t, now)
			return e
		case again != t && again.Due > now:
			e.Emit, e.After, e.Outcome = nil, again, timer.None
			return e
		default:
			e.Emit, t = again, again
		}
	}
	if t.IsTriggered() {
		e.After = re.follow(t.Untriggered())
	} else if t.Recurs() {
		r, err := re.schedules.Recurrence(t.Recurrence)
		if err != nil { // the rules of the zone are gone: the timer is held the next time
			e.Emit, e.After, e.Outcome = nil, t, timer.None
			return e
		}
		e.Emit = r.CatchUp(t, now, missed)
		switch {
		case e.Emit == nil: // all remaining occurrences were missed
			e.Complete(t, now)
			return e
		case e.Emit.Due > now:
			e.Emit, e.After, e.Outcome = nil, e.Emit, timer.None
			return e
		}
		e.After = r.After(e.Emit, missed)
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
		t.IsTriggered() || t.IsMoved())
}

// reschedule makes an item pending for another time, or ends it if t is nil. It then counts as ended when it was due,
// or at the acquisition if that was later.
func (p *Planner) reschedule(it *Item, t *timer.Timer) {
	b := &Batch{entries: make([]Entry, 1), Bytes: Held(it.timer) + EntryMemory, Position: -1, due: Never}
	e := &b.entries[0]
	e.Entry = timer.Entry{ID: it.timer.ID, Before: it.ref, After: t}
	e.item, e.firing = it, true
	if t == nil {
		p.recurrences.end(&e.Entry, it.timer, max(p.began, it.timer.Due))
		t = e.After
	}
	if t != nil {
		e.Value = t.AppendTo(nil)
	}
	p.tally.note(e)
	p.known.set(it, t)
	p.sequence.rest = append(p.sequence.rest, b)
	p.rescheduled = p.rescheduled.Plus(b.Size())
}

// end ends t without a firing, because its rules leave no further occurrence: a recurrence is completed, and a timer
// that fires once expires.
func (re recurrences) end(e *timer.Entry, t *timer.Timer, now int64) {
	e.Complete(t, now)
	if !t.Recurs() {
		e.Late, e.Outcome, e.NotOn = t, timer.Expired, re.excludedBy(t)
	}
}

// excludedBy names the calendar that excludes the time of a timer that fires once.
func (re recurrences) excludedBy(t *timer.Timer) string {
	r, err := re.schedules.Recurrence(t.Recurrence)
	if err != nil {
		return ""
	}
	return r.ExcludedBy(t.Recurrence.Start.At)
}

// again schedules an item from the store by the rules of its time zone as they are now. A paused timer keeps its time
// until it is resumed.
func (p *Planner) again(it *Item) {
	if t := p.recurrences.follow(it.timer); t != it.timer && !it.timer.IsPaused() {
		p.reschedule(it, t)
	}
}

// resume restarts a timer that was resumed at now. It decides once which of the missed occurrences fire, and that
// becomes part of the stored timer. If none fires and none is left, the timer has ended, and its ID may be
// remembered. If the timer is also triggered, it fires first.
func (re recurrences) resume(e *timer.Entry, now int64) {
	resumed := e.After
	t := re.follow(resumed)
	if t != nil && t.Recurs() && !t.IsTriggered() {
		if r, err := re.schedules.Recurrence(t.Recurrence); err == nil { // else it waits as UnknownZone when it is due
			t = r.CatchUp(t, now, now)
		}
	}
	if e.After = t; t == nil {
		re.end(e, resumed, now)
	}
}

// movable reports whether new rules of a time zone or of a calendar may move t.
func movable(t *timer.Timer) bool {
	return t != nil && t.Recurrence != nil && !t.IsMoved() &&
		(t.Recurs() && t.Recurrence.Every == 0 || t.Recurrence.NotOn != "")
}

// revisits reports whether the store may have another occurrence of t at the same place: one that new rules, or a
// request, had moved there.
func revisits(t *timer.Timer) bool { return t != nil && (t.Recurs() || movable(t)) }

// Follow makes the pending timers of some rows of the store follow the rules of their time zones and calendars as they
// are now, and returns how many of them it has moved. The rows come from a scan: the caller's duties are those for
// [Planner.Load]. The state in memory counts, not the row. A timer below the horizon that is not in memory is parked
// or on its way back: it is due, and its firing decides.
func (p *Planner) Follow(rows []*timer.Timer) (moved int) {
	k := &p.known
	for _, t := range rows {
		if !movable(t) {
			continue
		}
		if k.table.Find(t.ID) == 0 {
			if t.Ref().Compare(k.horizon) < 0 || t.IsPaused() {
				continue
			}
			if again := p.recurrences.follow(t); again != t {
				it := k.newItem(string(t.ID), t.Ref(), t)
				k.postpone(it)
				p.reschedule(it, again)
				moved++
				k.release(it, nil)
			}
			continue
		}
		it := k.find(t.ID)
		if it.unknown { // its requests find it as it is in the store, and Resolve moves it
			continue
		}
		was := it.last
		if movable(it.timer) && !it.waiting && !it.parking {
			p.again(it)
		}
		if it.last != was {
			moved++
		}
		k.release(it, nil)
	}
	k.evict()
	return moved
}

// Moved reports whether timers were moved that the next call of Fire will count.
func (p *Planner) Moved() bool { return p.rescheduled != timer.Size{} }

// follow is again, except that a timer for which calendars leave no time stays at its old time: a calendar that was
// mistyped may be corrected before that. If it is not, occur ends the timer when it is due. Until then nothing is
// planned or stored that depends on the wrong calendar, so whoever replays, resumes or loads the timer, and each later
// change, finds what was pending before:
//   - corrected before the old time: again computes the occurrence anew from Since, with its number;
//   - a paused timer keeps its time anyway. Resumed before its time, it is as if it had not been paused; after that it
//     is due, and ends;
//   - a triggered timer fires first, and then waits for its old time like any other;
//   - no instance has the partition from before the old time until after a further change: the occurrence was due
//     before that change, so it fires late. No instance knows the rules in between.
func (re recurrences) follow(t *timer.Timer) *timer.Timer {
	if again := re.again(t); again != nil || t == nil || t.Recurrence.NotOn == "" {
		return again
	}
	return t
}

// isOver reports whether calendars leave no time for t, which is due.
func (re recurrences) isOver(t *timer.Timer) bool {
	return t.Recurrence != nil && t.Recurrence.NotOn != "" && re.again(t) == nil
}

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
