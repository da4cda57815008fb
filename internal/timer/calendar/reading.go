package calendar

import (
	"math/bits"
	"time"
)

// A reading is the date and time that a clock shows, in seconds since it showed 1970-01-01 00:00:00. The code below
// knows no time zone. It only does arithmetic with readings.
type reading = int64

const (
	minuteSeconds = 60
	hourSeconds   = 60 * minuteSeconds
	daySeconds    = 24 * hourSeconds

	// calendarMonths is the number of months after which dates fall on the same days of the week again: 400 years. A
	// date that has not come by then never comes.
	calendarMonths = 400 * 12
)

// split returns the day of a reading, counted from 1970-01-01, and the time of day in seconds.
func split(r reading) (day int64, timeOfDay int) {
	day = r / daySeconds
	if r%daySeconds < 0 {
		day--
	}
	return day, int(r - day*daySeconds)
}

// month is one month of the calendar.
type month struct {
	year   int
	number int   // 1 to 12
	first  int64 // its first day, counted from 1970-01-01
}

// monthOf returns the month of a day, and the day of the month from 1.
func monthOf(day int64) (m month, dayOfMonth int) {
	year, number, dayOfMonth := time.Unix(day*daySeconds, 0).UTC().Date()
	return month{year, int(number), day - int64(dayOfMonth) + 1}, dayOfMonth
}

func (m month) days() int {
	switch m.number {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if m.year%4 == 0 && (m.year%100 != 0 || m.year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

func (m month) next() month {
	n := month{m.year, m.number + 1, m.first + int64(m.days())}
	if n.number > 12 {
		n.year, n.number = n.year+1, 1
	}
	return n
}

func (m month) previous() month {
	p := month{m.year, m.number - 1, 0}
	if p.number < 1 {
		p.year, p.number = p.year-1, 12
	}
	p.first = m.first - int64(p.days())
	return p
}

// weekday returns the day of the week on which m begins, 0 for Sunday.
func (m month) weekday() int {
	const first = 4 // 1970-01-01 was a Thursday
	return int(((m.first+first)%7 + 7) % 7)
}

// atLeast and lessThan return the set of the numbers that are at least n, and less than n.
func atLeast(n int) uint64  { return ^uint64(0) << n }
func lessThan(n int) uint64 { return 1<<n - 1 }

// days returns the matching days of a month, as bits 1 to 31.
func (e *Expression) days(m month) uint64 {
	if e.month>>m.number&1 == 0 {
		return 0
	}
	day, weekdays := e.day, weekly(e.weekday, m.weekday())
	if e.relative != nil {
		day |= e.relative.daysOfMonth(m)
		weekdays |= e.relative.daysOfWeek(m)
	}
	set := day & weekdays
	if e.either {
		set = day | weekdays
	}
	return set & atLeast(1) & lessThan(m.days()+1)
}

// nextDay returns the first matching day that is not before the given one.
func (e *Expression) nextDay(day int64) (int64, bool) {
	m, dayOfMonth := monthOf(day)
	for range calendarMonths + 1 {
		if set := e.days(m) & atLeast(dayOfMonth); set != 0 {
			return m.first + int64(bits.TrailingZeros64(set)) - 1, true
		}
		m, dayOfMonth = m.next(), 1
	}
	return 0, false
}

// previousDay returns the last matching day that is not after the given one.
func (e *Expression) previousDay(day int64) (int64, bool) {
	m, dayOfMonth := monthOf(day)
	for range calendarMonths + 1 {
		if set := e.days(m) & lessThan(dayOfMonth+1); set != 0 {
			return m.first + int64(bits.Len64(set)) - 2, true
		}
		m, dayOfMonth = m.previous(), 31
	}
	return 0, false
}

// nextTime returns the first matching time of day that is not before the given one, both in seconds.
func (e *Expression) nextTime(from int) (int, bool) {
	h, m, s := clock(from)
	if has(e.hour, h) {
		if has(e.minute, m) {
			if s, ok := next(e.second, s); ok {
				return ofDay(h, m, s), true
			}
		}
		if m, ok := next(e.minute, m+1); ok {
			return ofDay(h, m, lowest(e.second)), true
		}
	}
	if h, ok := next(e.hour, h+1); ok {
		return ofDay(h, lowest(e.minute), lowest(e.second)), true
	}
	return 0, false
}

// previousTime returns the last matching time of day that is not after the given one.
func (e *Expression) previousTime(to int) (int, bool) {
	h, m, s := clock(to)
	if has(e.hour, h) {
		if has(e.minute, m) {
			if s, ok := previous(e.second, s); ok {
				return ofDay(h, m, s), true
			}
		}
		if m, ok := previous(e.minute, m-1); ok {
			return ofDay(h, m, highest(e.second)), true
		}
	}
	if h, ok := previous(e.hour, h-1); ok {
		return ofDay(h, highest(e.minute), highest(e.second)), true
	}
	return 0, false
}

// timesBefore returns how many matching times of day are before the given one.
func (e *Expression) timesBefore(timeOfDay int) int64 {
	h, m, s := clock(timeOfDay)
	perMinute := bits.OnesCount64(e.second)
	perHour := bits.OnesCount64(e.minute) * perMinute
	n := bits.OnesCount64(e.hour&lessThan(h)) * perHour
	if has(e.hour, h) {
		n += bits.OnesCount64(e.minute&lessThan(m)) * perMinute
		if has(e.minute, m) {
			n += bits.OnesCount64(e.second & lessThan(s))
		}
	}
	return int64(n)
}

// next returns the first matching reading that is not before the given one. Parse has made sure that there is one.
func (e *Expression) next(r reading) reading {
	day, timeOfDay := split(r)
	for {
		match, ok := e.nextDay(day)
		if !ok {
			panic("calendar: an expression that Parse has not made")
		}
		if match > day {
			timeOfDay = 0
		}
		if t, ok := e.nextTime(timeOfDay); ok {
			return match*daySeconds + int64(t)
		}
		day, timeOfDay = match+1, 0
	}
}

// previous returns the last matching reading that is not after the given one.
func (e *Expression) previous(r reading) reading {
	day, timeOfDay := split(r)
	for {
		match, ok := e.previousDay(day)
		if !ok {
			panic("calendar: an expression that Parse has not made")
		}
		if match < day {
			timeOfDay = daySeconds - 1
		}
		if t, ok := e.previousTime(timeOfDay); ok {
			return match*daySeconds + int64(t)
		}
		day, timeOfDay = match-1, daySeconds-1
	}
}

// count returns the number of matching readings in [from, before). It takes time in proportion to the months between
// them.
func (e *Expression) count(from, before reading) (n int64) {
	if from >= before {
		return 0
	}
	first, begins := split(from)
	last, ends := split(before)
	n -= e.matchingDays(first, first+1) * e.timesBefore(begins)
	n += e.matchingDays(last, last+1) * e.timesBefore(ends)
	return n + e.matchingDays(first, last)*e.perDay
}

// matchingDays returns the number of matching days in [first, end).
func (e *Expression) matchingDays(first, end int64) (n int64) {
	m, dayOfMonth := monthOf(first)
	for m.first < end {
		set := e.days(m) & atLeast(dayOfMonth)
		if left := end - m.first; left < 31 {
			set &= lessThan(int(left) + 1)
		}
		n += int64(bits.OnesCount64(set))
		m, dayOfMonth = m.next(), 1
	}
	return n
}

// clock splits a time of day into hour, minute and second. ofDay is its inverse.
func clock(timeOfDay int) (h, m, s int) {
	return timeOfDay / hourSeconds, timeOfDay / minuteSeconds % 60, timeOfDay % minuteSeconds
}

func ofDay(h, m, s int) int { return h*hourSeconds + m*minuteSeconds + s }

func has(set uint64, n int) bool { return set>>n&1 != 0 }
func lowest(set uint64) int      { return bits.TrailingZeros64(set) }
func highest(set uint64) int     { return bits.Len64(set) - 1 }

// next returns the smallest number of a set that is at least n.
func next(set uint64, n int) (int, bool) {
	set &= atLeast(n)
	return lowest(set), set != 0
}

// previous returns the largest number of a set that is at most n. n is at least -1.
func previous(set uint64, n int) (int, bool) {
	set &= lessThan(n + 1)
	return highest(set), set != 0
}
