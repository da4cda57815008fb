package calendar

import (
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"strconv"
	"strings"

	"github.com/waterclock/waterclock/internal/timer"
)

// MaxExpressionBytes is the maximum length of an expression.
const MaxExpressionBytes = 1024

// ErrNeverDue means that no date of the calendar matches an expression, such as the 30th of February.
var ErrNeverDue = errors.New("no date matches")

// Expression is a parsed cron expression: sets of values that the clock must show. It is immutable.
type Expression struct {
	second, minute uint64 // bits 0 to 59
	hour           uint64 // bits 0 to 23
	day            uint64 // bits 1 to 31
	month          uint64 // bits 1 to 12
	weekday        uint64 // bits 0 to 6, from Sunday

	// relative are days that each month places anew; nil if there are none.
	relative *relative

	// either means that a day must be in day or in weekday, instead of in both. As in crontab(5), it is set if
	// neither field begins with a star.
	either bool

	perDay int64 // number of matching times of day
}

// names are the names that may stand for a whole expression.
var names = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// Parse reads an expression: five fields (minute, hour, day of the month, month, day of the week), six with the second
// in front, or a name: @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly. Fields are separated by
// spaces or tabs. A field is a list, separated by commas, of
//
//	7        a value; months and days of the week also by name: jan, MON
//	*        all values; in the fields for days also ?
//	7-9      a range
//	*/5      every fifth value of a range; 7/5 is 7 to the highest value, by fives
//
// and in the field for the day of the month of
//
//	L        the last day; L-3 is three days before it
//	15W      the weekday, Monday to Friday, of this month that is nearest to the 15th
//	LW       the last weekday
//
// and in the field for the day of the week of
//
//	friL     the last Friday of the month
//	fri#2    the second Friday of the month, up to the fifth
//
// A month without such a day, a fifth Friday or a 31st, is passed over. Days of the week are 0 to 7, where 0 and 7 are
// Sunday. As in crontab(5), a day must match one of the two fields for days if neither begins with a star, and both of
// them otherwise. A time zone is not part of an expression.
//
// The error is a sentence without its full stop, of at most 300 bytes. It wraps ErrNeverDue if no date matches.
func Parse(text string) (*Expression, error) {
	if len(text) > MaxExpressionBytes {
		return nil, fmt.Errorf("it has %d bytes, at most %d are taken", len(text), MaxExpressionBytes)
	}
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(fields) > 0 {
		switch first := fields[0]; {
		case strings.HasPrefix(first, "TZ=") || strings.HasPrefix(first, "CRON_TZ="):
			return nil, errors.New("it names a time zone, which is no part of an expression")
		case first == "@every":
			return nil, fmt.Errorf("%s is an interval, which is said with every and not with an expression",
				quote(strings.Join(fields, " ")))
		case first[0] == '@':
			long, ok := names[first]
			if !ok || len(fields) > 1 {
				return nil, fmt.Errorf("%s is not one of the names @yearly, @annually, @monthly, @weekly, @daily, "+
					"@midnight and @hourly", quote(strings.Join(fields, " ")))
			}
			fields = strings.Fields(long)
		}
	}
	e, r := &Expression{second: 1}, new(relative)
	var err error
	switch len(fields) {
	case 5:
	case 6:
		if e.second, err = seconds.parse(fields[0], r); err != nil {
			return nil, err
		}
		fields = fields[1:]
	case 1:
		return nil, errors.New("it has 1 field, 5 or 6 are needed")
	default:
		return nil, fmt.Errorf("it has %d fields, 5 or 6 are needed", len(fields))
	}
	for i, to := range []*uint64{&e.minute, &e.hour, &e.day, &e.month, &e.weekday} {
		if *to, err = minuteToWeekday[i].parse(fields[i], r); err != nil {
			return nil, err
		}
	}
	if *r != (relative{}) {
		e.relative = r
	}
	e.weekday = (e.weekday | e.weekday>>7) & (1<<7 - 1)
	e.either = !starred(fields[2]) && !starred(fields[4])
	e.perDay = int64(bits.OnesCount64(e.hour) * bits.OnesCount64(e.minute) * bits.OnesCount64(e.second))
	if _, ok := e.nextDay(0); !ok {
		return nil, fmt.Errorf("%w: no month of those given has such a day", ErrNeverDue)
	}
	return e, nil
}

// starred reports whether a field for days is unrestricted in the sense of crontab(5): it begins with a star,
// whatever follows.
func starred(field string) bool { return field[0] == '*' || field[0] == '?' }

// EveryHour reports whether e matches in every hour, so that it follows real time; see the package comment.
func (e *Expression) EveryHour() bool { return e.hour == 1<<24-1 }

var _ timer.Expression = (*Expression)(nil)

// Means implements timer.Expression: fields may be written in other ways, but must have the same values.
func (e *Expression) Means(text string) bool {
	o, err := Parse(text)
	if err != nil {
		return false
	}
	a, b := *e, *o
	same := (a.relative == nil) == (b.relative == nil) && (a.relative == nil || *a.relative == *b.relative)
	a.relative, b.relative = nil, nil
	return same && a == b
}

// quotedBytes is the number of bytes of a text that an error quotes.
const quotedBytes = 20

func quote(text string) string {
	if len(text) > quotedBytes {
		return fmt.Sprintf("%q…", text[:quotedBytes])
	}
	return fmt.Sprintf("%q", text)
}

// field describes what one field of an expression may contain.
type field struct {
	name      string
	low, high int
	values    []string // names of the values from low on, in lower case
	days      bool     // ? may replace *

	// relative reads an item that names days that each month places anew, into a relative. Its answer is false for
	// any other item.
	relative func(f *field, item string, r *relative) (bool, error)
}

var (
	seconds         = field{name: "second", high: 59}
	minuteToWeekday = []*field{
		{name: "minute", high: 59},
		{name: "hour", high: 23},
		{name: "day of the month", low: 1, high: 31, days: true, relative: (*field).ofMonth},
		{name: "month", low: 1, high: 12, values: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug",
			"sep", "oct", "nov", "dec"}},
		{name: "day of the week", high: 7, values: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"},
			days: true, relative: (*field).ofWeek},
	}
)

// parse returns the set of values that text allows, as bits. It adds days that each month places anew to r.
func (f *field) parse(text string, r *relative) (set uint64, err error) {
	for item := range strings.SplitSeq(text, ",") {
		part, err := f.item(item, r)
		if err != nil {
			return 0, fmt.Errorf("the field for the %s is %s, where %w", f.name, quote(text), err)
		}
		set |= part
	}
	return set, nil
}

// item returns the set of one member of the list.
func (f *field) item(text string, r *relative) (set uint64, err error) {
	if f.relative != nil {
		if is, err := f.relative(f, text, r); is || err != nil {
			return 0, err
		}
	}
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
		others = "; L, W, # and ? are for days, and H of other schedulers means nothing here"
	}
	if f.values != nil {
		return 0, fmt.Errorf("%s is not %d to %d and none of %s to %s%s", quote(text), f.low, f.high, f.values[0],
			f.values[len(f.values)-1], others)
	}
	return 0, fmt.Errorf("%s is not %d to %d%s", quote(text), f.low, f.high, others)
}

// ofOthers matches values that only other schedulers' cron expressions have.
var ofOthers = regexp.MustCompile(`^(?i:\d*[LW]|LW|L-\d+|\w+#\d+|\?|H)$`)

// number reads one to three digits.
func number(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err == nil && len(text) <= 3
}
