package calendar

import (
	"encoding/binary"
	"math"
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
	*timer.Recurrence
	schedule *Schedule // for Cron, otherwise nil
	period   *periodic // for Period, otherwise nil
	excluded *excluded // for NotOn, otherwise nil
}

// Anchor returns the time to start at, in Unix milliseconds, for a request that was written at the given time and names
// none: one interval later or, for an expression, the time itself. A period may have its own.
func (r Recurrence) Anchor(written int64) int64 {
	switch {
	case r.period == nil:
		return add(written, r.Every)
	case r.period.start.Set:
		return r.period.start.At
	}
	p := *r.period
	p.start = p.anchored(written)
	return p.occurrence(2).Scheduled
}

// First returns the first occurrence. For an expression it is the first match after the given time, in Unix
// milliseconds, or at it if that is the timer's Start; for a period, which must have its Start, the first one that is
// not before the given time. Otherwise it is the given time. First ignores the end of the recurrence.
func (r Recurrence) First(at int64) Occurrence {
	switch {
	case r.schedule != nil && r.Recurrence.Start.Set:
		return r.behind(at-1, 1)
	case r.schedule != nil:
		return r.behind(at, 1)
	case r.period != nil:
		if first := r.period.occurrence(1); first.Scheduled >= at {
			return first
		}
		return r.period.next(r.period.latest(r.period.occurrence(1), at-1, 0))
	}
	return Occurrence{Number: 1, Scheduled: at}
}

// behind returns the first instant of a schedule after a time, as an occurrence.
func (r Recurrence) behind(time, number int64) Occurrence {
	instant, reading := r.schedule.Next(floorSeconds(time))
	return Occurrence{Number: number, Scheduled: instant * 1000, Ahead: reading - instant}
}

// Next returns the occurrence after o. It returns false if o is the last one.
func (r Recurrence) Next(o Occurrence) (Occurrence, bool) {
	next := r.successor(o)
	return next, r.has(next)
}

// successor returns the occurrence after o, ignoring the end of the recurrence.
func (r Recurrence) successor(o Occurrence) Occurrence {
	switch {
	case r.excluded != nil:
		return r.occurrenceAfter(o.Scheduled, o.Number+1)
	case r.schedule != nil:
		return r.behind(o.Scheduled, o.Number+1)
	case r.period != nil:
		return r.period.next(o)
	case r.Every == 0:
		return Occurrence{Number: o.Number + 1, Scheduled: math.MaxInt64}
	}
	return Occurrence{Number: o.Number + 1, Scheduled: add(o.Scheduled, r.Every)}
}

// has reports whether o is not after the end of the recurrence. A timer that does not recur has its first occurrence.
func (r Recurrence) has(o Occurrence) bool {
	if o.Scheduled == none {
		return false
	}
	if !r.recurs() {
		return o.Number == 1
	}
	return o.Scheduled <= r.Until && (r.Count == 0 || o.Number <= r.Count)
}

func (r Recurrence) recurs() bool { return r.schedule != nil || r.period != nil || r.Every > 0 }

// latest returns the last occurrence that is scheduled at or before a time, but at least o.
func (r Recurrence) latest(o Occurrence, time int64) Occurrence {
	time = min(time, r.Until)
	if time <= o.Scheduled {
		return o
	}
	switch {
	case r.excluded != nil && r.recurs():
		return r.latestNotOn(o, time)
	case r.period != nil:
		return r.period.latest(o, time, r.Count)
	case r.schedule == nil && r.Every == 0:
		return o
	case r.schedule == nil:
		// Neither difference overflows: instants are far from the limits of int64.
		n := (time - o.Scheduled) / r.Every
		if r.Count > 0 {
			n = max(0, min(n, r.Count-o.Number))
		}
		return Occurrence{Number: o.Number + n, Scheduled: o.Scheduled + n*r.Every}
	}
	from := floorSeconds(o.Scheduled)
	last, ok := r.schedule.Last(floorSeconds(time), from)
	if !ok {
		return o
	}
	n := r.schedule.Count(from, last)
	if left := r.Count - o.Number; r.Count > 0 && n > left {
		if left <= 0 {
			return o
		}
		n, last = left, r.schedule.nth(left, from, last)
	}
	return r.behind(last*1000-1, o.Number+n)
}

// floorSeconds converts milliseconds to seconds, rounding down.
func floorSeconds(ms int64) int64 {
	s := ms / 1000
	if ms%1000 < 0 {
		s--
	}
	return s
}

// add returns a + b, capped at math.MaxInt64. b is not negative.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
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

// begun returns r as the recurrence of t, which has been started: the occurrences of a period are counted from its start.
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
	if r.Recurrence.CatchUp == timer.CatchUpNone && r.due(t, last) <= missed {
		next, ok := r.Next(last)
		if !ok {
			return nil
		}
		last = next
	}
	return r.at(t, last)
}

// Again returns the timer that replaces t by the present rules of its time zone and of its calendars. That is t itself,
// unless they have changed and its pending occurrence comes at another time. The occurrence keeps its number. The result
// is nil if by the new rules the occurrence is after the end of the recurrence, or there is none. An occurrence that a
// request has moved stays where it is.
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

// room returns the limit of the jitter of an occurrence, which it does not reach, given the next one.
func (r Recurrence) room(o, next Occurrence) int64 {
	if next.Scheduled == none { // the difference may overflow
		return r.Jitter
	}
	return min(r.Jitter, next.Scheduled-o.Scheduled)
}

// jitter returns a number that looks random.
func jitter(id []byte, generation, occurrence int64) uint64 {
	var room [512 + 16]byte
	b := append(room[:0], id...)
	b = binary.BigEndian.AppendUint64(b, uint64(generation))
	b = binary.BigEndian.AppendUint64(b, uint64(occurrence))
	return xxhash.Sum64(b)
}
