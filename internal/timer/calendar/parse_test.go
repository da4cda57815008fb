package calendar

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestParse(t *testing.T) {
	// Each pair of expressions means the same.
	same := map[string]string{
		"0 0 * * *":             "0 0 0 * * *",
		" 0\t0  * * * ":         "0 0 * * *",
		"@yearly":               "0 0 1 1 *",
		"@annually":             "0 0 1 jan ?",
		"@monthly":              "0 0 1 * *",
		"@weekly":               "0 0 * * sun",
		"@daily":                "0 0 * * *",
		"@midnight":             "0 0 ? * *",
		"@hourly":               "0 * * * *",
		"0 0 * * 7":             "0 0 * * 0",
		"0 0 * * 5-7":           "0 0 * * 0,5,6",
		"0 0 * * SAT-SUN":       "0 0 * * 0,6",
		"0 0 * * mon-fri":       "0 0 * * 1,2,3,4,5",
		"0 0 * Jan,DEC *":       "0 0 * 1,12 *",
		"0 0 * * 0-7":           "0 0 * * sun-sat",
		"*/20 * * * *":          "0,20,40 * * * *",
		"5/20 * * * *":          "5,25,45 * * * *",
		"10-30/10 * * * *":      "10,20,30 * * * *",
		"*/60 * * * *":          "0 * * * *",
		"007 00 * * *":          "7 0 * * *",
		"0 0 * * 1/2":           "0 0 * * 0,1,3,5",
		"1,1,1-2,2 * * * *":     "1-2 * * * *",
		"0 0 31 1,2 *":          "0 0 31 1,2 *",
		"0-59 0-23 1-31 1-12 *": "* * 1-31 * *",
		strings.Repeat(" ", MaxExpressionBytes-6) + "@daily": "@daily",
	}
	for a, b := range same {
		x, errX := Parse(a)
		y, errY := Parse(b)
		if errX != nil || errY != nil || *x != *y {
			t.Errorf("%q and %q: %+v, %v and %+v, %v", a, b, x, errX, y, errY)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct{ text, says string }{
		{"", "0 fields"}, {" \t ", "0 fields"}, {"* * * *", "4 fields"}, {"* * * * * * *", "7 fields"},
		{"0\n0 * * * *", "minute"}, {"0\u00a00 * * *", "4 fields"},
		{"60 * * * *", `the field for the minute is "60", where "60" is not 0 to 59`},
		{"* 24 * * *", "hour"}, {"* * 0 * *", "day of the month"}, {"* * 32 * *", "1 to 31"}, {"* * * 0 *", "month"},
		{"* * * 13 *", "jan to dec"}, {"* * * * 8", "day of the week"}, {"60 * * * * *", "second"},
		{"*/0 * * * *", `the step "0" is not 1 to 60`}, {"*/61 * * * *", "step"}, {"* */25 * * *", "1 to 24"},
		{"*/-1 * * * *", "step"},
		{"*/ * * * *", "step"}, {"/5 * * * *", "missing"}, {"*/5/5 * * * *", "step"}, {"** * * * *", `"**"`},
		{"*5 * * * *", `"*5"`},
		{"1, * * * *", "missing"}, {", * * * *", "missing"}, {",1 * * * *", "missing"}, {"1,,2 * * * *", "missing"},
		{"- * * * *", "missing"},
		{"1- * * * *", "missing"}, {"-1 * * * *", "missing"}, {"1-2-3 * * * *", `"2-3"`},
		{"30-10 * * * *", "backwards"}, {"* * * * fri-mon", "backwards"},
		{"* 22-2 * * *", "backwards"}, {"? * * * *", `"?"`}, {"* * * ? *", `"?"`}, {"+5 * * * *", `"+5"`},
		{"5.0 * * * *", `"5.0"`}, {"٣ * * * *", "minute"},
		{"99999999999999999999 * * * *", "minute"}, {"0000 * * * *", "minute"},
		{"*/18446744073709551617 * * * *", "step"},
		{"H H * * *", `"H"`},
		{"mon * * * *", `"mon"`},
		{"* * * mon *", "month"}, {"* * * * jan", "week"}, {"* * * * monday", `"monday"`},
		{"TZ=UTC 0 0 * * *", "time zone"}, {"CRON_TZ=Europe/Berlin 0 0 * * *", "time zone"}, {"TZ=0", "time zone"},
		{"TZ=", "time zone"},
		{"@every 5m", `"@every 5m" is an interval`}, {"@reboot", "@reboot"}, {"@", `"@"`}, {"@Daily", "@Daily"},
		{"@daily 5", "@daily 5"}, {"@daily @daily", "@daily"},
		{strings.Repeat("1,", 50_000) + "1 * * * *", "100009 bytes"}, {strings.Repeat("*", 1025), "1025 bytes"},
		{strings.Repeat("\x00", 1000), "1 field,"}, {strings.Repeat("-", 1000) + " * * * *", "minute"},
		{strings.Repeat("€", 100) + " * * * *", "minute"},
	}
	for _, tt := range tests {
		e, err := Parse(tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%.60q: %+v, %v; want %q", tt.text, e, err, tt.says)
			continue
		}
		if text := err.Error(); len(text) > 300 || strings.HasSuffix(text, ".") || !utf8.ValidString(text) ||
			strings.Contains(text, "\n") {
			t.Errorf("%.60q: %q is no sentence without its end", tt.text, text)
		}
	}
	for _, text := range []string{"0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 30-31 feb *", "0 0 30 2 */7"} {
		if e, err := Parse(text); !errors.Is(err, ErrNeverDue) {
			t.Errorf("%q: %+v, %v", text, e, err)
		}
	}
	if _, err := Parse("0 0 30 2 mon"); err != nil { // the day or a Monday
		t.Error(err)
	}
}

// longest bounds the time of every call of the package.
const longest = 10 * time.Millisecond

// quickly fails if f takes too long for a reason other than a busy machine.
func quickly(t testing.TB, what string, f func()) {
	t.Helper()
	took := time.Duration(math.MaxInt64)
	for range 5 {
		start := time.Now()
		f()
		if took = min(took, time.Since(start)); took <= longest {
			return
		}
	}
	t.Errorf("%s takes %v", what, took)
}

// TestLongWays: no call takes too long, however rare its instants and however far apart they are.
func TestLongWays(t *testing.T) {
	for _, z := range []string{"UTC", "Europe/Berlin", "Antarctica/Troll", "Africa/Casablanca"} {
		loc, err := LoadZone(z)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{
			"0 0 29 2 */7", "0 * 29 2 */7", "* * * * * *", "0 0 29 2 *", "*/7 1-23 * * * *", "59 59 23 31 12 *",
			"0 0 1 1 *", "1-59/2 * 1-30 */5 mon-fri",
		} {
			var e *Expression
			quickly(t, "Parse of "+text, func() {
				if e, err = Parse(text); err != nil {
					t.Fatal(err)
				}
			})
			s := e.In(loc)
			for _, year := range []int{0, 1900, 1970, 2026, 2096, 2200, 9999} {
				from := time.Date(year, 3, 1, 0, 0, 0, 0, time.UTC).Unix()
				to := from + 100*366*daySeconds
				what := text + " in " + z + " from " + time.Unix(from, 0).UTC().String()
				quickly(t, "Next of "+what, func() { s.Next(from) })
				quickly(t, "Last of "+what, func() { s.Last(to, from) })
				var n int64
				quickly(t, "Count of "+what, func() { n = s.Count(from, to) })
				quickly(t, "nth of "+what, func() { s.nth(n/2, from, to) })
				quickly(t, "Interval of "+what, func() { e.Interval() })
			}
		}
	}
}

// FuzzSchedule: no expression, zone or instant makes the package panic, take long, or go backwards.
func FuzzSchedule(f *testing.F) {
	zones := make([]*time.Location, 0, len(oracleZones))
	for _, z := range oracleZones {
		loc, err := LoadZone(z.name)
		if err != nil {
			f.Fatal(err)
		}
		zones = append(zones, loc)
	}
	for i, text := range append(always, "@daily", "0 0 30 2 *", "*/0 * * * *", "TZ=0 * * * * *", "* * * * * *",
		"5/7 1-3 ? Feb-MAY Sat-sun", "59 59 23 29 2 */7") {
		f.Add(text, uint8(i), int64(1_700_000_000), int64(100_000))
	}
	f.Fuzz(func(t *testing.T, text string, zone uint8, from, length int64) {
		var e *Expression
		var err error
		quickly(t, "Parse", func() { e, err = Parse(text) })
		if err != nil {
			if utf8.ValidString(text) && !utf8.ValidString(err.Error()) || len(err.Error()) > 300 {
				t.Fatalf("%q", err)
			}
			return
		}
		if e.Explain() == "" {
			t.Fatal("cannot be explained")
		}
		const century = 100 * 366 * daySeconds
		from = from % (80 * century)
		to := from + max(0, length%century)
		s := e.In(zones[int(zone)%len(zones)])
		var next, reading, n, last int64
		var any bool
		quickly(t, "Next", func() { next, reading = s.Next(from) })
		quickly(t, "Count", func() { n = s.Count(from, to) })
		quickly(t, "Last", func() { last, any = s.Last(to, from) })
		quickly(t, "Interval", func() { n := e.Interval(); _ = n })
		switch {
		case next <= from:
			t.Fatalf("%q in %s: %d comes behind %d", text, s.Location(), next, from)
		case s.next(reading) != reading:
			t.Fatalf("%q in %s: %d does not match", text, s.Location(), reading)
		case s.Again(next, reading) != next:
			t.Fatalf("%q in %s: %d comes again at %d", text, s.Location(), next, s.Again(next, reading))
		case any != (next <= to), any != (n > 0), any && (last < next || last > to):
			t.Fatalf("%q in %s from %d to %d: next %d, last %d %v, %d of them", text, s.Location(), from, to, next,
				last, any, n)
		}
		if !any {
			return
		}
		if behind, _ := s.Next(last); behind <= to || s.Count(from, last) != n || s.Count(last, to) != 0 {
			t.Fatalf("%q in %s from %d to %d: %d comes behind the last, %d", text, s.Location(), from, to, behind, last)
		}
		quickly(t, "nth", func() { last = s.nth(1+n/2, from, last) })
		if n > 1 && s.Count(from, last) != 1+n/2 {
			t.Fatalf("%q in %s from %d to %d: number %d is %d", text, s.Location(), from, to, 1+n/2, last)
		}
	})
}

func TestInterval(t *testing.T) {
	for text, want := range map[string]int64{
		"* * * * *": 60, "* * * * * *": 1, "0 0 * * *": daySeconds, "0 * * * *": hourSeconds, "59,0 * * * *": 60,
		"0,59 23,0 * * *": 60, "0,59 23,0 * * 1": 59 * 60, "0 0 * * 1": 7 * daySeconds, "0 0 1 * *": 28 * daySeconds,
		"10,50 * * * * *": 20, "0 0,20 9,17 * * *": 20 * 60, "0 9,17 * * *": 8 * hourSeconds,
		"0 0 1 1 *":    365 * daySeconds,
		"0 0 1,31 * *": daySeconds, "30 59 23 * * *": daySeconds, "0 0 29 2 *": 1461 * daySeconds,
	} {
		e, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Interval(); got != want {
			t.Errorf("%q: %d s, want %d", text, got, want)
		}
	}
}

func TestExplain(t *testing.T) {
	for text, want := range map[string]string{
		"0 9 * * mon-fri":     "At 09:00, on Monday to Friday",
		"* * * * *":           "Every minute",
		"*/5 * * * *":         "Every 5 minutes",
		"30 * * * *":          "At minute 30, every hour",
		"*/5 9-17 1,15 * *":   "Every 5 minutes, in hours 9 to 17, on the 1st and 15th of the month",
		"0 0 13 * fri":        "At 00:00, on the 13th of the month and on every Friday",
		"0 0 1-7 * */7":       "At 00:00, on the 1st to 7th of the month if that is Sunday",
		"0 0 1 1 *":           "At 00:00, on the 1st of the month, in January",
		"@daily":              "At 00:00, every day",
		"*/10 * * * * *":      "Every 10 seconds",
		"* * * * * *":         "Every second",
		"15 30 9,17 * * *":    "At 09:30:15 and 17:30:15, every day",
		"2/15 * * * *":        "Every 15 minutes from minute 2 on",
		"0,1,2,7 * * 6-8 *":   "At minutes 0 to 2 and 7, every hour, in June to August",
		"0 */2 * * *":         "At minute 0, every 2 hours",
		"0 0 22,23 * *":       "At 00:00, on the 22nd and 23rd of the month",
		"0 0 * jan,mar,dec 2": "At 00:00, on Tuesday, in January, March and December",
		"5-7 * * * * *":       "At seconds 5 to 7, every minute",
		"0 0-10 3 * * *":      "At minutes 0 to 10, in hour 3",
		"* 5 * * * *":         "Every second, at minute 5, every hour",
	} {
		e, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Explain(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
