package calendar

// Interval returns the shortest time between two matching readings, in seconds, up to
// 28 years. If a clock is changed, occurrences may be closer to each other.
func (e *Expression) Interval() int64 {
	// The gaps: from a second to the next one in its minute, from the last second of a
	// minute to the first of the next one, and so on.
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

// dayDistance returns the shortest distance between two matching days, in days. If
// there are not two of them in 28 years, it returns 28 years: after that time days of
// the week and of the month coincide as before.
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
