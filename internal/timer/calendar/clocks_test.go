package calendar

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// TestClocksThatChange covers the clock changes that have broken other schedulers. It checks what comes after an
// instant, as the local clock shows it.
func TestClocksThatChange(t *testing.T) {
	const shape = "2006-01-02 15:04:05 -07:00"
	tests := []struct {
		name, expression, zone, behind string
		want                           []string
	}{
		{"Havana skips midnight", "0 0 * * *", "America/Havana", "2024-03-09 12:00:00 -05:00",
			[]string{"2024-03-10 01:00:00 -04:00", "2024-03-11 00:00:00 -04:00"}},
		{"Havana shows half past midnight twice", "30 0 * * *", "America/Havana", "2024-11-02 12:00:00 -04:00",
			[]string{"2024-11-03 00:30:00 -04:00", "2024-11-04 00:30:00 -05:00"}},
		{"Beirut skips midnight", "0 0 * * *", "Asia/Beirut", "2024-03-30 12:00:00 +02:00",
			[]string{"2024-03-31 01:00:00 +03:00", "2024-04-01 00:00:00 +03:00"}},
		{"Beirut shows the last hour of a day twice", "30 23 * * *", "Asia/Beirut", "2024-10-26 12:00:00 +03:00",
			[]string{"2024-10-26 23:30:00 +03:00", "2024-10-27 23:30:00 +02:00"}},
		{"Beirut's midnight behind that", "0 0 * * *", "Asia/Beirut", "2024-10-26 12:00:00 +03:00",
			[]string{"2024-10-27 00:00:00 +02:00", "2024-10-28 00:00:00 +02:00"}},
		{"Lord Howe skips half an hour", "15 2 * * *", "Australia/Lord_Howe", "2024-10-05 12:00:00 +10:30",
			[]string{"2024-10-06 02:30:00 +11:00", "2024-10-07 02:15:00 +11:00"}},
		{"Lord Howe shows half an hour twice", "45 1 * * *", "Australia/Lord_Howe", "2024-04-06 12:00:00 +11:00",
			[]string{"2024-04-07 01:45:00 +11:00", "2024-04-08 01:45:00 +10:30"}},
		{"Apia skips a day", "0 9 * * *", "Pacific/Apia", "2011-12-28 12:00:00 -10:00",
			[]string{"2011-12-29 09:00:00 -10:00", "2011-12-31 00:00:00 +14:00", "2011-12-31 09:00:00 +14:00"}},
		{"and the midnight of that day with it", "0 0 * * *", "Pacific/Apia", "2011-12-28 12:00:00 -10:00",
			[]string{"2011-12-29 00:00:00 -10:00", "2011-12-31 00:00:00 +14:00", "2012-01-01 00:00:00 +14:00"}},
		{"what comes once a year then", "0 9 30 12 *", "Pacific/Apia", "2011-06-01 00:00:00 -11:00",
			[]string{"2011-12-31 00:00:00 +14:00", "2012-12-30 09:00:00 +14:00"}},
		{"all that is skipped is one occurrence", "*/10 2 * * *", "Europe/Berlin", "2024-03-31 01:59:00 +01:00",
			[]string{"2024-03-31 03:00:00 +02:00", "2024-04-01 02:00:00 +02:00"}},
		{"and one with what comes then by itself", "0 2,3 * * *", "Europe/Berlin", "2024-03-31 01:59:00 +01:00",
			[]string{"2024-03-31 03:00:00 +02:00", "2024-04-01 02:00:00 +02:00"}},
		{"every hour runs on, a skipped one is none", "30 * * * *", "Europe/Berlin", "2024-03-31 01:00:00 +01:00",
			[]string{"2024-03-31 01:30:00 +01:00", "2024-03-31 03:30:00 +02:00"}},
		{"and a second one comes", "30 * * * *", "Europe/Berlin", "2024-10-27 02:00:00 +02:00",
			[]string{"2024-10-27 02:30:00 +02:00", "2024-10-27 02:30:00 +01:00", "2024-10-27 03:30:00 +01:00"}},
		{"all hours said otherwise are every hour", "30 0-23 * * *", "Europe/Berlin", "2024-10-27 02:00:00 +02:00",
			[]string{"2024-10-27 02:30:00 +02:00", "2024-10-27 02:30:00 +01:00"}},
		{"some hours are not", "30 1-22 * * *", "Europe/Berlin", "2024-10-27 02:00:00 +02:00",
			[]string{"2024-10-27 02:30:00 +02:00", "2024-10-27 03:30:00 +01:00"}},
		{"Lord Howe's hours run on", "0 * * * *", "Australia/Lord_Howe", "2024-10-06 00:59:00 +10:30",
			[]string{"2024-10-06 01:00:00 +10:30", "2024-10-06 03:00:00 +11:00"}},
		{"Troll skips two hours", "30 1 * * *", "Antarctica/Troll", "2024-03-30 12:00:00 +00:00",
			[]string{"2024-03-31 03:00:00 +02:00", "2024-04-01 01:30:00 +02:00"}},
		{"the years without a 29th of February", "0 0 29 2 *", "UTC", "2096-02-29 00:00:00 +00:00",
			[]string{"2104-02-29 00:00:00 +00:00", "2108-02-29 00:00:00 +00:00"}},
		{"one that is a Sunday", "0 0 29 2 */7", "UTC", "2088-02-29 00:00:00 +00:00",
			[]string{"2128-02-29 00:00:00 +00:00"}},
		{"the last second before a change", "59 59 1 * * *", "Europe/Berlin", "2024-03-31 00:00:00 +01:00",
			[]string{"2024-03-31 01:59:59 +01:00", "2024-04-01 01:59:59 +02:00"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			loc, err := LoadZone(tt.zone)
			if err != nil {
				t.Fatal(err)
			}
			e, err := Parse(tt.expression)
			if err != nil {
				t.Fatal(err)
			}
			behind, err := time.Parse(shape, tt.behind)
			if err != nil {
				t.Fatal(err)
			}
			at := behind.Unix()
			for _, want := range tt.want {
				at, _ = e.In(loc).Next(at)
				if got := time.Unix(at, 0).In(loc).Format(shape); got != want {
					t.Fatalf("got %s, want %s", got, want)
				}
			}
		})
	}
}

// TestOnceADay: a daily time comes once for each date that the clock shows or skips, in every zone of the oracle.
func TestOnceADay(t *testing.T) {
	for _, z := range oracleZones {
		loc, err := LoadZone(z.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"0 0 * * *", "15 0 * * *", "30 1 * * *", "15 2 * * *", "30 2 * * *",
			"59 23 * * *"} {
			e, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			s := e.In(loc)
			at, first := s.Next(time.Date(z.from, 1, 1, 12, 0, 0, 0, time.UTC).Unix())
			for n := int64(1); n < 10*365; n++ {
				next, r := s.Next(at)
				if merged := r - first - n*daySeconds; merged != 0 {
					// The midnights on both sides of a skipped day are one instant.
					if text != "0 0 * * *" || merged != daySeconds {
						t.Fatalf("%q in %s: %s comes behind %d days", text, z.name, time.Unix(r, 0).UTC(), n)
					}
					first += daySeconds
				}
				if next <= at {
					t.Fatalf("%q in %s: %d comes behind %d", text, z.name, next, at)
				}
				at = next
			}
		}
	}
}

// TestPeriods: a zone's period holds at its first and last second and on each day between, or each hour at full size.
// This is checked for each zone, also after the last change that is listed.
func TestPeriods(t *testing.T) {
	step := int64(daySeconds)
	if runs.Full() {
		step = hourSeconds
	}
	end := time.Date(2130, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for _, z := range oracleZones {
		loc, err := LoadZone(z.name)
		if err != nil {
			t.Fatal(err)
		}
		holds := func(p period, at int64) {
			t.Helper()
			if p.start > at || p.end <= at {
				t.Fatalf("%s: the period of %d is %+v", z.name, at, p)
			}
			if _, offset := time.Unix(at, 0).In(loc).Zone(); int64(offset) != p.offset {
				t.Fatalf("%s at %s: offset %d, want %d", z.name, time.Unix(at, 0).UTC(), p.offset, offset)
			}
		}
		for first := time.Date(1975, 1, 1, 0, 0, 0, 0, time.UTC).Unix(); first < end; {
			p := zone{loc}.at(first)
			last := min(p.end, end) - 1
			for at := first; at < last; at += step {
				holds(p, at)
			}
			holds(p, last)
			first = last + 1
		}
	}
}

func TestLoadZone(t *testing.T) {
	for _, name := range []string{"", "UTC", "Etc/GMT+5", "Africa/Lagos", "America/Argentina/ComodRivadavia", "GB-Eire",
		"EST5EDT"} {
		if _, err := LoadZone(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"Local", "localtime", "posixrules", "Factory", "Mars/Olympus", "europe/berlin", "Europe/", "/Europe/Berlin",
		"Europe//Berlin",
		"../Europe/Berlin", "Europe/../UTC", "right/Europe/Berlin", "posix/UTC", "tzdata.zi", "UTC\x00", "Ünited",
		"UTC ", "+01:00", "Europe",
		string(make([]byte, 100_000)),
	} {
		if loc, err := LoadZone(name); err == nil {
			t.Errorf("%q is taken, as %v", name, loc)
		}
	}
}

func TestChanges(t *testing.T) {
	loc, err := LoadZone("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2095, 6, 1, 0, 0, 0, 0, time.UTC).Unix() // includes the end of a leap year
	got := Changes(loc, from, from+2*365*daySeconds, 10)
	want := []string{"2095-10-30T01:00:00Z", "2096-03-25T01:00:00Z", "2096-10-28T01:00:00Z", "2097-03-31T01:00:00Z"}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i, c := range got {
		at := time.Unix(c.At, 0).UTC().Format(time.RFC3339)
		if at != want[i] || c.Before+c.After != 3*hourSeconds {
			t.Errorf("change %d: %s, %+v; want %s", i, at, c, want[i])
		}
	}
	if got := Changes(loc, from, from+2*365*daySeconds, 1); len(got) != 1 {
		t.Errorf("of at most one: %+v", got)
	}
	if got := Changes(time.UTC, from, from+2*365*daySeconds, 1); len(got) != 0 {
		t.Errorf("UTC: %+v", got)
	}
}
