package calendar

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// maxTimes is the maximum number of times of day that Explain lists.
const maxTimes = 6

// Explain describes in English when e comes. The result is a sentence without its full stop.
func (e *Expression) Explain() string {
	parts := []string{e.explainTime()}
	days := e.explainDays()
	if days == "" && (e.perDay <= maxTimes) {
		days = "every day"
	}
	for _, part := range []string{days, e.explainMonths()} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	text := strings.Join(parts, ", ")
	return strings.ToUpper(text[:1]) + text[1:]
}

func (e *Expression) explainTime() string {
	if e.perDay <= maxTimes {
		return "at " + e.times()
	}
	// Units that are implied by "every minute", "every 5 minutes" and so on are left out.
	var parts []string
	implied := func() bool { return len(parts) > 0 && strings.HasPrefix(parts[len(parts)-1], "every") }
	if e.second != 1 {
		parts = append(parts, unit(e.second, 60, "at", "second"))
	}
	if e.minute != 1<<60-1 || !implied() {
		parts = append(parts, unit(e.minute, 60, "at", "minute"))
	}
	if !e.EveryHour() || !implied() {
		parts = append(parts, unit(e.hour, 24, "in", "hour"))
	}
	return strings.Join(parts, ", ")
}

// times lists all times of the day.
func (e *Expression) times() string {
	var list []string
	for t, ok := e.nextTime(0); ok; t, ok = e.nextTime(t + 1) {
		h, m, s := clock(t)
		text := fmt.Sprintf("%02d:%02d", h, m)
		if e.second != 1 {
			text += fmt.Sprintf(":%02d", s)
		}
		list = append(list, text)
		if t == daySeconds-1 {
			break
		}
	}
	return enumerate(list)
}

// unit describes which values of a unit are in a set: every 5 minutes, in hours 9 to 17.
func unit(set uint64, values int, preposition, name string) string {
	first, step := lowest(set), stepOf(set, values)
	switch {
	case step == 1:
		return "every " + name
	case step > 1 && first == 0:
		return fmt.Sprintf("every %d %ss", step, name)
	case step > 1:
		return fmt.Sprintf("every %d %ss from %s %d on", step, name, name, first)
	case !single(set):
		name += "s"
	}
	return preposition + " " + name + " " + enumerate(ranges(set, strconv.Itoa))
}

// stepOf returns the distance between the values in a set if there are three or more, their distances are equal, and
// they span the whole range of the unit. Otherwise it returns 0.
func stepOf(set uint64, values int) int {
	if bits.OnesCount64(set) < 3 {
		return 0
	}
	first := lowest(set)
	step := lowest(set&(set-1)) - first
	var same uint64
	for n := first; n < values; n += step {
		same |= 1 << n
	}
	if same != set || first >= step {
		return 0
	}
	return step
}

func (e *Expression) explainDays() string {
	const allDays, allWeekdays = 1<<32 - 2, 1<<7 - 1
	var ofMonth, ofWeek []string
	if e.day != 0 {
		ofMonth = append(ofMonth, "the "+enumerate(ranges(e.day, ordinal)))
	}
	every := ""
	if e.weekday != 0 {
		ofWeek = append(ofWeek, enumerate(ranges(e.weekday, func(n int) string { return time.Weekday(n).String() })))
		every = "every "
	}
	if r := e.relative; r != nil {
		ofMonth = append(ofMonth, r.explainMonth()...)
		if list := r.explainWeek(); len(list) > 0 {
			list[len(list)-1] += " of the month"
			ofWeek = append(ofWeek, list...)
		}
	}
	days, weekdays := enumerate(ofMonth)+" of the month", enumerate(ofWeek)
	switch {
	case e.either:
		return "on " + days + " and on " + every + weekdays
	case e.day == allDays && e.weekday == allWeekdays:
		return ""
	case e.day == allDays:
		return "on " + weekdays
	case e.weekday == allWeekdays:
		return "on " + days
	}
	return "on " + days + " if that is " + weekdays
}

func (e *Expression) explainMonths() string {
	if e.month == 1<<13-2 {
		return ""
	}
	return "in " + enumerate(ranges(e.month, func(n int) string { return time.Month(n).String() }))
}

// ranges lists the members of a set. Consecutive members become ranges.
func ranges(set uint64, name func(int) string) (list []string) {
	for n, ok := next(set, 0); ok; n, ok = next(set, n) {
		last := n
		for has(set, last+1) {
			last++
		}
		switch last - n {
		case 0:
			list = append(list, name(n))
		case 1:
			list = append(list, name(n), name(last))
		default:
			list = append(list, name(n)+" to "+name(last))
		}
		n = last + 1
	}
	return list
}

func enumerate(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " and " + list[last]
}

func ordinal(n int) string {
	suffix := "th"
	if n/10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

func single(set uint64) bool { return bits.OnesCount64(set) == 1 }

// ExplainIn describes the meaning of e by the clock of a zone, in sentences.
func (e *Expression) ExplainIn(loc *time.Location) string {
	text := e.Explain() + ", by the clock of " + loc.String() + "."
	switch {
	case loc == time.UTC:
	case e.EveryHour():
		text += "\nIt follows the clock as it runs: a time that this skips is skipped, and one that it shows twice " +
			"comes twice."
	default:
		text += "\nA time that the clock skips comes when it goes on; a time that it shows twice comes once, the " +
			"first time."
	}
	return text
}
