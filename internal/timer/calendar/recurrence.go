package calendar

import (
	"math"

	"github.com/waterclock/waterclock/internal/timer"
)

// Occurrence is one occurrence of a recurrence. Times are Unix milliseconds.
type Occurrence struct {
	Number    int64 // from 1
	Scheduled int64 // without jitter
	// Ahead is how far the reading of this occurrence is ahead of Scheduled, in seconds; 0
	// for an interval. See timer.Recurrence.
	Ahead int64
}

// Recurrence is a timer's recurrence, ready for computation. Numbers count scheduled
// occurrences, fired or not, so they depend only on time.
type Recurrence struct {
	*timer.Recurrence
	schedule *Schedule // nil if there is an interval
}

// First returns the first occurrence. For an interval that is the given time, in Unix
// milliseconds; for an expression it is the first match after that. First ignores the
// end of the recurrence.
func (r Recurrence) First(at int64) Occurrence {
	if r.schedule == nil {
		return Occurrence{Number: 1, Scheduled: at}
	}
	return r.behind(at, 1)
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
	if r.schedule == nil {
		return Occurrence{Number: o.Number + 1, Scheduled: add(o.Scheduled, r.Every)}
	}
	return r.behind(o.Scheduled, o.Number+1)
}

// has reports whether o is not after the end of the recurrence.
func (r Recurrence) has(o Occurrence) bool {
	return o.Scheduled <= r.Until && (r.Count == 0 || o.Number <= r.Count)
}

// latest returns the last occurrence that is scheduled at or before a time, but at
// least o.
func (r Recurrence) latest(o Occurrence, time int64) Occurrence {
	time = min(time, r.Until)
	if time <= o.Scheduled {
		return o
	}
	if r.schedule == nil {
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
