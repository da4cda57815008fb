package contract

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// form is one way to say when a timer is due. make gets the instant wished for and returns the headers, the record's
// timestamp (zero: the moment of producing) and the instant that they say, which may lie a little before.
type form struct {
	name string
	make func(due int64) (headers []kgo.RecordHeader, timestamp time.Time, exact int64)
}

// atForm is a form of timer-at that says the instant itself.
func atForm(name string, write func(due time.Time) string) form {
	return coarse(name, time.Millisecond, write)
}

// coarse is a form of timer-at that says the instant down to whole units.
func coarse(name string, unit time.Duration, write func(due time.Time) string) form {
	return form{name, func(due int64) ([]kgo.RecordHeader, time.Time, int64) {
		due -= due % unit.Milliseconds()
		return headers("timer-at", write(time.UnixMilli(due))), time.Time{}, due
	}}
}

// zone writes an instant in a zone so many minutes east of UTC.
func zone(minutes int) func(time.Time) string {
	return func(due time.Time) string {
		return due.In(time.FixedZone("", minutes*60)).Format("2006-01-02T15:04:05.000Z07:00")
	}
}

func afterForm(text string, ms int64) form {
	return form{"after " + text, func(due int64) ([]kgo.RecordHeader, time.Time, int64) {
		return headers("timer-after", text), time.UnixMilli(due - ms), due
	}}
}

// fixed is a form that always says the same instant, one in the past.
func fixed(text string, due int64) form {
	return form{"past " + text, func(int64) ([]kgo.RecordHeader, time.Time, int64) {
		return headers("timer-at", text), time.Time{}, due
	}}
}

// forms holds the kinds of forms that the documentation of the headers promises. intake has a test of each.
func forms() []form {
	const minute = int64(60_000)
	return []form{
		atForm("unix milliseconds", func(due time.Time) string { return fmt.Sprint(due.UnixMilli()) }),
		atForm("Z", zone(0)),
		atForm("lower case", func(due time.Time) string { return due.UTC().Format("2006-01-02t15:04:05.000z") }),
		atForm("+05:45", zone(345)),
		atForm("-23:59", zone(-1439)),
		atForm("rounded up", func(due time.Time) string {
			return due.Add(-time.Millisecond).UTC().Format("2006-01-02T15:04:05.000") + "000000001Z"
		}),
		coarse("whole seconds", time.Second, func(due time.Time) string { return due.UTC().Format(time.RFC3339) }),
		fixed("1969-07-20T20:17:40Z", -14_182_940_000),
		fixed("2016-12-31T23:59:60Z", 1_483_228_800_000), // a leap second
		fixed("100000000000", 100_000_000_000),
		afterForm("0s", 0),
		afterForm("250ms", 250),
		afterForm("1h30m", 90*minute),
		afterForm("1.5h", 90*minute),
		afterForm("1500us", 2),
		afterForm("1w2d3h4m5s6ms7us8ns", 788_645_007),
		afterForm("P1W2DT3H4M5S", 788_645_000),
		afterForm("PT0.25S", 250),
	}
}
