package calendar

import (
	"math"
	"sort"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// plain is a recurrence without its calendars: an interval, an expression, a period or, with none of them, a single
// time.
type plain struct {
	*timer.Recurrence
	schedule *Schedule // for Cron, otherwise nil
	period   *periodic // for Period, otherwise nil
}

// Anchor returns the time to start at, in Unix milliseconds, for a request that was written at the given time and names
// none: one interval later or, for an expression, the time itself. A period may have its own.
func (p plain) Anchor(written int64) int64 {
	switch {
	case p.period == nil:
		return add(written, p.Every)
	case p.period.start.Set:
		return p.period.start.At
	}
	begun := *p.period
	begun.start = begun.anchored(written)
	return begun.occurrence(2).Scheduled
}

// First returns the first occurrence. For an expression it is the first match after the given time, in Unix
// milliseconds, or at it if that is the timer's Start; for a period, which must have its Start, the first one that is
// not before the given time. Otherwise it is the given time. First ignores the end of the recurrence.
func (p plain) First(at int64) Occurrence {
	switch {
	case p.schedule != nil && p.Recurrence.Start.Set:
		return p.behind(at-1, 1)
	case p.schedule != nil:
		return p.behind(at, 1)
	case p.period != nil:
		if o := p.period.occurrence(1); o.Scheduled >= at {
			return o
		}
		return p.period.next(p.period.latest(p.period.occurrence(1), at-1, 0))
	}
	return Occurrence{Number: 1, Scheduled: at}
}

// behind returns the first instant of a schedule after a time, as an occurrence.
func (p plain) behind(time, number int64) Occurrence {
	instant, reading := p.schedule.Next(floorSeconds(time))
	return Occurrence{Number: number, Scheduled: instant * 1000, Ahead: reading - instant}
}

// successor returns the occurrence after o, ignoring the end of the recurrence.
func (p plain) successor(o Occurrence) Occurrence {
	switch {
	case p.schedule != nil:
		return p.behind(o.Scheduled, o.Number+1)
	case p.period != nil:
		return p.period.next(o)
	case p.Every == 0:
		return Occurrence{Number: o.Number + 1, Scheduled: math.MaxInt64}
	}
	return Occurrence{Number: o.Number + 1, Scheduled: add(o.Scheduled, p.Every)}
}

// has reports whether o is not after the end of the recurrence. A timer that does not recur has its first occurrence.
func (p plain) has(o Occurrence) bool {
	if o.Scheduled == none {
		return false
	}
	if !p.recurs() {
		return o.Number == 1
	}
	return o.Scheduled <= p.Until && (p.Count == 0 || o.Number <= p.Count)
}

func (p plain) recurs() bool { return p.schedule != nil || p.period != nil || p.Every > 0 }

// latest returns the last occurrence that is scheduled at or before a time, which is after o and not after the end of
// the recurrence. It is at least o.
func (p plain) latest(o Occurrence, time int64) Occurrence {
	switch {
	case p.period != nil:
		return p.period.latest(o, time, p.Count)
	case p.schedule == nil && p.Every == 0:
		return o
	case p.schedule == nil:
		// Neither difference overflows: instants are far from the limits of int64.
		n := (time - o.Scheduled) / p.Every
		if p.Count > 0 {
			n = max(0, min(n, p.Count-o.Number))
		}
		return Occurrence{Number: o.Number + n, Scheduled: o.Scheduled + n*p.Every}
	}
	from := floorSeconds(o.Scheduled)
	last, ok := p.schedule.Last(floorSeconds(time), from)
	if !ok {
		return o
	}
	n := p.schedule.Count(from, last)
	if left := p.Count - o.Number; p.Count > 0 && n > left {
		if left <= 0 {
			return o
		}
		n, last = left, p.schedule.nth(left, from, last)
	}
	return p.behind(last*1000-1, o.Number+n)
}

// nominal returns the first time after another one at which an occurrence would come without calendars, none if there
// is none.
func (p plain) nominal(after int64) int64 {
	begins := p.Recurrence.Start
	if begins.Set && after < begins.At {
		after = begins.At - 1
	}
	switch {
	case p.schedule != nil:
		instant, _ := p.schedule.Next(floorSeconds(after))
		return instant * 1000
	case p.period != nil:
		first := p.period.occurrence(1)
		if after < first.Scheduled {
			return first.Scheduled
		}
		return p.period.next(p.period.latest(first, after, 0)).Scheduled
	case after < begins.At:
		return begins.At
	case p.Every == 0:
		return none
	}
	return add(begins.At, ((after-begins.At)/p.Every+1)*p.Every)
}

// nominals returns how many nominal occurrences there are in (after, until].
func (p plain) nominals(after, until int64) int64 {
	if begins := p.Recurrence.Start; begins.Set {
		after = max(after, begins.At-1)
	}
	switch {
	case until <= after:
		return 0
	case p.schedule != nil:
		return p.schedule.Count(floorSeconds(after), floorSeconds(until))
	case p.period != nil:
		return p.period.latest(Occurrence{}, until, 0).Number - p.period.latest(Occurrence{}, after, 0).Number
	case p.Every == 0:
		return 1
	}
	begins := p.Recurrence.Start.At
	return (until-begins)/p.Every - (after-begins+p.Every)/p.Every + 1
}

// nth returns the n-th nominal occurrence from first on, which is the first and lies before end.
func (p plain) nth(first, end, n int64) int64 {
	return first + int64(sort.Search(int(end-first), func(i int) bool {
		return p.nominals(first-1, first+int64(i)) >= n
	}))
}

// room returns the limit of the jitter of an occurrence, which it does not reach, given the next one.
func (p plain) room(o, next Occurrence) int64 {
	if next.Scheduled == none { // the difference may overflow
		return p.Jitter
	}
	return min(p.Jitter, next.Scheduled-o.Scheduled)
}

// Location returns the time zone of p.
func (p plain) Location() *time.Location {
	switch {
	case p.schedule != nil:
		return p.schedule.Location()
	case p.period != nil:
		return p.period.zone.loc
	}
	return time.UTC
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
