package calendar

import (
	"strings"
	"testing"
	"time"
)

// Days that each month places anew. 2026 begins on a Thursday; its February has 28 days and ends on a Saturday.
func TestDaysThatAMonthPlaces(t *testing.T) {
	for expression, want := range map[string]string{
		"0 9 L * *":             "01-31 02-28 03-31 04-30 05-31",
		"0 9 L-3 * *":           "01-28 02-25 03-28 04-27 05-28",
		"0 9 L-28 * *":          "01-03 03-03 04-02 05-03 06-02",
		"0 9 L-30 * *":          "01-01 03-01 05-01 07-01 08-01",
		"0 9 15W * *":           "01-15 02-16 03-16 04-15 05-15", // 02-15 and 03-15 are Sundays
		"0 9 1W * *":            "01-01 02-02 03-02 04-01 05-01",
		"0 9 1W 8 *":            "08-03",       // a Saturday
		"0 9 31W * *":           "01-30 03-31", // 01-31 is a Saturday, 05-31 a Sunday
		"0 9 28W 2 *":           "02-27",       // a Saturday
		"0 9 31W 5 *":           "05-29",       // a Sunday, the last day of its month
		"0 9 lw * *":            "01-30 02-27 03-31 04-30 05-29",
		"0 9 1,15,L * *":        "01-01 01-15 01-31 02-01 02-15 02-28",
		"0 9 * * friL":          "01-30 02-27 03-27 04-24 05-29",
		"0 9 * * 5l":            "01-30 02-27 03-27 04-24 05-29",
		"0 9 ? * 7L":            "01-25 02-22 03-29 04-26 05-31",
		"0 9 * * 0#1":           "01-04 02-01 03-01 04-05",
		"0 9 * * mon#1,MON#3":   "01-05 01-19 02-02 02-16",
		"0 9 * * fri#5":         "01-30 05-29 07-31", // a month without a fifth has none
		"0 9 * * wed,friL":      "01-07 01-14 01-21 01-28 01-30",
		"0 9 L * friL":          "01-30 01-31 02-27 02-28", // one or the other, as crontab(5) says
		"0 9 L */2 *":           "01-31 03-31 05-31",
		"0 9 29W 2 *":           "2028-02-29", // no day in other years
		"0 9 */2,L 1 sat":       "01-03 01-17 01-31 2027-01-09",
		"0 9 13 * fri#2,fri#3":  "01-09 01-13 01-16",
		"0 0 9 L-1 12 *":        "12-30",
		"0 9 L,1W,LW,L-2 4 *":   "04-01 04-28 04-30 2027-04-01",
		"0 9 10W,11W,12W 1 *":   "01-09 01-12 2027-01-11",
		"0 9 2W 5 *":            "05-01", // a Saturday
		"0 9 ? * sun#5,0#5,7#5": "03-29 05-31",
	} {
		e, err := Parse(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Unix() - 1
		for day := range strings.FieldsSeq(want) {
			if len(day) == len("01-02") {
				day = "2026-" + day
			}
			before := at
			at, _ = e.In(time.UTC).Next(at)
			if got := time.Unix(at, 0).UTC().Format(time.DateOnly); got != day {
				t.Errorf("%s: got %s, want %s", expression, got, day)
				break
			}
			if last, ok := e.In(time.UTC).Last(at, before); !ok || last != at {
				t.Errorf("%s: the last one up to %d is %d", expression, at, last)
			}
		}
	}
}

func TestWhatIsNoSuchDay(t *testing.T) {
	for expression, want := range map[string]string{
		"0 9 * * L":         `where the letter L needs a day of the week: friL is the last Friday of the month`,
		"0 9 * * fri#0":     `where "fri#0" is not one of the first five of a month: write fri#1 to fri#5, or friL`,
		"0 9 * * 5#6":       `where "5#6" is not one of the first five of a month`,
		"0 9 * * fri#":      `where "fri#" is not one`,
		"0 9 * * #2":        `where a value is missing`,
		"0 9 * * mon-fri#2": `where "mon-fri" is not 0 to 7`,
		"0 9 * * 5L/2":      `where "5L/2" has a step: the last one of a month takes none`,
		"0 9 * * 8L":        `where "8" is not 0 to 7`,
		"0 9 0W * *":        `where "0W" is not 1W to 31W, the weekday nearest to one day`,
		"0 9 1-5W * *":      `where "1-5W" is not 1W to 31W`,
		"0 9 15W/2 * *":     `where "15W/2" is neither L, L-3, 15W nor LW, which take no range and no step`,
		"0 9 L-31 * *":      `where "L-31" is not L-1 to L-30, the days before the last one`,
		"0 9 L-0 * *":       `where "L-0" is not L-1 to L-30`,
		"0 9 L-3W * *":      `where "L-3W" is not L-1 to L-30`,
		"0 9 L/2 * *":       `where "L/2" is neither L, L-3, 15W nor LW`,
		"L 9 * * *":         `where "L" is not 0 to 59; L, W, # and ? are for days`,
		"0 9 30W 2 *":       `no date matches: no month of those given has such a day`,
		"0 9 L-29 2 *":      `no date matches`,
		"0 9 * L *":         `where "L" is not 1 to 12 and none of jan to dec; L, W`,
	} {
		if _, err := Parse(expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", expression, err, want)
		}
	}
}

func TestExplainDaysThatAMonthPlaces(t *testing.T) {
	for expression, want := range map[string]string{
		"0 9 L * *":           "At 09:00, on the last day of the month",
		"0 9 1,15,L * *":      "At 09:00, on the 1st and 15th and the last day of the month",
		"0 9 L-1,L-3 * *":     "At 09:00, on the day before the last and the 3rd day before the last of the month",
		"0 9 15W,LW * *":      "At 09:00, on the weekday nearest to the 15th and the last weekday of the month",
		"0 9 * * friL":        "At 09:00, on the last Friday of the month",
		"0 9 * * mon#1,mon#3": "At 09:00, on the first Monday and the third Monday of the month",
		"0 9 * * wed,friL":    "At 09:00, on Wednesday and the last Friday of the month",
		"0 9 L * friL":        "At 09:00, on the last day of the month and on the last Friday of the month",
		"0 9 13 * fri,sun#1": "At 09:00, on the 13th of the month and on every Friday and the first Sunday of " +
			"the month",
		"0 9 */2 * friL": "At 09:00, on the 1st, 3rd, 5th, 7th, 9th, 11th, 13th, 15th, 17th, 19th, 21st, 23rd, " +
			"25th, 27th, 29th and 31st of the month if that is the last Friday of the month",
	} {
		e, err := Parse(expression)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Explain(); got != want {
			t.Errorf("%s: %s, want %s", expression, got, want)
		}
	}
}
