package calendar

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// Start makes t, which is being built, pending for its first occurrence. See
// [Recurrence.First] for at.
func (r Recurrence) Start(t *timer.Timer, at int64) {
	t.Recurrence, t.Occurrence = r.Recurrence, 0 // none is pending yet
	r.put(t, r.First(at))
}

// After returns the timer that takes t's place once its pending occurrence has
// fired; nil: that was the last one.
func (r Recurrence) After(t *timer.Timer) *timer.Timer {
	next, ok := r.Next(pending(t))
	if !ok {
		return nil
	}
	return r.at(t, next)
}

// CatchUp returns the timer that is to be planned in t's place at now: of what is
// overtaken by then, or was due at or before missed, the occurrences that the
// policy lets go. It is t itself if that lets none go, and nil if it lets all go
// that are left. An occurrence is overtaken when the one behind it is due too. What
// is let go counts. Times are Unix milliseconds, and missed is at most now; less
// than every due time: nothing was missed.
//
// The caller plans what it gets as it is: due or not, it is not missed any more.
func (r Recurrence) CatchUp(t *timer.Timer, now, missed int64) *timer.Timer {
	if r.Recurrence.CatchUp == timer.CatchUpAll || t.Due > now {
		return t
	}
	o := pending(t)
	last := r.latest(o, now)
	if r.due(t, last) > now {
		// Its predecessor is due, since no jitter reaches what is scheduled next.
		last = r.latest(o, last.Scheduled-1)
	}
	if r.Recurrence.CatchUp == timer.CatchUpNone && r.due(t, last) <= missed {
		next, ok := r.Next(last)
		if !ok {
			return nil
		}
		last = next
	}
	return r.at(t, last)
}

// Again returns the timer that takes t's place when its partition is acquired: t
// itself, unless the rules of its time zone are not those that it was scheduled by
// and its pending occurrence comes at another time. Its number stays. nil: by the
// rules as they are that occurrence lies behind the end.
func (r Recurrence) Again(t *timer.Timer) *timer.Timer {
	if r.schedule == nil {
		return t
	}
	is := floorSeconds(t.Scheduled())
	reading := is + t.Recurrence.Ahead
	instant := r.schedule.Again(is, reading)
	if instant == is {
		return t
	}
	o := r.behind(instant*1000-1, t.Occurrence)
	if !r.has(o) {
		return nil
	}
	return r.at(t, o)
}

// pending is the pending occurrence of t.
func pending(t *timer.Timer) Occurrence {
	return Occurrence{Number: t.Occurrence, Scheduled: t.Scheduled(), Ahead: t.Recurrence.Ahead}
}

// at returns t as it is pending for another occurrence, or t for its own.
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
	if delay := t.Due - o.Scheduled; delay != c.Delay || o.Ahead != c.Ahead {
		changed := *c
		changed.Delay, changed.Ahead = delay, o.Ahead
		c = &changed
	}
	t.Recurrence = c
}

// due returns when an occurrence of t is due: its scheduled time and a part of the
// jitter, which depends on nothing but ID, generation and number. A jitter that
// reaches what is scheduled next counts as long as until then, so that due times
// have the order of their numbers.
func (r Recurrence) due(t *timer.Timer, o Occurrence) int64 {
	if r.Jitter == 0 {
		return o.Scheduled
	}
	if o == pending(t) {
		return t.Due // also where a timer that was moved has another generation now
	}
	room := min(r.Jitter, r.successor(o).Scheduled-o.Scheduled)
	part, _ := bits.Mul64(jitter(t.ID, t.Offset, o.Number), uint64(room))
	return o.Scheduled + int64(part)
}

// jitter is a number that looks as if it were random.
func jitter(id []byte, generation, occurrence int64) uint64 {
	var room [512 + 16]byte
	b := append(room[:0], id...)
	b = binary.BigEndian.AppendUint64(b, uint64(generation))
	b = binary.BigEndian.AppendUint64(b, uint64(occurrence))
	return xxhash.Sum64(b)
}
