package icalendar

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// read reads events, each a few lines, on 2026-06-15.
func read(t *testing.T, zone string, events ...string) (*Found, error) {
	t.Helper()
	text := "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//x\n"
	for i, e := range events {
		text += fmt.Sprintf("BEGIN:VEVENT\nSUMMARY:event %d\nDTSTAMP:20260101T000000Z\n", i)
		if !strings.Contains(e, "UID:") {
			text += fmt.Sprintf("UID:u%d\n", i)
		}
		text += e + "\nEND:VEVENT\n"
	}
	text += "END:VCALENDAR\n"
	return Read(strings.NewReader(strings.ReplaceAll(text, "\n", "\r\n")), Options{
		Zone: zone, Now: time.Date(2026, 6, 15, 9, 0, 0, 0, time.UTC), Years: 2})
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, event, want string
	}{
		{"a day", "DTSTART;VALUE=DATE:20261225\nDTEND;VALUE=DATE:20261226", `"dates":["2026-12-25"]`},
		{"a day without an end", "DTSTART;VALUE=DATE:20261225", `"dates":["2026-12-25"]`},
		{"days", "DTSTART;VALUE=DATE:20261227\nDTEND;VALUE=DATE:20270102", `"dates":["2026-12-27/2027-01-01"]`},
		{"days by a duration", "DTSTART;VALUE=DATE:20261227\nDURATION:P1W", `"dates":["2026-12-27/2027-01-02"]`},
		{"long ago", "DTSTART;VALUE=DATE:20161225", ``},
		{"cancelled", "DTSTART;VALUE=DATE:20261225\nSTATUS:CANCELLED", ``},
		{"yearly", "DTSTART;VALUE=DATE:19900501\nRRULE:FREQ=YEARLY", `"yearly":["05-01"]`},
		{"yearly, with its day", "DTSTART;VALUE=DATE:19900501\nRRULE:FREQ=YEARLY;BYMONTH=5;BYMONTHDAY=1",
			`"yearly":["05-01"]`},
		{"days of each year", "DTSTART;VALUE=DATE:20201224\nDTEND;VALUE=DATE:20201227\nRRULE:FREQ=YEARLY",
			`"yearly":["12-24","12-25","12-26"]`},
		{"yearly on a weekday", "DTSTART;VALUE=DATE:20201126\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH",
			`"dates":["2025-11-27","2026-11-26","2027-11-25"]`},
		{"yearly, some times", "DTSTART;VALUE=DATE:20260101\nRRULE:FREQ=YEARLY;COUNT=2",
			`"dates":["2026-01-01","2027-01-01"]`},
		{"yearly, but once", "DTSTART;VALUE=DATE:20250701\nRRULE:FREQ=YEARLY\nEXDATE;VALUE=DATE:20260701",
			`"dates":["2025-07-01","2027-07-01"]`},
		{"yearly, from next year on", "DTSTART;VALUE=DATE:20270301\nRRULE:FREQ=YEARLY",
			`"dates":["2027-03-01","2028-03-01"]`},
		{"over the end of February", "DTSTART;VALUE=DATE:20200228\nDTEND;VALUE=DATE:20200301\nRRULE:FREQ=YEARLY",
			`"dates":["2026-02-28/2026-03-01","2027-02-28/2027-03-01","2028-02-28/2028-02-29"]`},
		{"weekly", "DTSTART;VALUE=DATE:20260103\nRRULE:FREQ=WEEKLY;BYDAY=SA,SU", `"weekly":["sat","sun"]`},
		{"weekly, on its own day", "DTSTART;VALUE=DATE:20260103\nRRULE:FREQ=WEEKLY", `"weekly":["sat"]`},
		{"every other week", "DTSTART;VALUE=DATE:20280520\nRRULE:FREQ=WEEKLY;INTERVAL=2",
			`"dates":["2028-05-20","2028-06-03"]`},
		{"until a day", "DTSTART;VALUE=DATE:20260601\nRRULE:FREQ=DAILY;UNTIL=20260603",
			`"dates":["2026-06-01/2026-06-03"]`},
		{"hours of each week", "DTSTART:20260105T180000\nDTEND:20260106T080000\nRRULE:FREQ=WEEKLY;BYDAY=MO,FR",
			`"hours":["mon,fri 18:00-08:00"]`},
		{"hours of each day", "DTSTART;TZID=Europe/Berlin:20260105T120000\nDURATION:PT30M\nRRULE:FREQ=DAILY",
			`"hours":["12:00-12:30"]`},
		{"midnight to midnight", "DTSTART:20261225T000000\nDTEND:20261227T000000",
			`"dates":["2026-12-25/2026-12-26"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, err := read(t, "Europe/Berlin", c.event)
			if err != nil || len(found.Refused) > 0 {
				t.Fatalf("%v, %q", err, found.Refused)
			}
			got, _ := json.Marshal(found.Rules)
			want := `{"zone":"Europe/Berlin"` + strings.TrimSuffix(","+c.want, ",") + `}`
			if string(got) != want {
				t.Errorf("%s, want %s", got, want)
			}
			if _, err := found.Rules.Compile(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What rules cannot say is refused by name, and what is cut is named.
func TestRefused(t *testing.T) {
	found, err := read(t, "Europe/Berlin",
		"DTSTART:20261224T120000\nDTEND:20261224T180000",
		"DTSTART;TZID=America/New_York:20260105T120000\nDURATION:PT1H\nRRULE:FREQ=DAILY",
		"DTSTART:20260105T120000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY",
		"DTSTART:20260105T120000\nDURATION:PT1M\nRRULE:FREQ=HOURLY",
		"DTSTART;VALUE=DATE:20261225\nDTEND;VALUE=DATE:20261225",
		"DTSTART:20260105T120000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;INTERVAL=2",
		"DTSTART;VALUE=DATE:20260105\nRRULE:FREQ=NEVER",
		"SUMMARY:none",
		"DTSTART;VALUE=DATE:20260101\nRRULE:FREQ=MONTHLY")
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Refused) != 8 || !strings.HasPrefix(found.Refused[0], `"event 0": rules have times of day`) &&
		!strings.Contains(strings.Join(found.Refused, "\n"), `"event 0"`) {
		t.Errorf("%s", strings.Join(found.Refused, "\n"))
	}
	if len(found.Cut) != 1 || found.Cut[0] != "event 8" || found.Until.Format(time.DateOnly) != "2028-06-15" {
		t.Errorf("%q, %s", found.Cut, found.Until)
	}
}

// One occurrence that was moved comes on its new day only.
func TestMoved(t *testing.T) {
	found, err := read(t, "UTC", "UID:x\nDTSTART;VALUE=DATE:20260601\nRRULE:FREQ=DAILY;COUNT=3",
		"UID:x\nRECURRENCE-ID;VALUE=DATE:20260602\nDTSTART;VALUE=DATE:20260610")
	if err != nil || fmt.Sprint(found.Rules.Dates) != "[2026-06-01 2026-06-03 2026-06-10]" {
		t.Errorf("%v, %v", found, err)
	}
}

func TestZones(t *testing.T) {
	const day = "DTSTART;VALUE=DATE:20261225"
	if _, err := read(t, "", day); err == nil || !strings.Contains(err.Error(), "--zone") {
		t.Error(err)
	}
	if _, err := read(t, "Europe/Berlinn", day); err == nil {
		t.Error("an unknown zone")
	}
	if f, err := read(t, "", "DTSTART;TZID=Asia/Tokyo:20260105T120000\nDURATION:PT1H\nRRULE:FREQ=DAILY"); err != nil ||
		f.Rules.Zone != "Asia/Tokyo" {
		t.Error(f, err)
	}
	f, err := Read(strings.NewReader("BEGIN:VCALENDAR\nX-WR-TIMEZONE:Asia/Tokyo\nEND:VCALENDAR\n"), Options{})
	if err != nil || f.Rules.Zone != "Asia/Tokyo" {
		t.Error(f, err)
	}
	if _, err := Read(strings.NewReader("no calendar"), Options{Zone: "UTC"}); err == nil {
		t.Error("no calendar")
	}
}

func FuzzRead(f *testing.F) {
	f.Add("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY")
	f.Add("DTSTART:20260105T180000\nDURATION:PT9H\nRRULE:FREQ=WEEKLY;BYDAY=MO")
	f.Fuzz(func(t *testing.T, event string) {
		found, err := read(t, "UTC", event)
		if err != nil {
			return
		}
		if _, err := found.Rules.Compile(); err != nil && len(found.Rules.Dates) < 10_000 {
			t.Errorf("%q: %v", event, err)
		}
	})
}
