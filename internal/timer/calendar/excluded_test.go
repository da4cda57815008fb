package calendar

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/timer"
)

// known are calendars by name.
type known map[string]struct {
	*Exclusion
	changed int64
}

func (k known) Calendar(name string) (*Exclusion, int64) {
	c, ok := k[name]
	if !ok {
		return nil, math.MinInt64
	}
	return c.Exclusion, c.changed
}

func (k known) put(t testing.TB, name, text string, changed int64) {
	c := k[name]
	c.Exclusion, c.changed = rules(t, text), changed
	k[name] = c
}

// recurring returns a timer with calendars whose request was written at a time and begins at another one, and what
// computes its occurrences.
func recurring(t testing.TB, all Calendars, of timer.Recurrence, at, written int64) (*timer.Timer, Recurrence, bool) {
	t.Helper()
	of.Until = timer.NoUntil
	r, err := (&Cache{Calendars: all}).Recurrence(&of)
	if err != nil {
		t.Fatal(err)
	}
	x := &timer.Timer{ID: []byte("a")}
	ok := r.Start(x, at, written)
	if !ok {
		return nil, r, false
	}
	return x, compute(t, all, x), true
}

func compute(t testing.TB, all Calendars, x *timer.Timer) Recurrence {
	t.Helper()
	r, err := (&Cache{Calendars: all}).Recurrence(x.Recurrence)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOccurrencesNotOn: when timers with calendars come. The 1st of May 2027 is a Saturday.
func TestOccurrencesNotOn(t *testing.T) {
	all := known{}
	all.put(t, "weekend", `{"zone": "Europe/Berlin", "weekly": ["sat", "sun"]}`, 0)
	all.put(t, "nights", `{"zone": "Europe/Berlin", "hours": ["18:00-08:00"]}`, 0)
	all.put(t, "may", `{"zone": "Europe/Berlin", "yearly": ["05-01"], "dates": ["2027-05-31"]}`, 0)
	all.put(t, "always", `{"weekly": ["0-6"]}`, 0)
	const berlin = "Europe/Berlin"
	cron := func(text, names string, by timer.Shift) timer.Recurrence {
		return timer.Recurrence{Cron: text, Zone: berlin, NotOn: names, Shift: by}
	}
	for _, c := range []struct {
		name string
		of   timer.Recurrence
		want string
	}{
		{"skip", cron("0 9 * * *", "weekend", timer.ShiftSkip), "04-30 09:00, 05-03 09:00, 05-04 09:00"},
		{"next, those that meet are one", cron("0 9 * * *", "weekend", timer.ShiftNext),
			"04-30 09:00, 05-03 09:00, 05-04 09:00"},
		{"next, in the order of time", cron("0 9,18 * * sat,sun", "weekend", timer.ShiftNext),
			"05-03 09:00, 05-03 18:00, 05-10 09:00"},
		{"previous", cron("0 17 L * *", "may,weekend", timer.ShiftPrevious), "04-30 17:00, 05-28 17:00, 06-30 17:00"},
		{"hours end", cron("0 * * * *", "nights,weekend", timer.ShiftNext), "04-30 09:00, 04-30 10:00, 04-30 11:00"},
		{"hours begin", cron("0 20 * * *", "nights", timer.ShiftPrevious),
			"04-30 17:59, 05-01 17:59, 05-02 17:59"},
		{"an interval", timer.Recurrence{Every: 36 * 3600_000, NotOn: "weekend"},
			"04-30 08:30, 05-03 08:30, 05-04 20:30"},
		{"a period", timer.Recurrence{Period: timer.Period{Months: 1}, Zone: berlin, NotOn: "weekend",
			Shift: timer.ShiftNext}, "04-30 08:30, 05-31 08:30, 06-30 08:30"},
		{"a calendar that does not exist", cron("0 9 * * *", "gone", timer.ShiftSkip),
			"04-30 09:00, 05-01 09:00, 05-02 09:00"},
		{"nothing is free", cron("0 9 * * *", "always", timer.ShiftSkip), ""},
		{"nothing is free to move to", cron("0 9 * * *", "always", timer.ShiftNext), ""},
		{"nothing was free to move to", cron("0 9 * * *", "always", timer.ShiftPrevious), ""},
		{"once", timer.Recurrence{NotOn: "nights"}, "04-30 08:30"},
	} {
		at := millis(t, "2027-04-30T08:30:00+02:00")
		x, r, ok := recurring(t, all, c.of, at, at)
		var list []string
		loc, _ := LoadZone(berlin)
		for ; ok && x != nil && len(list) < 3; x = r.After(x, 0) {
			if int64(len(list)+1) != x.Occurrence {
				t.Errorf("%s: number %d", c.name, x.Occurrence)
			}
			list = append(list, time.UnixMilli(x.Due).In(loc).Format("01-02 15:04"))
		}
		if got := strings.Join(list, ", "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestShiftOntoHours: a Saturday before six moves to Monday at the same time; one after it moves to Sunday first, whose
// hours end at midnight. So Saturday is two pieces, although all of it is excluded.
func TestShiftOntoHours(t *testing.T) {
	all := known{}
	all.put(t, "a", `{"weekly": ["sat"], "hours": ["06:00-24:00"]}`, 0)
	all.put(t, "b", `{"weekly": ["sat", "sun"]}`, 0)
	r, err := (&Cache{Calendars: all}).Recurrence(&timer.Recurrence{Cron: "0 0,5,10 * * sat", NotOn: "a,b",
		Shift: timer.ShiftNext, Until: timer.NoUntil})
	if err != nil {
		t.Fatal(err)
	}
	after := millis(t, "2027-04-12T00:00:00Z") // a Monday
	if o := r.occurrenceAfter(after, 1); o.Scheduled != millis(t, "2027-04-12T05:00:00Z") {
		t.Errorf("comes at %s", time.UnixMilli(o.Scheduled).UTC())
	}
}

// TestPreviewNotOn: what previews list of the occurrences that calendars exclude. The 1st of May 2027 is a Saturday.
func TestPreviewNotOn(t *testing.T) {
	all := known{}
	all.put(t, "weekend", `{"zone": "Europe/Berlin", "weekly": ["sat", "sun"]}`, 0)
	all.put(t, "may", `{"zone": "Europe/Berlin", "dates": ["2027-05-03"]}`, 0)
	from, until := millis(t, "2027-04-30T12:00:00+02:00"), millis(t, "2027-05-04T12:00:00+02:00")
	for _, c := range []struct{ name, cron, names, shift, want, words string }{
		{"skip", "0 9 * * *", "weekend", "", "weekend 05-01 never, weekend 05-02 never", "weekend is skipped."},
		{"next", "0 9 * * *", "weekend,may", "next",
			"weekend 05-01 05-04, weekend 05-02 05-04, may 05-03 05-04", "may and weekend moves to the next time"},
		{"previous", "0 9 * * sun,tue", " weekend", "previous", "weekend 05-02 04-30", "back to the last time"},
		{"nothing", "0 9 * * mon", "weekend", "skip", "", "weekend is skipped."},
		{"too many", "* * * * *", "weekend", "", "weekend 05-01 never, weekend 05-01 never, weekend 05-01 never, more", ""},
	} {
		w := Wish{Cron: c.cron, Zone: "Europe/Berlin", NotOn: c.names, Shift: c.shift, Calendars: all}
		p, fault := w.Preview(from)
		if fault != nil {
			t.Fatal(c.name, fault)
		}
		list, more := p.Excluded(from, until, 3)
		var texts []string
		for _, x := range list {
			day := func(at int64) string { return time.UnixMilli(at).In(p.Location()).Format("01-02") }
			text := x.Calendar + " " + day(x.Nominal) + " never"
			if x.Comes {
				text = strings.Replace(text, "never", day(x.To), 1)
			}
			texts = append(texts, text)
		}
		if more {
			texts = append(texts, "more")
		}
		if got := strings.Join(texts, ", "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if got := p.Explain(); !strings.Contains(got, c.words) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	for _, c := range []struct {
		names, shift string
		want         Fault
	}{
		{"weekend,gone", "", Fault{Field: "not-on", Unknown: true}},
		{"weekend,", "", Fault{Field: "not-on"}},
		{"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "", Fault{Field: "not-on"}},
		{"weekend", "on", Fault{Field: "shift"}},
		{"", "next", Fault{Field: "shift"}},
	} {
		w := Wish{Cron: "@daily", NotOn: c.names, Shift: c.shift, Calendars: all}
		_, fault := w.Preview(from)
		if fault == nil || fault.Says == "" || fault.Field != c.want.Field || fault.Unknown != c.want.Unknown {
			t.Errorf("%+v: %+v", c, fault)
		}
	}
}

// TestAgainNotOn: how the pending occurrence of a timer follows when its calendar changes on Wednesday, the 5th of May
// 2027, at noon.
func TestAgainNotOn(t *testing.T) {
	const free, friday, wednesday = `{}`, `{"weekly": ["fri"]}`, `{"weekly": ["wed"]}`
	change := millis(t, "2027-05-05T12:00:00Z")
	for _, c := range []struct {
		name, cron    string
		by            timer.Shift
		before, after string
		fired         string // the occurrence that has fired last
		want          string // what is pending then
	}{
		{"nothing changes", "0 9 * * *", 0, free, friday, "2027-05-05T09:00:00Z", "05-06 09:00"},
		{"is excluded", "0 9 * * fri", 0, free, friday, "2027-04-30T09:00:00Z", ""},
		{"is excluded, and another one comes", "0 9 * * fri,sat", 0, free, friday, "2027-05-01T09:00:00Z",
			"05-08 09:00"},
		{"is not excluded any more, and comes earlier", "0 9 * * fri,sat", 0, friday, free, "2027-05-01T09:00:00Z",
			"05-07 09:00"},
		{"what lay inside when it passed is not missed", "0 9 * * wed,sat", 0, wednesday, free,
			"2027-05-01T09:00:00Z", "05-08 09:00"},
		{"moves on", "0 9 * * fri", timer.ShiftNext, free, friday, "2027-04-30T09:00:00Z", "05-08 09:00"},
		{"moves back", "0 9 * * fri", timer.ShiftPrevious, free, friday, "2027-04-30T09:00:00Z", "05-06 09:00"},
		{"moves back to a moment that has passed", "0 9 * * fri", timer.ShiftPrevious, free,
			`{"weekly": ["wed", "thu", "fri"]}`, "2027-04-30T09:00:00Z", "05-05 12:00"},
		{"had been moved, and its day has passed", "0 9 * * wed", timer.ShiftNext, wednesday, free,
			"2027-04-29T09:00:00Z", "05-05 12:00"},
		{"was due before the change", "0 9 * * tue", 0, free, `{"weekly": ["tue"]}`, "2027-04-27T09:00:00Z",
			"05-04 09:00"},
	} {
		all := known{}
		all.put(t, "c", c.before, 0)
		fired := millis(t, c.fired)
		x, _, ok := recurring(t, all, timer.Recurrence{Cron: c.cron, NotOn: "c", Shift: c.by}, fired-1, fired-1)
		if !ok || x.Due != fired {
			t.Fatalf("%s: %+v", c.name, x)
		}
		x = compute(t, all, x).After(x, 0)
		if same := compute(t, all, x).Again(x); same != x {
			t.Errorf("%s: moved from %+v to %+v without a change", c.name, x.Recurrence, same.Recurrence)
		}
		all.put(t, "c", c.after, change)
		r := compute(t, all, x)
		again, got := r.Again(x), ""
		if again != nil {
			got = time.UnixMilli(again.Due).UTC().Format("01-02 15:04")
			if again.Occurrence != 2 {
				t.Errorf("%s: number %d", c.name, again.Occurrence)
			}
			if twice := compute(t, all, again).Again(again); twice != again {
				t.Errorf("%s: moved twice, to %+v", c.name, twice)
			}
			if next := compute(t, all, again).After(again, 0); next != nil && next.Due <= again.Due {
				t.Errorf("%s: followed by %+v", c.name, next)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestNotOnAgainstASet: the occurrences are the set of all times to which those without calendars are moved, and what
// was missed is counted alike, one by one and at once.
func TestNotOnAgainstASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const day = daySeconds * 1000
		zone := rapid.SampledFrom([]string{"", "Europe/Berlin", "Asia/Kathmandu"}).Draw(t, "zone")
		all := known{}
		for _, name := range []string{"a", "b"} {
			days := rapid.SampledFrom([][]string{nil, {"sat"}, {"sat", "sun"}, {"mon"}})
			x := Rules{Zone: zone, Weekly: days.Draw(t, "weekly")}
			if rapid.Bool().Draw(t, "dates") {
				x.Dates = []string{"2027-03-27/2027-03-30"}
			}
			if rapid.Bool().Draw(t, "hours") {
				from, to := rapid.IntRange(0, 23).Draw(t, "from"), rapid.IntRange(0, 23).Draw(t, "to")
				if from != to {
					x.Hours = []string{fmt.Sprintf("%02d:00-%02d:00", from, to)}
				}
			}
			e, err := x.Compile()
			if err != nil {
				t.Fatal(err)
			}
			c := all[name]
			c.Exclusion = e
			all[name] = c
		}
		of := rapid.SampledFrom([]timer.Recurrence{
			{Every: 5 * 3600_000}, {Every: 36 * 3600_000}, {Every: 90 * 60_000}, {Cron: "0 9,18 * * *", Zone: zone},
			{Cron: "30 */2 * * *", Zone: zone}, {Cron: "15 2 * * sat,sun,mon", Zone: zone},
			{Period: timer.Period{Days: 1}, Zone: zone}, {Cron: "*/20 * * * *", Zone: zone},
		}).Draw(t, "recurrence")
		of.NotOn, of.Shift, of.Until = "a,b", timer.Shift(rapid.IntRange(0, 2).Draw(t, "shift")), timer.NoUntil
		r, err := (&Cache{Calendars: all}).Recurrence(&of)
		if err != nil {
			t.Fatal(err)
		}
		begins := int64(1805889600000) + 3600_000*rapid.Int64Range(0, 400).Draw(t, "begins") // 2027-03-24
		r = r.anchored(begins)
		if _, ok := r.excluded.list.shifted(begins, timer.ShiftNext, new(work)); !ok {
			return // nothing is free, which takes long to find out for each
		}
		var set []int64
		for n := r.nominal(begins - 40*day); n < begins+60*day; n = r.nominal(n) {
			if at, ok := r.excluded.list.shifted(n, of.Shift, new(work)); ok {
				set = append(set, at)
			}
		}
		slices.Sort(set)
		set = slices.Compact(set)
		at := begins + day*rapid.Int64Range(0, 10).Draw(t, "after")
		i, _ := slices.BinarySearch(set, at)
		first := r.occurrenceAfter(at-1, 1)
		o := first
		for n := range 25 {
			if i+n >= len(set) || set[i+n] > begins+20*day {
				break
			}
			if o.Scheduled != set[i+n] {
				t.Fatalf("%+v after %s: %s, want %s", of, time.UnixMilli(at).UTC(), time.UnixMilli(o.Scheduled).UTC(),
					time.UnixMilli(set[i+n]).UTC())
			}
			if got := r.latest(first, o.Scheduled); got.Scheduled != o.Scheduled || got.Number != o.Number {
				t.Fatalf("the latest by %s from %+v on is %+v, want %+v", time.UnixMilli(o.Scheduled).UTC(), first,
					got, o)
			}
			limited := r
			c := *r.Recurrence
			c.Count = o.Number
			limited.Recurrence = &c
			if got := limited.latest(first, begins+20*day); got.Scheduled != o.Scheduled || got.Number != o.Number {
				t.Fatalf("the last of %d from %+v on is %+v, want %+v", c.Count, first, got, o)
			}
			o = r.successor(o)
		}
	})
}

// TestNotOnIsQuick: no request, however odd, takes long to plan.
func TestNotOnIsQuick(t *testing.T) {
	all := known{}
	all.put(t, "weekend", `{"zone": "Europe/Berlin", "weekly": ["sat", "sun"]}`, 0)
	all.put(t, "nights", `{"zone": "Europe/Berlin", "hours": ["18:00-08:00"]}`, 0)
	all.put(t, "other", `{"zone": "Asia/Tokyo", "weekly": ["mon", "wed", "fri", "sun"]}`, 0)
	all.put(t, "always", `{"hours": ["00:00-12:00", "12:00-24:00"]}`, 0)
	written := millis(t, "2026-11-28T12:00:00Z")
	for _, of := range []timer.Recurrence{
		{Every: 100}, {Every: 100, Count: 1 << 40}, {Every: 86_400_000}, {Cron: "* * * * * *", Zone: "Europe/Berlin"},
		{Cron: "0 3 * * *", Zone: "Europe/Berlin"}, {Cron: "0 12 * * sat", Count: 3},
		{Period: timer.Period{Days: 1}, Zone: "Africa/Lagos", CatchUp: timer.CatchUpNone},
	} {
		for _, names := range []string{"weekend", "nights", "nights,weekend", "other,weekend", "nights,other",
			"always"} {
			for _, shift := range []timer.Shift{timer.ShiftSkip, timer.ShiftNext, timer.ShiftPrevious} {
				of := of
				of.NotOn, of.Shift = names, shift
				if of.Cron != "" {
					of.Start = timer.Start{Set: true, At: 0}
				}
				begun := time.Now()
				if x, r, ok := recurring(t, all, of, 0, written); ok {
					if x = r.SkipMissed(x, written); x.Due < written-8*86_400_000 && of.Count != 3 {
						t.Errorf("%+v is at %s", of, time.UnixMilli(x.Due).UTC())
					}
				}
				if took := time.Since(begun); took > 10*time.Second { // a busy machine
					t.Errorf("%+v took %s", of, took)
				}
			}
		}
	}
}

// BenchmarkNotOn computes the occurrence after each one of a year.
func BenchmarkNotOn(b *testing.B) {
	all := known{}
	all.put(b, "holidays", `{"zone": "Europe/Berlin", "weekly": ["sat", "sun"], "yearly": ["12-25", "12-26"]}`, 0)
	all.put(b, "nights", `{"zone": "Europe/Berlin", "hours": ["18:00-08:00"]}`, 0)
	for _, by := range []timer.Shift{timer.ShiftSkip, timer.ShiftNext, timer.ShiftPrevious} {
		for _, names := range []string{"", "holidays", "holidays,nights"} {
			b.Run(by.String()+"/"+names, func(b *testing.B) {
				of := timer.Recurrence{Cron: "0 9,19 * * *", Zone: "Europe/Berlin", NotOn: names, Shift: by,
					Until: timer.NoUntil}
				r, err := (&Cache{Calendars: all}).Recurrence(&of)
				if err != nil {
					b.Fatal(err)
				}
				o := Occurrence{Number: 1, Scheduled: millis(b, "2026-11-28T00:00:00Z")}
				for range b.N {
					if o = r.successor(o); o.Number%365 == 0 {
						o.Scheduled = millis(b, "2026-11-28T00:00:00Z")
					}
				}
			})
		}
	}
}

// TestLongClosures: a calendar that excludes years has times behind them, and costs no seconds. The many hours of other
// days do not matter on days that are excluded.
func TestLongClosures(t *testing.T) {
	all := known{}
	all.put(t, "century", `{"dates": ["2026-01-01/2120-01-01"]}`, 0)
	all.put(t, "years", `{"zone": "Europe/Berlin", "dates": ["2026-01-01/2040-06-01"]}`, 0)
	var hours []string
	for i := range maxHours {
		hours = append(hours, fmt.Sprintf(`"mon %02d:%02d-%02d:%02d"`, i*13/60, i*13%60, (i*13+5)/60, (i*13+5)%60))
	}
	all.put(t, "hours", `{"dates": ["2026-11-20/2027-02-20"], "hours": [`+strings.Join(hours, ",")+`]}`, 0)
	written := millis(t, "2026-11-28T12:00:00Z")
	for _, c := range []struct{ name, want string }{
		{"century", "2120-01-02T00:00:00Z"}, {"years", "2040-06-01T22:00:00Z"}, {"hours", "2027-02-21T00:00:00Z"},
	} {
		for _, by := range []timer.Shift{timer.ShiftSkip, timer.ShiftNext} {
			begun := time.Now()
			x, r, ok := recurring(t, all, timer.Recurrence{Every: 60_000, NotOn: c.name, Shift: by}, written, written)
			if !ok || x.Due != millis(t, c.want) {
				t.Errorf("%s, %s: %v %+v", c.name, by, ok, x)
			} else if r.Again(x) != x {
				t.Errorf("%s, %s: moved without a change", c.name, by)
			}
			if took := time.Since(begun); took > 5*time.Second { // a busy machine
				t.Errorf("%s, %s took %s", c.name, by, took)
			}
		}
	}
}

// TestOnceMovedFarBack: a timer that fires once comes before a closure, however long that is.
func TestOnceMovedFarBack(t *testing.T) {
	all := known{}
	all.put(t, "year", `{"dates": ["2027-01-01/2027-12-31"]}`, 0)
	x, r, ok := recurring(t, all, timer.Recurrence{NotOn: "year", Shift: timer.ShiftPrevious},
		millis(t, "2027-12-28T12:00:00Z"), millis(t, "2026-11-28T12:00:00Z"))
	if !ok || x.Due != millis(t, "2026-12-31T12:00:00Z") || r.Again(x) != x {
		t.Fatalf("%v %+v", ok, x)
	}
}

// TestMovedFarBack: occurrences come before a closure, however long that is, each once. One that overtakes another by
// that is left out if they lie more than two months apart, as REFERENCE.md says, and nothing else is lost for it.
func TestMovedFarBack(t *testing.T) {
	all := known{}
	all.put(t, "winter", `{"dates": ["2027-01-01/2027-03-31"]}`, 0)
	const day, hour = 24 * 3600_000, 3600_000
	for _, c := range []struct {
		name string
		of   timer.Recurrence
		at   string
		want string
	}{
		{"one far behind", timer.Recurrence{Cron: "0 9 25 3,10 *"}, "2026-10-25T08:00:00Z",
			"26-10-25 09:00, 26-12-31 09:00, 27-10-25 09:00"},
		{"all meet", timer.Recurrence{Cron: "0 9 L * *"}, "2026-11-30T08:00:00Z",
			"26-11-30 09:00, 26-12-31 09:00, 27-04-30 09:00"},
		{"1 March overtakes", timer.Recurrence{Every: 59*day + 16*hour}, "2026-11-02T01:00:00Z",
			"26-11-02 01:00, 26-12-31 09:00, 26-12-31 17:00, 27-04-30 01:00"},
		{"15 March would overtake", timer.Recurrence{Every: 73*day + 16*hour}, "2026-10-19T01:00:00Z",
			"26-10-19 01:00, 26-12-31 17:00, 27-05-28 01:00"},
	} {
		c.of.NotOn, c.of.Shift = "winter", timer.ShiftPrevious
		at := millis(t, c.at)
		x, r, _ := recurring(t, all, c.of, at, at)
		var list []string
		for ; x != nil && len(list) <= strings.Count(c.want, ","); x = r.After(x, 0) {
			if r.Again(x) != x {
				t.Errorf("%s: moved without a change", c.name)
			}
			list = append(list, time.UnixMilli(x.Due).UTC().Format("06-01-02 15:04"))
		}
		if got := strings.Join(list, ", "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestSkippedWhereDaysComeTwice: clocks of this zone were set back from 0:01 to 23:01 of the day before.
func TestSkippedWhereDaysComeTwice(t *testing.T) {
	const zone = "America/St_Johns"
	for _, date := range []string{"2010-11-06", "2010-11-07"} {
		all := known{}
		all.put(t, "day", `{"zone": "`+zone+`", "dates": ["`+date+`"]}`, 0)
		e := all["day"].Exclusion
		_, r, ok := recurring(t, all, timer.Recurrence{Every: 30_000, NotOn: "day"},
			millis(t, "2010-11-05T00:00:00Z"), 0)
		if !ok {
			t.Fatal(date)
		}
		for at := millis(t, "2010-11-05T00:00:00Z"); at < millis(t, "2010-11-09T00:00:00Z"); {
			want := at + 30_000
			for e.Excludes(want) {
				want += 30_000
			}
			if got := r.successor(Occurrence{Scheduled: at}).Scheduled; got != want {
				t.Fatalf("%s: after %s comes %s", date, time.UnixMilli(at).UTC(), time.UnixMilli(got).UTC())
			}
			at = want
		}
	}
}

// TestOnceWithJitterBefore1970: there is no occurrence behind that of a timer that fires once.
func TestOnceWithJitterBefore1970(t *testing.T) {
	all := known{}
	all.put(t, "none", `{}`, 0)
	at := millis(t, "1960-01-01T00:00:00Z")
	for _, names := range []string{"", "none"} {
		x, _, ok := recurring(t, all, timer.Recurrence{NotOn: names, Jitter: 1000}, at, 0)
		if !ok || x.Due < at || x.Due >= at+1000 || x.Recurrence.Delay != x.Due-at {
			t.Errorf("%q: %v %+v %+v", names, ok, x, x.Recurrence)
		}
	}
}
