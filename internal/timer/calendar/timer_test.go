package calendar

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/timer"
)

func millis(t testing.TB, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMilli()
}

// start returns a timer that is pending for its first occurrence.
func start(t testing.TB, of timer.Recurrence, at int64) (*timer.Timer, Recurrence) {
	t.Helper()
	r, err := new(Cache).Recurrence(&of)
	if err != nil {
		t.Fatal(err)
	}
	tm := &timer.Timer{ID: []byte("id"), Offset: 42, Occurrence: 1}
	r.Start(tm, at, at)
	return tm, r
}

// with returns r for a timer that it has made.
func with(r Recurrence, tm *timer.Timer) Recurrence {
	r.Recurrence = tm.Recurrence
	if r.period != nil {
		r.period = &periodic{r.period.Period, tm.Recurrence.Start, r.period.zone}
	}
	return r
}

// TestEveryDoesNotDrift: after a million occurrences the interval still counts from the first one, with jitter too.
func TestEveryDoesNotDrift(t *testing.T) {
	const n = 1_000_000
	for _, jitter := range []int64{0, 700} {
		first := millis(t, "2026-03-01T09:00:00.123Z")
		tm, r := start(t, timer.Recurrence{Every: 1777, Jitter: jitter, Until: timer.NoUntil}, first)
		for i := range int64(n) {
			if tm.Occurrence != i+1 || tm.Scheduled() != first+i*1777 || tm.Due < tm.Scheduled() ||
				tm.Due > tm.Scheduled()+max(0, jitter-1) {
				t.Fatalf("occurrence %d: %+v", i+1, tm)
			}
			r.Recurrence = tm.Recurrence
			if tm = r.After(tm, 0); tm == nil {
				t.Fatalf("over behind occurrence %d", i+1)
			}
		}
	}
}

// TestStart: an interval starts at the given time, an expression after it.
func TestStart(t *testing.T) {
	at := millis(t, "2026-03-01T09:00:00Z")
	tm, _ := start(t, timer.Recurrence{Every: 1000, Until: timer.NoUntil}, at)
	if tm.Due != at || tm.Occurrence != 1 || tm.Recurrence.Ahead != 0 {
		t.Errorf("every: %+v", tm)
	}
	for early, want := range map[int64]string{1: "2026-03-01T09:00:00Z", 0: "2026-03-02T09:00:00Z",
		-1: "2026-03-02T09:00:00Z"} {
		tm, _ := start(t, timer.Recurrence{Cron: "0 10 * * *", Zone: "Europe/Berlin", Until: timer.NoUntil}, at-early)
		if tm.Due != millis(t, want) || tm.Occurrence != 1 || tm.Recurrence.Ahead != 3600 {
			t.Errorf("behind %d ms before: %+v %+v, want %s", early, tm, tm.Recurrence, want)
		}
	}
}

// TestEnds: count and until end a recurrence. The last occurrence is included.
func TestEnds(t *testing.T) {
	at := millis(t, "2026-03-01T00:00:00Z")
	day := int64(24 * 60 * 60 * 1000)
	for _, of := range []timer.Recurrence{
		{Every: day, Count: 3, Until: timer.NoUntil},
		{Every: day, Until: at + 2*day},
		{Every: day, Until: at + 3*day - 1},
		{Cron: "@daily", Count: 3, Until: timer.NoUntil},
		{Cron: "@daily", Until: at + 2*day},
		{Cron: "@daily", Until: at + 3*day - 1, Count: 10},
		{Cron: "@daily", Until: at + 7*day, Count: 3, Jitter: 1000},
	} {
		from := at
		if of.Cron != "" {
			from--
		}
		tm, _ := start(t, of, from)
		n := 0
		for ; tm != nil && n < 10; n++ {
			if tm.Scheduled() != at+int64(n)*day || tm.Occurrence != int64(n+1) {
				t.Errorf("%+v: occurrence %d is %+v", of, n+1, tm)
			}
			r := Recurrence{plain: plain{Recurrence: tm.Recurrence}}
			if of.Cron != "" {
				r, _ = new(Cache).Recurrence(tm.Recurrence)
			}
			tm = r.After(tm, 0)
		}
		if n != 3 {
			t.Errorf("%+v: %d occurrences, want 3", of, n)
		}
	}
}

// TestJitter: jitter is within its limit, the same each time, different for another occurrence, generation or ID,
// evenly spread, and never past the next occurrence.
func TestJitter(t *testing.T) {
	at := millis(t, "2026-03-01T00:00:00Z")
	delays := func(id string, offset int64, of timer.Recurrence, n int) (list []int64) {
		r, err := new(Cache).Recurrence(&of)
		if err != nil {
			t.Fatal(err)
		}
		tm := &timer.Timer{ID: []byte(id), Offset: offset}
		r.Start(tm, at, at)
		for range n {
			list = append(list, tm.Due-tm.Scheduled())
			r.Recurrence = tm.Recurrence
			tm = r.After(tm, 0)
		}
		return list
	}
	every := timer.Recurrence{Every: 60_000, Jitter: 1000, Until: timer.NoUntil}
	a := delays("a", 1, every, 10_000)
	if !reflect.DeepEqual(a, delays("a", 1, every, 10_000)) {
		t.Error("another time, another jitter")
	}
	if reflect.DeepEqual(a[:10], delays("a", 2, every, 10)) || reflect.DeepEqual(a[:10], delays("b", 1, every, 10)) {
		t.Error("another generation or ID has the same jitter")
	}
	var parts [10]int
	for _, d := range a {
		if d < 0 || d >= 1000 {
			t.Fatalf("a jitter of %d", d)
		}
		parts[d/100]++
	}
	for i, n := range parts {
		if n < 800 || n > 1200 {
			t.Errorf("%d of 10,000 delays are %d to %d ms", n, i*100, i*100+99)
		}
	}
	// FORMAT.md promises that these never change.
	if want := []int64{884, 339, 875}; !reflect.DeepEqual(a[:3], want) {
		t.Errorf("the first delays are %d, want %d", a[:3], want)
	}
	for _, of := range []timer.Recurrence{
		{Every: 100, Jitter: 1 << 53, Until: timer.NoUntil},
		{Cron: "*/7 1-2 * * *", Zone: "Europe/Berlin", Jitter: 1 << 53, Until: timer.NoUntil},
	} {
		tm, r := start(t, of, at)
		for range 10_000 {
			r.Recurrence = tm.Recurrence
			next := r.After(tm, 0)
			if tm.Due < tm.Scheduled() || tm.Due >= next.Scheduled() {
				t.Fatalf("%+v: due at %d, scheduled at %d, then %d", of, tm.Due, tm.Scheduled(), next.Scheduled())
			}
			tm = next
		}
	}
}

func drawRecurrence(t *rapid.T, at int64) timer.Recurrence {
	of := timer.Recurrence{Until: timer.NoUntil, CatchUp: rapid.SampledFrom(
		[]timer.CatchUp{timer.CatchUpAll, timer.CatchUpLatest, timer.CatchUpNone}).Draw(t, "catch-up")}
	zone := rapid.SampledFrom([]string{"", "Europe/Berlin", "Australia/Lord_Howe", "America/Havana"})
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		of.Every = rapid.Int64Range(1, 100_000).Draw(t, "interval")
	case 1:
		of.Period.Months = rapid.Int64Range(0, 5).Draw(t, "months")
		of.Period.Days = rapid.Int64Range(1, 40).Draw(t, "days")
		of.Zone = zone.Draw(t, "zone")
	default:
		of.Cron = rapid.SampledFrom(
			[]string{"* * * * *", "*/10 1-3 * * *", "0 2 * * *", "*/20 * * * * *", "30 0-2 * * *"}).Draw(t, "cron")
		of.Zone = zone.Draw(t, "zone")
	}
	if rapid.Bool().Draw(t, "has until") {
		of.Until = at + rapid.Int64Range(0, 5_000_000).Draw(t, "until")
	}
	if rapid.Bool().Draw(t, "has count") {
		of.Count = rapid.Int64Range(1, 100).Draw(t, "count")
	}
	if rapid.Bool().Draw(t, "has jitter") {
		of.Jitter = rapid.Int64Range(1, 200_000).Draw(t, "jitter")
	}
	return of
}

// TestCatchUp compares one leap over missed occurrences with going through them one by one.
func TestCatchUp(t *testing.T) {
	var cache Cache
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.SampledFrom([]int64{1711843200_000, 1729987200_000, 1728140400_000, 1710046800_000}).Draw(t, "at") +
			rapid.Int64Range(-10_000_000, 10_000_000).Draw(t, "more")
		of := drawRecurrence(t, at)
		r, err := cache.Recurrence(&of)
		if err != nil {
			t.Fatal(err)
		}
		first := &timer.Timer{ID: rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "id"),
			Offset: rapid.Int64().Draw(t, "offset")}
		r.Start(first, at, at)
		if first.Scheduled() > of.Until {
			t.Skip("ends before the first")
		}
		now := rapid.Int64Range(-1000, 10_000_000).Draw(t, "now")
		if r.period != nil {
			now *= 1000 // some 100 days
		}
		now += at
		missed := int64(math.MinInt64)
		if rapid.Bool().Draw(t, "was away") {
			missed = now - rapid.Int64Range(0, 1_000_000).Draw(t, "until how long ago")
			if rapid.Bool().Draw(t, "until one was due") {
				last := r.latest(pending(first), missed)
				missed = r.due(first, last)
				now = max(now, missed)
			}
		}
		// One by one: the due occurrences, and which of them the policy skips.
		want := first
		for {
			next := with(r, want).After(want, 0)
			overtaken := next != nil && next.Due <= now
			if of.CatchUp == timer.CatchUpNone && want.Due <= missed || of.CatchUp != timer.CatchUpAll && overtaken {
				if want = next; next == nil {
					break
				}
				continue
			}
			break
		}
		got := with(r, first).CatchUp(first, now, missed)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v from %+v at %d, missed up to %d:\n got %+v\nwant %+v", of, first, now, missed, got, want)
		}
		if got == nil {
			return
		}
		if again := with(r, got).Again(got); again != got {
			t.Fatalf("%+v comes again as %+v", got, again)
		}
	})
}

// TestCatchUpOfAYear: a year of occurrences at every second is skipped at once.
func TestCatchUpOfAYear(t *testing.T) {
	at := millis(t, "2025-03-01T00:00:00Z")
	now := millis(t, "2026-03-01T00:00:00.5Z")
	for _, of := range []timer.Recurrence{{Every: 1000}, {Cron: "* * * * * *", Zone: "Europe/Berlin"},
		{Cron: "* 0-22 * * * *", Zone: "Europe/Berlin"}} {
		for _, count := range []int64{0, 1_000_000} {
			of.Until, of.Count, of.Jitter = timer.NoUntil, count, 100
			tm, r := start(t, of, at)
			var got *timer.Timer
			quickly(t, fmt.Sprintf("%+v", of), func() { got = r.CatchUp(tm, now, now) })
			switch {
			case count > 0 && got.Occurrence != count:
				t.Errorf("%+v: ends with %+v", of, got)
			case count == 0 && (got.Due > now || got.Due < now-7_200_000):
				t.Errorf("%+v: goes on with %+v", of, got)
			}
			number := 1 + (got.Scheduled()-at)/1000
			if of.Cron != "" {
				number = r.schedule.Count(floorSeconds(at), floorSeconds(got.Scheduled()))
			}
			if number != got.Occurrence {
				t.Errorf("%+v: number %d is scheduled for %s, which is number %d", of, got.Occurrence,
					time.UnixMilli(got.Scheduled()).UTC(), number)
			}
			of := of
			of.CatchUp = timer.CatchUpNone
			tm, r = start(t, of, at)
			quickly(t, fmt.Sprintf("%+v", of), func() { got = r.CatchUp(tm, now, now) })
			if count > 0 && got != nil || count == 0 && got.Due <= now {
				t.Errorf("%+v: goes on with %+v", of, got)
			}
		}
	}
}

// TestRulesOfAZoneThatChange: a pending occurrence moves to the time at which its reading comes by the new rules, and
// keeps its number.
func TestRulesOfAZoneThatChange(t *testing.T) {
	at := millis(t, "2026-03-01T00:00:00Z")
	east, further := time.FixedZone("Z", 3600), time.FixedZone("Z", 7200)
	for _, tt := range []struct {
		expression string
		now        *time.Location
		until      int64
		want       string // "": the timer is over
	}{
		{"0 9 * * *", east, timer.NoUntil, "2026-03-01T08:00:00Z"},
		{"0 9 * * *", further, timer.NoUntil, "2026-03-01T07:00:00Z"},
		{"0 9 * * *", time.UTC, timer.NoUntil, "2026-03-01T09:00:00Z"},
		{"0 9 * * *", time.UTC, millis(t, "2026-03-01T08:59:59Z"), ""},
		{"0 9 * * *", further, millis(t, "2026-03-01T08:00:00Z"), "2026-03-01T07:00:00Z"},
		{"30 * * * *", further, timer.NoUntil, "2026-03-01T00:30:00Z"}, // the half hours have not moved
		{"30 * 2 * *", further, timer.NoUntil, "2026-03-01T23:30:00Z"}, // nor have those of the second day
		{"30 * 2 * *", time.UTC, timer.NoUntil, "2026-03-02T00:30:00Z"},
		{"30 * * * *", time.FixedZone("Z", 5400), timer.NoUntil, "2026-03-01T00:00:00Z"},
	} {
		e, err := Parse(tt.expression)
		if err != nil {
			t.Fatal(err)
		}
		before := Recurrence{plain: plain{schedule: e.In(east),
			Recurrence: &timer.Recurrence{Cron: tt.expression, Zone: "Z", Until: tt.until}}}
		tm := &timer.Timer{ID: []byte("id")}
		before.Start(tm, at, at)
		tm.Occurrence = 7
		got := Recurrence{plain: plain{Recurrence: tm.Recurrence, schedule: e.In(tt.now)}}.Again(tm)
		if got == nil || tt.want == "" {
			if got != nil || tt.want != "" {
				t.Errorf("%q in %v: got %+v, want %q", tt.expression, tt.now, got, tt.want)
			}
			continue
		}
		if got.Due != millis(t, tt.want) || got.Occurrence != 7 {
			t.Errorf("%q in %v: got %s, %+v, want %s", tt.expression, tt.now, time.UnixMilli(got.Due).UTC(),
				got, tt.want)
		}
	}
	tm, r := start(t, timer.Recurrence{Every: 1000, Until: timer.NoUntil}, at)
	if r.Again(tm) != tm {
		t.Error("an interval knows no zone")
	}
}

func TestCache(t *testing.T) {
	var c Cache
	a, err := c.Schedule("0 9 * * *", "Africa/Lagos")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := c.Schedule("0 9 * * *", "Africa/Lagos"); a != b {
		t.Error("parsed twice")
	}
	if b, _ := c.Schedule("0 9 * * *", ""); a == b || b.Location() != time.UTC {
		t.Error("another zone, the same schedule")
	}
	for range 3 {
		if _, err := c.Schedule("0 9 * * *", "Mars/Olympus"); !errors.Is(err, ErrUnknownZone) {
			t.Errorf("got %v", err)
		}
		if _, err := c.Schedule("0 9 30 2 *", ""); !errors.Is(err, ErrNeverDue) {
			t.Errorf("got %v", err)
		}
	}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 2 * maxSchedules {
				text := fmt.Sprintf("%d %d %d * *", i%60, i/60%24, 1+i/1440)
				if _, err := c.Schedule(text, []string{"", "UTC"}[g%2]); err != nil {
					t.Errorf("%q: %v", text, err)
					return
				}
			}
		})
	}
	all.Wait()
	if n := len(c.now) + len(c.before); n > maxSchedules {
		t.Errorf("remembers %d schedules, want at most %d", n, maxSchedules)
	}
}

// An expression may have a KiB, so the bytes of the expressions are bounded too: what is cached follows neither from
// how many there are nor from how long they are.
func TestScheduleCacheIsBoundedInBytes(t *testing.T) {
	c := new(Cache)
	for i := range maxSchedules {
		text := fmt.Sprintf("%d %d *%s%d *", i%60, i/60%24, strings.Repeat(" ", MaxExpressionBytes-20), 1+i/1440)
		if _, err := c.Schedule(text, ""); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	}
	held := 0
	for _, schedules := range []map[key]*Schedule{c.now, c.before} {
		for k := range schedules {
			held += len(k.expression)
		}
	}
	if held == 0 || held > maxExpressions {
		t.Errorf("%d bytes of expressions are cached, want at most %d", held, maxExpressions)
	}
}

func BenchmarkAfter(b *testing.B) {
	for name, of := range map[string]timer.Recurrence{
		"every": {Every: 1000}, "every with jitter": {Every: 1000, Jitter: 500},
		"daily":       {Cron: "0 9 * * *", Zone: "Europe/Berlin"},
		"minutes":     {Cron: "* * * * *", Zone: "Europe/Berlin"},
		"with jitter": {Cron: "* 9-17 * * *", Zone: "Europe/Berlin", Jitter: 1000},
	} {
		b.Run(name, func(b *testing.B) {
			of.Until = timer.NoUntil
			var c Cache
			r, err := c.Recurrence(&of)
			if err != nil {
				b.Fatal(err)
			}
			t := &timer.Timer{ID: []byte("id")}
			r.Start(t, 1_772_000_000_000, 1_772_000_000_000)
			first := t
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r, err := c.Recurrence(t.Recurrence)
				if err != nil {
					b.Fatal(err)
				}
				if t = r.After(t, 0); i%100_000 == 0 {
					t = first
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("*/5 9-17 1,15 jan-jun mon-fri"); err != nil {
			b.Fatal(err)
		}
	}
}

// Names of zones that nobody knows push no rules out of the cache.
func TestUnknownZonesPushNoRulesOut(t *testing.T) {
	var c Cache
	if _, err := c.load("Europe/Berlin"); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxZones {
		if _, err := c.load(fmt.Sprint("Nowhere/", i)); err == nil {
			t.Fatal("an invented zone is known")
		}
	}
	if c.zones["Europe/Berlin"].loc == nil || len(c.zones) > maxZones {
		t.Errorf("%d names are remembered, and Europe/Berlin: %v", len(c.zones), c.zones["Europe/Berlin"].loc)
	}
}

// TestMissed: with any policy, what is left of a recurrence whose request was written at some time is what a list of
// its occurrences says.
func TestMissed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := timer.Recurrence{
			Every: rapid.Int64Range(1, 9).Draw(t, "every"), Until: timer.NoUntil,
			Count:   rapid.Int64Range(1, 9).Draw(t, "count"),
			Jitter:  rapid.SampledFrom([]int64{0, 0, 3, 50}).Draw(t, "jitter"),
			CatchUp: timer.CatchUp(rapid.IntRange(0, int(timer.CatchUpNone)).Draw(t, "catch up")),
		}
		if rapid.Bool().Draw(t, "ends") {
			of.Until = rapid.Int64Range(1000, 1060).Draw(t, "until")
		}
		r, err := new(Cache).Recurrence(&of)
		if err != nil {
			t.Fatal(err)
		}
		first := &timer.Timer{ID: []byte("id"), Offset: 42}
		r.Start(first, 1000, 1000)
		written := rapid.Int64Range(990, 1090).Draw(t, "written")
		got := r.SkipMissed(first, written)
		var before, left []*timer.Timer
		for tm := first; tm != nil; tm = r.After(tm, 0) {
			if tm.Due < written {
				before = append(before, tm)
			} else {
				left = append(left, tm)
			}
		}
		switch {
		case of.CatchUp == timer.CatchUpAll:
			left = append(before, left...)
		case of.CatchUp == timer.CatchUpLatest && len(before) > 0:
			left = append(before[len(before)-1:], left...)
		}
		again := r
		again.Recurrence = got.Recurrence
		if len(left) == 0 {
			last := before[len(before)-1]
			ends := again.CatchUp(got, got.Due, math.MinInt64) == nil
			if got.Occurrence != last.Occurrence+1 || got.Due != last.Due || !ends {
				t.Fatalf("%+v is left, %+v", got, got.Recurrence)
			}
			return
		}
		if got.Occurrence != left[0].Occurrence || got.Due != left[0].Due || got.Recurrence.Count != of.Count {
			t.Fatalf("%+v is left, want %+v", got, left[0])
		}
	})
}
