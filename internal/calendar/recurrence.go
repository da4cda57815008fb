package calendar

import (
	"math"

	"github.com/waterclock/waterclock/internal/timer"
)

// Occurrence is one place in a recurrence. Times are Unix milliseconds.
type Occurrence struct {
	Number    int64 // from 1
	Scheduled int64 // without jitter
	// Ahead is how far the reading that comes then is ahead of Scheduled, in
	// seconds; 0 of an interval. See timer.Recurrence.
	Ahead int64
}

// Recurrence is a timer's recurrence with what it takes to work it out. Numbers
// count what is scheduled, fired or not, so that they are a function of time.
type Recurrence struct {
	*timer.Recurrence
	schedule *Schedule // nil with an interval
}

// First returns the first occurrence: at the given time, in Unix milliseconds, if
// the timer has an interval, else the first one behind it. It does not look at the
// end.
func (r Recurrence) First(at int64) Occurrence {
	if r.schedule == nil {
		return Occurrence{Number: 1, Scheduled: at}
	}
	return r.behind(at, 1)
}

// behind returns the first instant of a schedule behind a time, as an occurrence.
func (r Recurrence) behind(time, number int64) Occurrence {
	instant, reading := r.schedule.Next(floorSeconds(time))
	return Occurrence{Number: number, Scheduled: instant * 1000, Ahead: reading - instant}
}

// Next returns the occurrence behind o, and false if o is the last one.
func (r Recurrence) Next(o Occurrence) (Occurrence, bool) {
	next := r.successor(o)
	return next, r.has(next)
}

// successor is the occurrence behind o if nothing ends before that.
func (r Recurrence) successor(o Occurrence) Occurrence {
	if r.schedule == nil {
		return Occurrence{Number: o.Number + 1, Scheduled: add(o.Scheduled, r.Every)}
	}
	return r.behind(o.Scheduled, o.Number+1)
}

// has reports whether o is not behind the end.
func (r Recurrence) has(o Occurrence) bool {
	return o.Scheduled <= r.Until && (r.Count == 0 || o.Number <= r.Count)
}

// latest returns the last occurrence from o on that is scheduled at or before a
// time, at least o.
func (r Recurrence) latest(o Occurrence, time int64) Occurrence {
	time = min(time, r.Until)
	if time <= o.Scheduled {
		return o
	}
	if r.schedule == nil {
		// Neither difference overflows: instants are far from the ends of int64.
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

// floorSeconds turns milliseconds into seconds, rounding down.
func floorSeconds(ms int64) int64 {
	s := ms / 1000
	if ms%1000 < 0 {
		s--
	}
	return s
}

// add is a + b, at most math.MaxInt64; b is not negative.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
