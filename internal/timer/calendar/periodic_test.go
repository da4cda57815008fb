package calendar

import (
	"errors"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// TestCalendarPeriods: each occurrence is counted from the anchor, by the clock of the zone.
func TestCalendarPeriods(t *testing.T) {
	for _, tt := range []struct {
		name   string
		period timer.Period
		zone   string
		anchor string
		want   []string // from the first occurrence
	}{
		{"ends of months", timer.Period{Months: 1}, "", "2027-12-31T09:00:00.250Z", []string{
			"2027-12-31T09:00:00.25Z", "2028-01-31T09:00:00.25Z", "2028-02-29T09:00:00.25Z",
			"2028-03-31T09:00:00.25Z", "2028-04-30T09:00:00.25Z"}},
		{"29 February", timer.Period{Months: 12}, "", "2028-02-29T00:00:00Z", []string{
			"2028-02-29T00:00:00Z", "2029-02-28T00:00:00Z", "2030-02-28T00:00:00Z", "2031-02-28T00:00:00Z",
			"2032-02-29T00:00:00Z"}},
		{"months, then days", timer.Period{Months: 1, Days: 1}, "", "2027-01-30T00:00:00Z", []string{
			"2027-01-30T00:00:00Z", "2027-03-01T00:00:00Z", "2027-04-01T00:00:00Z", "2027-05-03T00:00:00Z"}},
		{"days in summer and winter", timer.Period{Days: 1}, "Europe/Berlin", "2027-03-27T02:30:00.5+01:00", []string{
			"2027-03-27T02:30:00.5+01:00", "2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00.5+02:00"}},
		{"an hour twice", timer.Period{Days: 1}, "Europe/Berlin", "2027-10-30T02:30:00+02:00", []string{
			"2027-10-30T02:30:00+02:00", "2027-10-31T02:30:00+02:00", "2027-11-01T02:30:00+01:00"}},
		{"from an hour's second time", timer.Period{Months: 12}, "Europe/Berlin", "2027-10-31T02:30:00+01:00", []string{
			"2027-10-31T02:30:00+01:00", "2028-10-31T02:30:00+01:00"}},
		{"a day that is skipped", timer.Period{Days: 1}, "Pacific/Apia", "2011-12-29T09:00:00-10:00", []string{
			"2011-12-29T09:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T09:00:00+14:00"}},
		{"before 1970", timer.Period{Days: 14}, "", "1969-12-20T23:59:59.999Z", []string{
			"1969-12-20T23:59:59.999Z", "1970-01-03T23:59:59.999Z"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			of := timer.Recurrence{Period: tt.period, Zone: tt.zone, Until: timer.NoUntil}
			tm, r := start(t, of, millis(t, tt.anchor))
			for i, want := range tt.want {
				if got := tm.Due; got != millis(t, want) || tm.Occurrence != int64(i+1) {
					t.Fatalf("occurrence %d, number %d: due %s, want %s", i+1, tm.Occurrence,
						time.UnixMilli(got).UTC(), want)
				}
				if again := with(r, tm).Again(tm); again != tm {
					t.Errorf("occurrence %d comes again as %+v", i+1, again)
				}
				tm = with(r, tm).After(tm, 0)
			}
		})
	}
}

// TestSkippedDayAtMidnight: two occurrences at the same instant are one, and the number of the second is skipped, with
// and without a leap over missed ones.
func TestSkippedDayAtMidnight(t *testing.T) {
	of := timer.Recurrence{Period: timer.Period{Days: 1}, Zone: "Pacific/Apia", Until: timer.NoUntil}
	first, r := start(t, of, millis(t, "2011-12-29T00:00:00-10:00"))
	second := with(r, first).After(first, 0)
	third := with(r, second).After(second, 0)
	if second.Occurrence != 2 || second.Due != millis(t, "2011-12-31T00:00:00+14:00") || third.Occurrence != 4 ||
		third.Due != millis(t, "2012-01-01T00:00:00+14:00") {
		t.Errorf("%+v, then %+v", second, third)
	}
	if got := with(r, first).CatchUp(first, third.Due-1, 0); got.Occurrence != 2 {
		t.Errorf("catches up with %+v", got)
	}
}

// TestPeriodsAreQuick: a leap over a long time takes no longer than a short one.
func TestPeriodsAreQuick(t *testing.T) {
	of := timer.Recurrence{Period: timer.Period{Days: 1}, Zone: "Europe/Berlin", Until: timer.NoUntil}
	tm, r := start(t, of, millis(t, "0001-01-01T00:00:00Z"))
	now := millis(t, "9999-12-31T23:00:00Z")
	quickly(t, "10,000 years of days", func() { tm = with(r, tm).CatchUp(tm, now, 0) })
	if tm.Due > now || tm.Due < now-2*86_400_000 {
		t.Errorf("catches up with %+v", tm)
	}
}

// TestNewRulesForAPeriod: the pending occurrence moves to the time at which the clock now shows the anchor's time of
// day. The anchor itself was given as an instant and does not move.
func TestNewRulesForAPeriod(t *testing.T) {
	at := millis(t, "2026-03-01T09:00:00Z")
	p := periodic{Period: timer.Period{Months: 1}, zone: zone{time.UTC}}
	r := Recurrence{plain: plain{
		Recurrence: &timer.Recurrence{Period: p.Period, Zone: "Z", Until: timer.NoUntil}, period: &p,
	}}
	first := &timer.Timer{ID: []byte("id")}
	r.Start(first, at, at)
	second := with(r, first).After(first, 0)
	p.zone.loc = time.FixedZone("Z", 3600)
	if got := with(r, first).Again(first); got != first {
		t.Errorf("the anchor moves: %+v", got)
	}
	got := with(r, second).Again(second)
	if got.Due != millis(t, "2026-04-01T08:00:00Z") || got.Occurrence != 2 || got.Recurrence.Ahead != 3600 {
		t.Errorf("the second moves to %+v", got)
	}
}

// TestStartOfAnExpression: the start itself is included, and nothing before it comes.
func TestStartOfAnExpression(t *testing.T) {
	for at, want := range map[string]string{
		"2026-03-02T09:00:00Z":     "2026-03-02T09:00:00Z",
		"2026-03-02T09:00:00.001Z": "2026-03-03T09:00:00Z",
		"2026-03-02T08:59:59.999Z": "2026-03-02T09:00:00Z",
	} {
		instant := millis(t, at)
		of := timer.Recurrence{Cron: "0 9 * * *", Until: timer.NoUntil, Start: timer.Start{At: instant, Set: true}}
		if tm, _ := start(t, of, instant); tm.Due != millis(t, want) || tm.Occurrence != 1 {
			t.Errorf("from %s: %+v, want %s", at, tm, want)
		}
	}
}

// TestOnce: a timer that does not recur may have jitter, and has nothing after it.
func TestOnce(t *testing.T) {
	tm, r := start(t, timer.Recurrence{Jitter: 1000, Until: timer.NoUntil}, 5000)
	if tm.Due < 5000 || tm.Due >= 6000 || tm.Scheduled() != 5000 || tm.Occurrence != 1 || tm.Recurs() {
		t.Errorf("starts as %+v", tm)
	}
	if with(r, tm).CatchUp(tm, 1<<50, 0) != tm || with(r, tm).Again(tm) != tm || with(r, tm).After(tm, 0) != nil {
		t.Error("goes on")
	}
}

func TestPeriodInAnUnknownZone(t *testing.T) {
	_, err := new(Cache).Recurrence(&timer.Recurrence{Period: timer.Period{Days: 1}, Zone: "Mars/Olympus"})
	if !errors.Is(err, ErrUnknownZone) {
		t.Error(err)
	}
}
