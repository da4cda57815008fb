package calendar

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/timer"
)

func rules(t testing.TB, text string) *Exclusion {
	t.Helper()
	e, err := ParseRules([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestShifts: where an excluded time goes. The 1st of May 2027 is a Saturday.
func TestShifts(t *testing.T) {
	const (
		german = `{"zone": "Europe/Berlin", "yearly": ["05-01", "12-25", "02-29"], "dates": ["2026-12-26",
			"2026-12-27/2027-01-01"], "weekly": ["sat", "sun"]}`
		nights = `{"zone": "Europe/Berlin", "hours": ["mon-fri 18:00-08:00", "12:00-12:30:30"]}`
		small  = `{"zone": "Europe/Berlin", "hours": ["01:00-02:30"]}`
	)
	for _, c := range []struct{ name, calendars, at, next, previous string }{ // previous "": not excluded
		{"a free day", german, "2027-05-03T09:00:00.25+02:00", "2027-05-03T09:00:00.25+02:00", ""},
		{"a holiday on a weekend", german, "2027-05-01T09:00:00.25+02:00", "2027-05-03T09:00:00.25+02:00",
			"2027-04-30T09:00:00.25+02:00"},
		{"a span of days", german, "2026-12-25T17:00:00+01:00", "2027-01-04T17:00:00+01:00",
			"2026-12-24T17:00:00+01:00"},
		{"the last day of a span", german, "2027-01-01T00:00:00+01:00", "2027-01-04T00:00:00+01:00",
			"2026-12-24T00:00:00+01:00"},
		{"the day is that of the zone", german, "2027-05-02T21:59:59.999Z", "2027-05-03T21:59:59.999Z",
			"2027-04-30T21:59:59.999Z"},
		{"a time that the next day skips", german, "2027-03-27T02:30:00+01:00", "2027-03-29T02:30:00+02:00",
			"2027-03-26T02:30:00+01:00"},
		{"at night", nights, "2027-05-03T19:00:00+02:00", "2027-05-04T08:00:00+02:00",
			"2027-05-03T17:59:59.999+02:00"},
		{"in the morning", nights, "2027-05-04T07:59:59.999+02:00", "2027-05-04T08:00:00+02:00",
			"2027-05-03T17:59:59.999+02:00"},
		{"the end", nights, "2027-05-04T08:00:00+02:00", "2027-05-04T08:00:00+02:00", ""},
		{"Saturday morning", nights, "2027-05-08T07:00:00+02:00", "2027-05-08T08:00:00+02:00",
			"2027-05-07T17:59:59.999+02:00"},
		{"Saturday night", nights, "2027-05-08T19:00:00+02:00", "2027-05-08T19:00:00+02:00", ""},
		{"noon, with seconds", nights, "2027-05-08T12:30:29+02:00", "2027-05-08T12:30:30+02:00",
			"2027-05-08T11:59:59.999+02:00"},
		{"an end that the clock skips", small, "2027-03-28T01:30:00+01:00", "2027-03-28T03:00:00+02:00",
			"2027-03-28T00:59:59.999+01:00"},
		{"an end that the clock shows twice", small, "2027-10-31T02:10:00+01:00", "2027-10-31T02:30:00+01:00",
			"2027-10-31T00:59:59.999+02:00"},
		{"two calendars", german + nights, "2027-05-07T20:00:00+02:00", "2027-05-10T08:00:00+02:00",
			"2027-05-07T17:59:59.999+02:00"},
		{"two calendars, the first free day again excluded", german + nights, "2027-05-02T19:00:00+02:00",
			"2027-05-04T08:00:00+02:00", "2027-04-30T17:59:59.999+02:00"},
	} {
		var x Exclusions
		for _, text := range strings.SplitAfter(c.calendars, "]}") {
			if text != "" {
				x = append(x, rules(t, text))
			}
		}
		at := millis(t, c.at)
		if excluded := x.Excludes(at) >= 0; excluded != (c.previous != "") {
			t.Errorf("%s: excluded %v", c.name, excluded)
		}
		if got, ok := x.shifted(at, timer.ShiftNext, new(work)); !ok || got != millis(t, c.next) {
			t.Errorf("%s: next is %s, %v, want %s", c.name, time.UnixMilli(got).UTC(), ok, c.next)
		}
		got, ok := x.shifted(at, timer.ShiftPrevious, new(work))
		if want := c.previous; !ok || want != "" && got != millis(t, want) || want == "" && got != at {
			t.Errorf("%s: previous is %s, %v, want %s", c.name, time.UnixMilli(got).UTC(), ok, want)
		}
		if _, ok := x.shifted(at, timer.ShiftSkip, new(work)); ok != (c.previous == "") {
			t.Errorf("%s: not skipped: %v", c.name, ok)
		}
	}
}

// TestNothingIsFree: a calendar that excludes everything is found out quickly, with one rule and with several.
func TestNothingIsFree(t *testing.T) {
	at := millis(t, "2027-05-03T09:00:00Z")
	for _, x := range []Exclusions{
		{rules(t, `{"weekly": ["0-6"]}`)},
		{rules(t, `{"hours": ["00:00-24:00"]}`)},
		{rules(t, `{"weekly": ["sat", "sun", "mon"], "hours": ["tue-fri 00:00-13:00", "tue-fri 12:00-00:00"]}`)},
		{rules(t, `{"weekly": ["0-6"]}`), rules(t, `{"hours": ["00:00-12:00", "12:00-00:00"]}`)},
		{rules(t, `{"hours": ["00:00-12:00"]}`), rules(t, `{"hours": ["12:00-24:00"]}`)},
	} {
		for _, by := range []timer.Shift{timer.ShiftNext, timer.ShiftPrevious} {
			begun := time.Now()
			if got, ok := x.shifted(at, by, new(work)); ok {
				t.Errorf("%+v leaves %s", x, time.UnixMilli(got).UTC())
			}
			if took := time.Since(begun); took > time.Second {
				t.Errorf("%+v: found out after %s", x, took)
			}
		}
	}
	for _, text := range []string{`{}`, `{"weekly": ["sun-fri"]}`, `{"dates": ["2027-01-01/2027-12-31"]}`,
		`{"weekly": ["sat", "sun", "mon"], "hours": ["tue-fri 00:00-13:00", "tue-thu 12:00-00:00"]}`,
		`{"hours": ["08:00-07:59:59"]}`} {
		if rules(t, text).always {
			t.Errorf("%s is taken to exclude everything", text)
		}
	}
}

func TestBadRules(t *testing.T) {
	for text, says := range map[string]string{
		`{"zone": "Mars/Olympus"}`:              "zone: unknown time zone",
		`{"dates": ["2026-12-25", "26-12-25"]}`: `dates[1] is "26-12-25", needs a date`,
		`{"dates": ["2027-02-29"]}`:             "dates[0]",
		`{"dates": ["2027-02-02/2027-02-01"]}`:  "ends before it begins",
		`{"yearly": ["13-01"]}`:                 "yearly[0]",
		`{"yearly": ["02-30"]}`:                 "yearly[0]",
		`{"weekly": ["freitag"]}`:               "weekly[0]",
		`{"weekly": ["5L"]}`:                    "weekly[0]",
		`{"hours": ["mon 8-9"]}`:                "hours[0]",
		`{"hours": ["mon 08:00-08:00"]}`:        "names no time",
		`{"hours": ["24:00-01:00"]}`:            "hours[0]",
		`{"hours": ["25:00-01:00"]}`:            "hours[0]",
		`{"holidays": []}`:                      `unknown field "holidays"`,
		`[]`:                                    "no JSON object",
		`{} {}`:                                 "trailing data",
		`{"dates": [` + strings.Repeat(`"2027-01-01",`, maxRules) + `"2027-01-01"]}`: "10001 rules",
		strings.Repeat(" ", MaxRulesBytes+1):                                         "bytes",
	} {
		if e, err := ParseRules([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.80s: %+v, %v, want %s", text, e, err, says)
		}
	}
}

// TestShiftsAgainstASearch: the next free time is what a search by the minute finds, if only hours are excluded; and
// with days too, the result is free, on the right side, and has the same time of day unless hours say otherwise.
func TestShiftsAgainstASearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Rules{Zone: rapid.SampledFrom([]string{"", "Europe/Berlin", "Asia/Kathmandu"}).Draw(t, "zone")}
		for range rapid.IntRange(1, 3).Draw(t, "hours") {
			from, to := rapid.IntRange(0, 1439).Draw(t, "from"), rapid.IntRange(0, 1439).Draw(t, "to")
			if from == to {
				continue
			}
			r.Hours = append(r.Hours, fmt.Sprintf("%d-%d %02d:%02d-%02d:%02d", 1, rapid.IntRange(1, 6).Draw(t, "day"),
				from/60, from%60, to/60, to%60))
		}
		if rapid.Bool().Draw(t, "whole days") {
			r.Weekly = []string{"sat"}
			r.Dates = []string{"2027-03-27/2027-03-30"}
		}
		e, err := r.Compile()
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(r)
		again, err := ParseRules(text)
		if err != nil || fmt.Sprint(again.dates, again.hours) != fmt.Sprint(e.dates, e.hours) {
			t.Fatalf("%s: read again as %+v, %v", text, again, err)
		}
		const minute = 60_000
		at := 1806105600000 + rapid.Int64Range(0, 14*24*60).Draw(t, "minutes")*minute // from 2027-03-26 on
		x := Exclusions{e}
		next, ok := x.shifted(at, timer.ShiftNext, new(work))
		previous, before := x.shifted(at, timer.ShiftPrevious, new(work))
		if !ok || !before || next < at || previous > at || e.Excludes(next) || e.Excludes(previous) {
			t.Fatalf("%s at %d: %d, %d", text, at, next, previous)
		}
		if r.Weekly != nil {
			return
		}
		for free := at; ; free += minute {
			if !e.Excludes(free) {
				if free != next {
					t.Fatalf("%s at %d: next is %d, a search finds %d", text, at, next, free)
				}
				break
			}
		}
		if !e.Excludes(at) {
			return
		}
		for free := at - 1; ; free -= minute {
			if !e.Excludes(free) {
				if free != previous {
					t.Fatalf("%s at %d: previous is %d, a search finds %d", text, at, previous, free)
				}
				break
			}
		}
	})
}

func FuzzRules(f *testing.F) {
	f.Add(`{"zone": "Europe/Berlin", "dates": ["2026-12-25", "2026-12-27/2027-01-01"], "yearly": ["05-01"]}`)
	f.Add(`{"weekly": ["sat", "sun"], "hours": ["mon-fri 18:00-08:00"]}`)
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseRules([]byte(text))
		if err != nil {
			return
		}
		for _, at := range []int64{0, 1806105600123, -62135596800000} {
			for _, by := range []timer.Shift{timer.ShiftNext, timer.ShiftPrevious} {
				if free, ok := (Exclusions{e}).shifted(at, by, new(work)); ok && e.Excludes(free) {
					t.Fatalf("%q at %d: %d is excluded", text, at, free)
				}
			}
		}
	})
}
