package calendar

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// MaxExpressionBytes is the longest expression that is parsed.
const MaxExpressionBytes = 1024

// ErrNeverDue says of an expression that no date of the calendar matches it, such
// as the 30th of February.
var ErrNeverDue = errors.New("no date matches")

// Expression is a parsed cron expression: sets of what the clock shall show. It is
// immutable.
type Expression struct {
	second, minute uint64 // bits 0 to 59
	hour           uint64 // bits 0 to 23
	day            uint64 // bits 1 to 31
	month          uint64 // bits 1 to 12
	weekday        uint64 // bits 0 to 6, from Sunday

	// either says that a day needs to be in one of day and weekday, not in both:
	// as in crontab(5) where neither field begins with a star.
	either bool

	perDay int64 // how many times of a day there are
}

// names are what may stand for a whole expression.
var names = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// Parse reads an expression: five fields (minute, hour, day of the month, month,
// day of the week), six with the second in front, or a name: @yearly, @annually,
// @monthly, @weekly, @daily, @midnight, @hourly. Fields stand between spaces or
// tabs. A field is a list with commas, of
//
//	7        a value; months and days of the week also by name: jan, MON
//	*        all values; in the fields for days also ?
//	7-9      a range
//	*/5      every fifth value of a range; 7/5 is 7 to the highest value, by fives
//
// Days of the week are 0 to 7, where 0 and 7 are Sunday. If both fields for days
// begin with something else than a star, a day needs to match one of them, else
// both, as in crontab(5). A time zone is not part of an expression.
//
// The error is a sentence without its end that says what is wrong, with at most
// 300 bytes, and wraps ErrNeverDue where no date matches.
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
			return nil, fmt.Errorf("%s is an interval, which is said with every and not with an expression", quote(strings.Join(fields, " ")))
		case first[0] == '@':
			long, ok := names[first]
			if !ok || len(fields) > 1 {
				return nil, fmt.Errorf("%s is none of the names @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly", quote(strings.Join(fields, " ")))
			}
			fields = strings.Fields(long)
		}
	}
	e := &Expression{second: 1}
	switch len(fields) {
	case 5:
	case 6:
		if err := e.take(&e.second, fields[0], &seconds); err != nil {
			return nil, err
		}
		fields = fields[1:]
	case 1:
		return nil, errors.New("it has 1 field, 5 or 6 are needed")
	default:
		return nil, fmt.Errorf("it has %d fields, 5 or 6 are needed", len(fields))
	}
	for i, to := range []*uint64{&e.minute, &e.hour, &e.day, &e.month, &e.weekday} {
		if err := e.take(to, fields[i], minuteToWeekday[i]); err != nil {
			return nil, err
		}
	}
	e.weekday = (e.weekday | e.weekday>>7) & (1<<7 - 1)
	e.either = !starred(fields[2]) && !starred(fields[4])
	e.perDay = int64(bits.OnesCount64(e.hour) * bits.OnesCount64(e.minute) * bits.OnesCount64(e.second))
	if _, ok := e.nextDay(0); !ok {
		return nil, fmt.Errorf("%w: no month of those given has such a day", ErrNeverDue)
	}
	return e, nil
}

func (e *Expression) take(to *uint64, text string, f *field) (err error) {
	*to, err = f.parse(text)
	return err
}

// starred reports whether a field for days is unrestricted in the words of
// crontab(5): it begins with a star, whatever comes behind.
func starred(field string) bool { return field[0] == '*' || field[0] == '?' }

// EveryHour reports whether e follows real time, see the package's comment.
func (e *Expression) EveryHour() bool { return e.hour == 1<<24-1 }

// quotedBytes is how much of a text an error shows.
const quotedBytes = 20

func quote(text string) string {
	if len(text) > quotedBytes {
		return fmt.Sprintf("%q…", text[:quotedBytes])
	}
	return fmt.Sprintf("%q", text)
}
