package calendar

import "time"

// Schedule is an expression in a time zone: a set of instants, in whole seconds. It is immutable. Instants are Unix
// seconds here.
type Schedule struct {
	*Expression
	zone zone
}

// In returns the schedule of an expression in a time zone.
func (e *Expression) In(loc *time.Location) *Schedule { return &Schedule{e, zone{loc}} }

// Location returns the zone of s.
func (s *Schedule) Location() *time.Location { return s.zone.loc }

// Next returns the first instant of s after the given one, and its reading. The clock shows another reading at that
// instant if it skipped this one.
func (s *Schedule) Next(after int64) (instant int64, r reading) {
	if !s.EveryHour() {
		r = s.next(s.zone.shown(after) + 1)
		return s.zone.reaches(r), r
	}
	for instant := after + 1; ; {
		p := s.zone.at(instant)
		r = s.next(instant + p.offset)
		if r-p.offset < p.end {
			return r - p.offset, r
		}
		instant = p.end
	}
}

// Last returns the last instant of s in (after, until]. It returns false if there is none.
func (s *Schedule) Last(until, after int64) (instant int64, ok bool) {
	if until <= after {
		return 0, false
	}
	if !s.EveryHour() {
		instant = s.zone.reaches(s.previous(s.zone.shown(until)))
		return instant, instant > after
	}
	for instant = until; instant > after; {
		p := s.zone.at(instant)
		at := s.previous(instant+p.offset) - p.offset
		if at >= p.start {
			return at, at > after
		}
		instant = p.start - 1
	}
	return 0, false
}

// Count returns the number of instants of s in (after, until].
func (s *Schedule) Count(after, until int64) (n int64) {
	if until <= after {
		return 0
	}
	if s.EveryHour() {
		for instant := after + 1; instant <= until; {
			p := s.zone.at(instant)
			stop := min(p.end, until+1)
			n += s.count(instant+p.offset, stop+p.offset)
			instant = p.end
		}
		return n
	}
	shown := s.zone.shown(after)
	n = s.count(shown+1, s.zone.shown(until)+1)
	for p := s.zone.at(after); p.end <= until; {
		// Readings that the clock reaches at the same instant are one occurrence.
		start := p.end
		shown = max(shown, start-1+p.offset)
		p = s.zone.at(start)
		if first := start + p.offset; first > shown+1 {
			n -= max(0, s.count(shown+1, first+1)-1)
		}
	}
	return n
}

// nth returns the n-th instant after the given one. It is not later than last.
func (s *Schedule) nth(n, after, last int64) int64 {
	for n > 1 && last-after > 1 {
		middle := after + (last-after)/2
		if c := s.Count(after, middle); c < n {
			n, after = n-c, middle
		} else {
			last = middle
		}
	}
	instant, _ := s.Next(after)
	return instant
}

// Again returns the instant at which the clock shows r by the present rules of the zone. If that has not changed it
// returns the given instant itself.
func (s *Schedule) Again(instant int64, r reading) int64 {
	if s.EveryHour() {
		if is := instant + s.zone.at(instant).offset; s.next(is) == is {
			return instant
		}
		again, _ := s.Next(s.zone.reaches(r) - 1)
		return again
	}
	return s.zone.reaches(r)
}

// Interval returns the shortest time between two matching readings, in seconds, up to 28 years. If a clock is changed,
// occurrences may be closer to each other.
func (e *Expression) Interval() int64 {
	// The gaps: from a second to the next one in its minute, from the last second of a minute to the first of the next
	// one, and so on.
	first, last := lowest(e.second), highest(e.second)
	best := gap(e.second, 1, 0)
	best = min(best, gap(e.minute, minuteSeconds, first-last))
	first, last = ofDay(0, lowest(e.minute), first), ofDay(0, highest(e.minute), last)
	best = min(best, gap(e.hour, hourSeconds, first-last))
	first, last = ofDay(lowest(e.hour), 0, first), ofDay(highest(e.hour), 0, last)
	return int64(min(best, e.dayDistance()*daySeconds+first-last))
}

// gap returns the shortest distance between two numbers of a set, in units, plus more.
// ok is false if there are no two numbers.
func gap(set uint64, unit, more int) int {
	const none = 1 << 40
	best, last := none, -1
	for n, ok := next(set, 0); ok; n, ok = next(set, n+1) {
		if last >= 0 {
			best = min(best, (n-last)*unit+more)
		}
		last = n
	}
	return best
}

// dayDistance returns the shortest distance between two matching days, in days. If there are not two of them in 28
// years, it returns 28 years: after that time days of the week and of the month coincide as before.
func (e *Expression) dayDistance() int {
	const years = 28
	var last int64
	best := years * 365
	m := month{1970, 1, 0}
	for range years*12 + 1 {
		for set := e.days(m); set != 0; set &= set - 1 {
			day := m.first + int64(lowest(set))
			if last > 0 {
				best = min(best, int(day-last))
			}
			if last = day; best == 1 {
				return 1
			}
		}
		m = m.next()
	}
	return best
}
