package contract

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// form is one way to say when a timer is due. make gets the instant wished for
// and returns the headers, the record's timestamp (zero: the moment of
// producing) and the instant that they say, which may lie a little before.
type form struct {
	name string
	make func(due int64) (headers []kgo.RecordHeader, timestamp time.Time, exact int64)
}

// atForm is a form of timer-at that says the instant itself.
func atForm(name string, write func(due time.Time) string) form {
	return form{name, func(due int64) ([]kgo.RecordHeader, time.Time, int64) {
		return []kgo.RecordHeader{header("timer-at", write(time.UnixMilli(due)))}, time.Time{}, due
	}}
}

// coarse is a form of timer-at that says the instant down to whole units.
func coarse(name string, unit time.Duration, write func(due time.Time) string) form {
	return form{name, func(due int64) ([]kgo.RecordHeader, time.Time, int64) {
		due -= due % unit.Milliseconds()
		return []kgo.RecordHeader{header("timer-at", write(time.UnixMilli(due)))}, time.Time{}, due
	}}
}

// zone writes an instant in a zone so many minutes east of UTC.
func zone(minutes int) func(time.Time) string {
	return func(due time.Time) string {
		return due.In(time.FixedZone("", minutes*60)).Format("2006-01-02T15:04:05.000Z07:00")
	}
}

// finer writes an instant one smallest unit later than the millisecond before
// due: rounded up it is due.
func finer(digits string) func(time.Time) string {
	return func(due time.Time) string {
		return due.Add(-time.Millisecond).UTC().Format("2006-01-02T15:04:05.000") + digits + "Z"
	}
}

func afterForm(text string, ms int64) form {
	return form{"after " + text, func(due int64) ([]kgo.RecordHeader, time.Time, int64) {
		return []kgo.RecordHeader{header("timer-after", text)}, time.UnixMilli(due - ms), due
	}}
}

// fixed is a form that always says the same instant, one in the past.
func fixed(text string, due int64) form {
	return form{"past " + text, func(int64) ([]kgo.RecordHeader, time.Time, int64) {
		return []kgo.RecordHeader{header("timer-at", text)}, time.Time{}, due
	}}
}

const (
	second = int64(1000)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
	week   = 7 * day
)

// forms holds every form that the documentation of the headers promises.
func forms() []form {
	list := []form{
		atForm("unix milliseconds", func(due time.Time) string { return fmt.Sprint(due.UnixMilli()) }),
		atForm("zero-padded milliseconds", func(due time.Time) string { return fmt.Sprintf("%020d", due.UnixMilli()) }),
		atForm("Z", zone(0)),
		atForm("lower case", func(due time.Time) string { return due.UTC().Format("2006-01-02t15:04:05.000z") }),
		atForm("-00:00", func(due time.Time) string { return due.UTC().Format("2006-01-02T15:04:05.000") + "-00:00" }),
		atForm("+01:00", zone(60)),
		atForm("+05:45", zone(345)),
		atForm("+14:00", zone(840)),
		atForm("-08:00", zone(-480)),
		atForm("-23:59", zone(-1439)),
		atForm("microseconds", func(due time.Time) string { return due.UTC().Format("2006-01-02T15:04:05.000000Z") }),
		atForm("a microsecond more", finer("001")),
		atForm("a nanosecond more", finer("000001")),
		atForm("12 decimals", finer("000000001")),
		coarse("whole seconds", time.Second, func(due time.Time) string { return due.UTC().Format(time.RFC3339) }),
		coarse("one decimal", 100*time.Millisecond,
			func(due time.Time) string { return due.UTC().Format("2006-01-02T15:04:05.0Z") }),
		fixed("1969-07-20T20:17:40Z", -14182940*second),
		fixed("0001-01-01T00:00:00Z", -62135596800*second),
		fixed("2016-12-31T23:59:60Z", 1483228800*second), // a leap second
		fixed("100000000000", 100_000_000_000),
	}
	for text, ms := range map[string]int64{
		"0s": 0, "0ms": 0, "1ms": 1, "250ms": 250, "90s": 90 * second, "1h30m": hour + 30*minute,
		"3d": 3 * day, "1w": week, "1w2d3h4m5s6ms7us8ns": week + 2*day + 3*hour + 4*minute + 5*second + 7,
		"1.5h": 90 * minute, "0.25s": 250, "2.0005s": 2001, "1000us": 1, "1500us": 2, "1µs": 1, "1μs": 1,
		"1ns": 1, "1000000ns": 1, "1000001ns": 2, "36h": 36 * hour, "100m": 100 * minute,
		"P1DT2H": day + 2*hour, "P1W": week, "P3D": 3 * day, "PT36H": 36 * hour, "PT1M": minute, "PT90S": 90 * second,
		"PT0.25S": 250, "P1W2DT3H4M5S": week + 2*day + 3*hour + 4*minute + 5*second, "PT0S": 0,
	} {
		list = append(list, afterForm(text, ms))
	}
	return list
}
