package calendar

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// field describes what one field of an expression may contain.
type field struct {
	name      string
	low, high int
	values    []string // names of the values from low on, in lower case
	days      bool     // ? may replace *
}

var (
	seconds         = field{name: "second", high: 59}
	minuteToWeekday = []*field{
		{name: "minute", high: 59},
		{name: "hour", high: 23},
		{name: "day of the month", low: 1, high: 31, days: true},
		{name: "month", low: 1, high: 12, values: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug",
			"sep", "oct", "nov", "dec"}},
		{name: "day of the week", high: 7, values: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"},
			days: true},
	}
)

// parse returns the set of values that text allows, as bits.
func (f *field) parse(text string) (set uint64, err error) {
	for item := range strings.SplitSeq(text, ",") {
		part, err := f.item(item)
		if err != nil {
			return 0, fmt.Errorf("the field for the %s is %s, where %w", f.name, quote(text), err)
		}
		set |= part
	}
	return set, nil
}

// item returns the set of one member of the list.
func (f *field) item(text string) (set uint64, err error) {
	span, step, stepped := strings.Cut(text, "/")
	low, high, err := f.span(span, stepped)
	if err != nil {
		return 0, err
	}
	by := 1
	if stepped {
		var ok bool
		if by, ok = number(step); !ok || by < 1 || by > f.high-f.low+1 {
			return 0, fmt.Errorf("the step %s is not 1 to %d", quote(step), f.high-f.low+1)
		}
	}
	for n := low; n <= high; n += by {
		set |= 1 << n
	}
	return set, nil
}

// span returns the range of an item. A value with a step begins a range.
func (f *field) span(text string, stepped bool) (low, high int, err error) {
	if text == "*" || text == "?" && f.days {
		return f.low, f.high, nil
	}
	from, to, isRange := strings.Cut(text, "-")
	if low, err = f.value(from); err != nil {
		return 0, 0, err
	}
	switch {
	case isRange:
		if high, err = f.value(to); err != nil {
			return 0, 0, err
		}
		if high == 0 && low > 0 && f.values != nil { // sat-sun
			high = f.high
		}
	case stepped:
		high = f.high
	default:
		high = low
	}
	if low > high {
		return 0, 0, fmt.Errorf("the range %s runs backwards: write two of them with a comma", quote(text))
	}
	return low, high, nil
}

func (f *field) value(text string) (int, error) {
	if n, ok := number(text); ok && n >= f.low && n <= f.high {
		return n, nil
	}
	for i, name := range f.values {
		if strings.EqualFold(text, name) {
			return f.low + i, nil
		}
	}
	if text == "" {
		return 0, errors.New("a value is missing")
	}
	others := ""
	if ofOthers.MatchString(text) {
		others = "; L, W, #, ? and H of other schedulers mean nothing here"
	}
	if f.values != nil {
		return 0, fmt.Errorf("%s is not %d to %d and none of %s to %s%s", quote(text), f.low, f.high, f.values[0],
			f.values[len(f.values)-1], others)
	}
	return 0, fmt.Errorf("%s is not %d to %d%s", quote(text), f.low, f.high, others)
}

// ofOthers matches values that only cron expressions of other schedulers have.
var ofOthers = regexp.MustCompile(`^(\d*[LW]|LW|\w+#\d+|\?|H)$`)

// number reads one to three digits.
func number(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err == nil && len(text) <= 3
}
