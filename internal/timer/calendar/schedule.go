package calendar

import "time"

// Schedule is an expression in a time zone: a set of instants, in whole seconds. It
// is immutable. Instants are Unix seconds here.
type Schedule struct {
	*Expression
	zone zone
}

// In returns the schedule of an expression in a time zone.
func (e *Expression) In(loc *time.Location) *Schedule { return &Schedule{e, zone{loc}} }

// Location returns the zone of s.
func (s *Schedule) Location() *time.Location { return s.zone.loc }

// Next returns the first instant of s after the given one, and its reading. The reading
// differs from what the clock shows if the clock skipped it.
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

// Last returns the last instant of s in (after, until]. It returns false if there is
// none.
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
		// Readings that the clock reaches at once are one occurrence.
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

// Again returns when the reading of an instant comes by the present rules of the zone.
// If that has not changed it returns the instant itself.
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
