package calendar

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// relative are days that each month places anew: from its end, by its weekdays, or as its second Friday.
type relative struct {
	fromEnd uint64 // how many days before the last one: bit 0 for L, bit 3 for L-3
	nearest uint64 // bits 1 to 31: the weekday nearest to that day, as in 15W; bit 0: the last weekday, LW

	// which holds, for each day of the week from Sunday, its places in the month: bits 1 to 5 for fri#1 to fri#5, bit
	// 0 for the last one, friL.
	which [7]uint8
}

const (
	lastOnes = 1 << 0
	workdays = 1<<time.Monday | 1<<time.Tuesday | 1<<time.Wednesday | 1<<time.Thursday | 1<<time.Friday
)

// daysOfMonth returns the days that r names by their place in m, as bits 1 to 31.
func (r *relative) daysOfMonth(m month) uint64 {
	days := m.days()
	set := bits.Reverse64(r.fromEnd) >> (63 - days)
	if r.nearest == 0 {
		return set
	}
	work := weekly(workdays, m.weekday())
	if r.nearest&lastOnes != 0 {
		set |= 1 << highest(work&lessThan(days+1))
	}
	for n, ok := next(r.nearest, 1); ok && n <= days; n, ok = next(r.nearest, n+1) {
		switch {
		case has(work, n):
			set |= 1 << n
		case n > 1 && has(work, n-1): // a Saturday
			set |= 1 << (n - 1)
		case n == 1 && !has(work, 2): // a Saturday
			set |= 1 << 3
		case n == days: // a Sunday
			set |= 1 << (n - 2)
		default:
			set |= 1 << (n + 1)
		}
	}
	return set
}

// daysOfWeek returns the days that r names by their day of the week, as bits 1 to 31.
func (r *relative) daysOfWeek(m month) (set uint64) {
	begins, days := m.weekday(), m.days()
	for day, which := range r.which {
		first := 1 + (day-begins+7)%7
		if which&lastOnes != 0 {
			set |= 1 << (first + (days-first)/7*7)
		}
		for n, ok := next(uint64(which), 1); ok; n, ok = next(uint64(which), n+1) {
			set |= 1 << (first + 7*(n-1))
		}
	}
	return set
}

// weekly returns the days of a month that begins on a day of the week, if they are in a set of days of the week.
func weekly(weekdays uint64, begins int) uint64 {
	// The set, rotated so that bit 1 is the first of the month, and repeated five times.
	week := (weekdays>>begins | weekdays<<(7-begins)) & (1<<7 - 1)
	return (week | week<<7 | week<<14 | week<<21 | week<<28) << 1
}

// ofMonth reads L, L-3, 15W and LW.
func (f *field) ofMonth(item string, r *relative) (bool, error) {
	upper := strings.ToUpper(item)
	switch before, back, isBack := strings.Cut(upper, "L-"); {
	case upper == "L":
		r.fromEnd |= 1
	case upper == "LW":
		r.nearest |= lastOnes
	case isBack && before == "":
		n, ok := number(back)
		if !ok || n < 1 || n >= f.high {
			return false, fmt.Errorf("%s is not L-1 to L-%d, the days before the last one", quote(item), f.high-1)
		}
		r.fromEnd |= 1 << n
	case strings.HasSuffix(upper, "W"):
		n, ok := number(strings.TrimSuffix(upper, "W"))
		if !ok || n < f.low || n > f.high {
			return false, fmt.Errorf("%s is not 1W to 31W, the weekday nearest to one day, and not LW: W takes no "+
				"range and no step", quote(item))
		}
		r.nearest |= 1 << n
	case strings.ContainsAny(upper, "LW"):
		return false, fmt.Errorf("%s is neither L, L-3, 15W nor LW, which take no range and no step", quote(item))
	default:
		return false, nil
	}
	return true, nil
}

// ofWeek reads friL, 5L, fri#2 and 5#2.
func (f *field) ofWeek(item string, r *relative) (bool, error) {
	day, which, numbered := strings.Cut(item, "#")
	last := !numbered && strings.HasSuffix(strings.ToUpper(item), "L")
	switch {
	case last:
		if day = item[:len(item)-1]; day == "" {
			return false, errors.New("the letter L needs a day of the week: friL is the last Friday of the " +
				"month, and sat is the last day of the week")
		}
	case !numbered && strings.Contains(strings.ToUpper(item), "L/"):
		return false, fmt.Errorf("%s has a step: the last one of a month takes none", quote(item))
	case !numbered:
		return false, nil
	}
	n, err := f.value(day)
	if err != nil {
		return false, err
	}
	bit := 0
	if numbered {
		var ok bool
		if bit, ok = number(which); !ok || bit < 1 || bit > 5 {
			return false, fmt.Errorf("%s is not one of the first five of a month: write %s#1 to %s#5, or %sL for the "+
				"last one", quote(item), day, day, day)
		}
	}
	r.which[n%7] |= 1 << bit
	return true, nil
}

// explainMonth lists what daysOfMonth means: the last day, the weekday nearest to the 15th.
func (r *relative) explainMonth() (list []string) {
	for n, ok := next(r.fromEnd, 0); ok; n, ok = next(r.fromEnd, n+1) {
		switch n {
		case 0:
			list = append(list, "the last day")
		case 1:
			list = append(list, "the day before the last")
		default:
			list = append(list, fmt.Sprintf("the %s day before the last", ordinal(n)))
		}
	}
	for n, ok := next(r.nearest, 1); ok; n, ok = next(r.nearest, n+1) {
		list = append(list, "the weekday nearest to the "+ordinal(n))
	}
	if r.nearest&lastOnes != 0 {
		list = append(list, "the last weekday")
	}
	return list
}

// explainWeek lists what daysOfWeek means: the second Friday, the last Sunday.
func (r *relative) explainWeek() (list []string) {
	for day, which := range r.which {
		for n, ok := next(uint64(which), 1); ok; n, ok = next(uint64(which), n+1) {
			ordinals := [...]string{1: "first", "second", "third", "fourth", "fifth"}
			list = append(list, "the "+ordinals[n]+" "+time.Weekday(day).String())
		}
		if which&lastOnes != 0 {
			list = append(list, "the last "+time.Weekday(day).String())
		}
	}
	return list
}
