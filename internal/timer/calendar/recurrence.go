package calendar

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// Occurrence is one occurrence of a recurrence. Times are Unix milliseconds.
type Occurrence struct {
	Number    int64 // from 1
	Scheduled int64 // without jitter
	// Ahead is how far the reading of this occurrence is ahead of Scheduled, in seconds; 0
	// for an interval. See timer.Recurrence.
	Ahead int64

	// With calendars: see timer.Recurrence, and when the occurrence would come without calendars.
	Since, Nominal int64
}

// Recurrence is a timer's recurrence, ready for computation. Numbers count scheduled occurrences, fired or not, so they
// depend only on time.
type Recurrence struct {
	plain
	excluded *excluded // for NotOn, otherwise nil
}

// Next returns the occurrence after o. It returns false if o is the last one.
func (r Recurrence) Next(o Occurrence) (Occurrence, bool) {
	next := r.successor(o)
	return next, r.has(next)
}

// successor returns the occurrence after o, ignoring the end of the recurrence.
func (r Recurrence) successor(o Occurrence) Occurrence {
	if r.excluded != nil {
		return r.occurrenceAfter(o.Scheduled, o.Number+1)
	}
	return r.plain.successor(o)
}

// latest returns the last occurrence that is scheduled at or before a time, but at least o.
func (r Recurrence) latest(o Occurrence, time int64) Occurrence {
	switch time = min(time, r.Until); {
	case time <= o.Scheduled:
		return o
	case r.excluded != nil && r.recurs():
		return r.latestNotOn(o, time)
	}
	return r.plain.latest(o, time)
}

// Start makes t, which is under construction, pending for its first occurrence. For at, see [Recurrence.First]; a
// period without a Start is counted from it. written is the time of the request, in Unix milliseconds; it makes a
// difference to occurrences that calendars move back. Start returns false if the calendars leave no time for any
// occurrence.
func (r Recurrence) Start(t *timer.Timer, at, written int64) bool {
	t.Recurrence, t.Occurrence = r.Recurrence, 0 // no occurrence is pending yet
	r = r.anchored(at)
	t.Recurrence = r.Recurrence
	if r.excluded == nil {
		r.put(t, r.First(at))
		return true
	}
	first := r.begin(at, written)
	if first.Scheduled == none {
		return false
	}
	r.put(t, first)
	return true
}

// anchored returns r with at as its start, if its occurrences are counted from there and it has none.
func (r Recurrence) anchored(at int64) Recurrence {
	if r.period == nil && (r.excluded == nil || r.schedule != nil) {
		return r
	}
	c := *r.Recurrence
	if !c.Start.Set {
		c.Start = timer.Start{At: at, Set: true}
	}
	if r.period != nil {
		p := *r.period
		c.Start = p.anchored(c.Start.At)
		p.start = c.Start
		r.period = &p
	}
	r.Recurrence = &c
	return r
}

// begun returns r as the recurrence of t, which has been started: the occurrences of a period are counted from its
// start.
func (r Recurrence) begun(t *timer.Timer) Recurrence {
	if r.period != nil {
		p := *r.period
		p.start = t.Recurrence.Start
		r.period = &p
	}
	r.Recurrence = t.Recurrence
	return r
}

// SkipMissed applies the catch-up policy to the occurrences of t, which is under construction, that were due before its
// request was written, in Unix ms. Only the request decides, so every owner gets the same result.
//
// If nothing is left, t is pending one past its last occurrence, with that as its count, and CatchUp ends it. So it has
// the outcomes of every other timer.
func (r Recurrence) SkipMissed(t *timer.Timer, written int64) *timer.Timer {
	r = r.begun(t)
	if left := r.CatchUp(t, written-1, written-1); left != nil {
		return left
	}
	last := r.latest(pending(t), written-1)
	over := *r.at(t, last)
	c := *over.Recurrence
	c.Count = last.Number
	over.Recurrence, over.Occurrence = &c, last.Number+1
	return &over
}

// After returns the timer that replaces t once its pending occurrence has fired; nil if that was the last one.
//
// If a request had moved that occurrence, the schedule goes on from where it would have come by the present rules. What
// the occurrence has passed counts as missed: whatever was due when it was, or by missed if that is later.
func (r Recurrence) After(t *timer.Timer, missed int64) *timer.Timer {
	moved, passed := t.IsMoved(), max(t.Due, missed)
	if moved {
		if t = r.Again(original(t)); t == nil {
			return nil
		}
	}
	next, ok := r.Next(pending(t))
	if !ok {
		return nil
	}
	if t = r.at(t, next); moved {
		return r.CatchUp(t, passed, passed)
	}
	return t
}

// original returns t, whose occurrence a request has moved, with the occurrence in its original place.
func original(t *timer.Timer) *timer.Timer {
	back, c := *t, *t.Recurrence
	back.Due, c.Original = c.Original.At, timer.Instant{}
	back.Recurrence = &c
	return &back
}

// CatchUp returns the timer to plan in place of t at time now. It skips the occurrences that the policy does not want
// fired. Candidates are occurrences that are overtaken by now, which means that the next one is due too, and those that
// were due at or before missed. Skipped occurrences are counted. CatchUp returns t itself if none is skipped, and nil
// if all remaining ones are. Times are Unix milliseconds, and missed is at most now. If missed is earlier than every
// due time, nothing was missed.
//
// An occurrence that a request has moved is never skipped: see After.
//
// The caller plans the result as it is. Whether it is due or not, it no longer counts as missed.
func (r Recurrence) CatchUp(t *timer.Timer, now, missed int64) *timer.Timer {
	o := pending(t)
	if r.Count > 0 && o.Number > r.Count {
		return nil
	}
	if r.Recurrence.CatchUp == timer.CatchUpAll || t.Due > now || t.IsMoved() {
		return t
	}
	last := r.latest(o, now)
	if r.due(t, last) > now {
		// Its predecessor is due, because no jitter reaches the next scheduled time.
		last = r.latest(o, last.Scheduled-1)
	}
	at := r.at(t, last)
	if !at.SkipsMissed(missed) {
		return at
	}
	next, ok := r.Next(last)
	if !ok {
		return nil
	}
	return r.at(t, next)
}

// Again returns the timer that replaces t by the present rules of its time zone and of its calendars. That is t itself,
// unless they have changed and its pending occurrence comes at another time. The occurrence keeps its number. The
// result is nil if by the new rules the occurrence is after the end of the recurrence, or there is none. An occurrence
// that a request has moved stays where it is.
func (r Recurrence) Again(t *timer.Timer) *timer.Timer {
	var o Occurrence
	switch {
	case t.IsMoved():
		return t
	case r.excluded != nil:
		return r.againNotOn(t)
	case r.period != nil:
		if o = r.period.occurrence(t.Occurrence); o.Scheduled == t.Scheduled() {
			return t
		}
	case r.schedule != nil:
		old := floorSeconds(t.Scheduled())
		instant := r.schedule.Again(old, old+t.Recurrence.Ahead)
		if instant == old {
			return t
		}
		o = r.behind(instant*1000-1, t.Occurrence)
	default:
		return t
	}
	if !r.has(o) {
		return nil
	}
	return r.at(t, o)
}

// pending returns the pending occurrence of t.
func pending(t *timer.Timer) Occurrence {
	c := t.Recurrence
	o := Occurrence{Number: t.Occurrence, Scheduled: t.Scheduled(), Ahead: c.Ahead}
	if c.NotOn != "" {
		o.Ahead, o.Since, o.Nominal = 0, c.Since, o.Scheduled-c.Moved
	}
	return o
}

// at returns t, pending for occurrence o instead. It returns t itself if that is its occurrence already.
func (r Recurrence) at(t *timer.Timer, o Occurrence) *timer.Timer {
	if o == pending(t) {
		return t
	}
	other := *t
	r.put(&other, o)
	return &other
}

func (r Recurrence) put(t *timer.Timer, o Occurrence) {
	t.Occurrence, t.Due = o.Number, r.due(t, o)
	c := t.Recurrence
	if delay := t.Due - o.Scheduled; r.excluded != nil || delay != c.Delay || o.Ahead != c.Ahead {
		changed := *c
		changed.Delay, changed.Ahead = delay, o.Ahead
		if r.excluded != nil {
			changed.Since, changed.Moved = o.Since, o.Scheduled-o.Nominal
			changed.Ahead = zone{r.Location()}.at(floorSeconds(o.Since)).offset
		}
		c = &changed
	}
	t.Recurrence = c
}

// due returns when an occurrence of t is due: its scheduled time plus a part of the jitter. The part depends only on
// ID, generation and number. The jitter is capped at the next scheduled time, so due times have the order of their
// numbers.
func (r Recurrence) due(t *timer.Timer, o Occurrence) int64 {
	if r.Jitter == 0 {
		return o.Scheduled
	}
	if o == pending(t) {
		return t.Due // this holds even if the timer was moved and has another generation now
	}
	room := r.room(o, r.successor(o))
	part, _ := bits.Mul64(jitter(t.ID, t.Offset, o.Number), uint64(room))
	return o.Scheduled + int64(part)
}

// jitter returns a number that looks random.
func jitter(id []byte, generation, occurrence int64) uint64 {
	var room [512 + 16]byte
	b := append(room[:0], id...)
	b = binary.BigEndian.AppendUint64(b, uint64(generation))
	b = binary.BigEndian.AppendUint64(b, uint64(occurrence))
	return xxhash.Sum64(b)
}
