package intake

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// TestDefaultMaxLate: the rules supply the settings that a request lacks.
func TestDefaultMaxLate(t *testing.T) {
	for _, c := range []struct {
		rules   *Rules
		headers []string
		want    int64
	}{
		{testRules(), nil, 5001},
		{testRules(), []string{"timer-max-late", "1s"}, 1001},
		{testRules(), []string{"timer-every", "1m"}, 5001},
	} {
		c.rules.DefaultMaxLate = 5 * time.Second
		headers := append([]string{"timer-at", "1700000000000", "timer-target-topic", "ok"}, c.headers...)
		req, _, refusal := c.rules.Validate(request(nil, headers...), now)
		if refusal != nil || req.Schedule.TooLate != c.want {
			t.Errorf("%q: %+v, %+v, want too late at %d", c.headers, req.Schedule, refusal, c.want)
		}
	}
}

// TestLimitPast: a timer that was long past due when its record was written expires, a recurring one does not. The
// records of these tests have timestamps.
func TestLimitPast(t *testing.T) {
	const second = stamped - 1000
	for _, c := range []struct {
		headers []string
		want    int64
	}{
		{[]string{"timer-at", strconv.FormatInt(second, 10)}, 0},
		{[]string{"timer-at", strconv.FormatInt(second-1, 10)}, 1},
		{[]string{"timer-at", strconv.FormatInt(second-1, 10), "timer-max-late", "1h"}, 3_600_001},
		{[]string{"timer-at", strconv.FormatInt(second-1, 10), "timer-every", "1m"}, 0},
		{[]string{"timer-after", "0s"}, 0},
	} {
		rules := testRules()
		rules.LimitPast = time.Second
		req, _, refusal := rules.Validate(request(nil, append(c.headers, "timer-target-topic", "ok")...), now)
		if refusal != nil || req.Schedule.TooLate != c.want {
			t.Errorf("%q: %+v, %+v, want too late at %d", c.headers, req.Schedule, refusal, c.want)
		}
	}
}

func TestValidateAcceptsRecurrences(t *testing.T) {
	target := []string{"timer-target-topic", "ok"}
	// stamped is 2023-11-14T22:13:19.5Z.
	nine := time.Date(2023, 11, 15, 8, 0, 0, 0, time.UTC).UnixMilli()
	tests := []struct {
		name    string
		headers []string
		due     int64
		tooLate int64
		want    *timer.Recurrence
	}{
		{"every", []string{"timer-every", "1h30m"}, stamped + 5_400_000, 0,
			&timer.Recurrence{Every: 5_400_000, Until: timer.NoUntil}},
		{"every, at", []string{"timer-every", "PT0.1S", "timer-at", "2023-11-14T22:13:20Z"}, now, 0,
			&timer.Recurrence{Every: 100, Until: timer.NoUntil}},
		{"every, long past", []string{
			"timer-every", "1d", "timer-at", "1969-12-31T23:59:59Z", "timer-catch-up", "all",
		}, -1000, 0,
			&timer.Recurrence{Every: 86_400_000, Until: timer.NoUntil, CatchUp: timer.CatchUpAll}},
		{"every, as long as may be", []string{"timer-every", "36525d", "timer-at", "1700000000000"}, now, 0,
			&timer.Recurrence{Every: DefaultHorizon.Milliseconds(), Until: timer.NoUntil}},
		{"cron", []string{"timer-cron", "0 8 * * *"}, nine, 0,
			&timer.Recurrence{Cron: "0 8 * * *", Until: timer.NoUntil}},
		{"cron with a zone", []string{"timer-cron", "0 9 * * *", "timer-zone", "Africa/Lagos"}, nine, 0,
			&timer.Recurrence{Cron: "0 9 * * *", Zone: "Africa/Lagos", Ahead: 3600, Until: timer.NoUntil}},
		{"cron with seconds", []string{"timer-cron", "20 13 22 * * *"}, now, 0,
			&timer.Recurrence{Cron: "20 13 22 * * *", Until: timer.NoUntil}},
		{"cron by name", []string{"timer-cron", "@hourly"}, time.Date(2023, 11, 14, 23, 0, 0, 0, time.UTC).UnixMilli(),
			0,
			&timer.Recurrence{Cron: "@hourly", Until: timer.NoUntil}},
		{"all there is", []string{
			"timer-every", "1m", "timer-until", "2023-11-14T22:14:19.5Z", "timer-count", "3", "timer-jitter", "0s",
			"timer-catch-up", "all", "timer-max-late", "2s",
		}, stamped + 60_000, 2001,
			&timer.Recurrence{Every: 60_000, Until: stamped + 60_000, Count: 3, CatchUp: timer.CatchUpAll}},
		{"every month", []string{"timer-every", "P1M", "timer-zone", "Africa/Lagos", "timer-at",
			"2024-01-31T09:00:00+01:00"}, time.Date(2024, 1, 31, 8, 0, 0, 0, time.UTC).UnixMilli(), 0,
			&timer.Recurrence{Period: timer.Period{Months: 1}, Zone: "Africa/Lagos", Ahead: 3600,
				Start: timer.Start{
					At: time.Date(2024, 1, 31, 8, 0, 0, 0, time.UTC).UnixMilli(), Set: true, Ahead: 3600,
				},
				Until: timer.NoUntil}},
		{"every two weeks and a day, from now", []string{"timer-every", "P2W1D", "timer-zone", "UTC"},
			stamped + 15*86_400_000, 0,
			&timer.Recurrence{Period: timer.Period{Days: 15}, Zone: "UTC",
				Start: timer.Start{At: stamped + 15*86_400_000, Set: true}, Until: timer.NoUntil}},
		{"every year and 2 months", []string{"timer-every", "P1Y2M", "timer-zone", "UTC", "timer-at",
			"1800000000000"}, 1_800_000_000_000, 0,
			&timer.Recurrence{Period: timer.Period{Months: 14}, Zone: "UTC",
				Start: timer.Start{At: 1_800_000_000_000, Set: true}, Until: timer.NoUntil}},
		{"cron with a start", []string{"timer-cron", "0 9 * * *", "timer-at", "2024-01-31T09:00:00Z"},
			time.Date(2024, 1, 31, 9, 0, 0, 0, time.UTC).UnixMilli(), 0,
			&timer.Recurrence{Cron: "0 9 * * *", Until: timer.NoUntil, Start: timer.Start{Set: true,
				At: time.Date(2024, 1, 31, 9, 0, 0, 0, time.UTC).UnixMilli()}}},
		{"not on weekends", []string{"timer-cron", "0 9 * * *", "timer-not-on", " weekend,weekend"},
			time.Date(2023, 11, 15, 9, 0, 0, 0, time.UTC).UnixMilli(), 0,
			&timer.Recurrence{Cron: "0 9 * * *", Until: timer.NoUntil, NotOn: "weekend", Since: stamped}},
		{"on Friday instead of a weekend", []string{"timer-every", "24h", "timer-at", "2023-11-18T09:00:00Z",
			"timer-not-on", "weekend", "timer-shift", "previous"},
			time.Date(2023, 11, 17, 9, 0, 0, 0, time.UTC).UnixMilli(), 0,
			&timer.Recurrence{Every: 86_400_000, Until: timer.NoUntil, NotOn: "weekend", Shift: timer.ShiftPrevious,
				Start: timer.Start{Set: true, At: time.Date(2023, 11, 18, 9, 0, 0, 0, time.UTC).UnixMilli()},
				Since: time.Date(2023, 11, 15, 9, 0, 0, 0, time.UTC).UnixMilli() - 1, Moved: -86_400_000}},
		{"once, not on weekends but after", []string{"timer-at", "2023-11-18T09:00:00Z", "timer-not-on", "weekend",
			"timer-shift", "next"}, time.Date(2023, 11, 20, 9, 0, 0, 0, time.UTC).UnixMilli(), 0,
			&timer.Recurrence{Until: timer.NoUntil, NotOn: "weekend", Shift: timer.ShiftNext,
				Start: timer.Start{Set: true, At: time.Date(2023, 11, 18, 9, 0, 0, 0, time.UTC).UnixMilli()},
				Since: time.Date(2023, 11, 18, 9, 0, 0, 0, time.UTC).UnixMilli() - 1, Moved: 2 * 86_400_000}},
		{"once, skipped", []string{"timer-at", "2023-11-18T09:00:00Z", "timer-not-on", "weekend"}, stamped, 0,
			&timer.Recurrence{Until: timer.NoUntil, NotOn: "weekend", Since: stamped - 1,
				Start: timer.Start{Set: true, At: time.Date(2023, 11, 18, 9, 0, 0, 0, time.UTC).UnixMilli()}}},
		{"once, without jitter", []string{"timer-at", "1800000000000", "timer-jitter", "0s"}, 1_800_000_000_000, 0, nil},
		{"catch up with none", []string{"timer-every", "1m", "timer-catch-up", "none"}, stamped + 60_000, 0,
			&timer.Recurrence{Every: 60_000, Until: timer.NoUntil, CatchUp: timer.CatchUpNone}},
		{"catch up with the latest", []string{"timer-every", "1m", "timer-catch-up", "latest"}, stamped + 60_000, 0,
			&timer.Recurrence{Every: 60_000, Until: timer.NoUntil}},
		{"no end to speak of", []string{"timer-every", "1m", "timer-until", "9007199254740993", "timer-count",
			strings.Repeat("9", 30)}, stamped + 60_000, 0,
			&timer.Recurrence{Every: 60_000, Until: maxMillis, Count: 1<<63 - 1}},
		{"plain, max-late", []string{"timer-after", "1m", "timer-max-late", "0s"}, stamped + 60_000, 1, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, _, refusal := testRules().Validate(request([]byte("v"), append(tt.headers, target...)...), now)
			if refusal != nil {
				t.Fatalf("refused: %+v", refusal)
			}
			got := req.Schedule
			if got.Due != tt.due || got.TooLate != tt.tooLate || got.Occurrence != 1 || len(got.Headers) != 0 ||
				!reflect.DeepEqual(got.Recurrence, tt.want) {
				t.Errorf("got %+v, %+v\nwant due %d, %+v", got, got.Recurrence, tt.due, tt.want)
			}
			if got.IsSkipped() != (req.At == now) {
				t.Errorf("it ends at %d", req.At)
			}
		})
	}
}

// TestDueBeforeTheRequest: occurrences due before the record's timestamp are missed, whatever the clock of the
// instance that reads it says, and timer-catch-up decides which of them fire.
func TestDueBeforeTheRequest(t *testing.T) {
	const minute = 60_000
	end := strconv.FormatInt(stamped+minute-2, 10)
	for _, c := range []struct {
		name       string
		ago        int64 // how long before the record's timestamp the recurrence begins
		headers    []string
		occurrence int64
		due        int64 // after the timestamp
		count      int64
	}{
		{"none", 5*minute + 1, []string{"timer-catch-up", "none"}, 7, minute - 1, 0},
		{"none, due at the timestamp", 5 * minute, []string{"timer-catch-up", "none"}, 6, 0, 0},
		{"none, in the future", -1, []string{"timer-catch-up", "none"}, 1, 1, 0},
		{"none, one is left", 5*minute + 1, []string{"timer-catch-up", "none", "timer-count", "7"}, 7, minute - 1, 7},
		{"none, by its count", 5*minute + 1, []string{"timer-catch-up", "none", "timer-count", "4"}, 5, -120_001, 4},
		{"none, by its end", 5*minute + 1, []string{"timer-catch-up", "none", "timer-until", end}, 7, -1, 6},
		{"latest", 5*minute + 1, nil, 6, -1, 0},
		{"latest, due at the timestamp", 5 * minute, []string{"timer-catch-up", "latest"}, 5, -minute, 0},
		{"latest, the last one by its count", 5*minute + 1, []string{"timer-count", "4"}, 4, -2*minute - 1, 4},
		{"all", 5*minute + 1, []string{"timer-catch-up", "all"}, 1, -5*minute - 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := strconv.FormatInt(stamped-c.ago, 10)
			headers := append(c.headers, "timer-every", "1m", "timer-at", first, "timer-target-topic", "ok")
			for _, clock := range []int64{now - 3_600_000, now, now + 3_600_000} {
				req, _, refusal := testRules().Validate(request([]byte("v"), headers...), clock)
				if refusal != nil {
					t.Fatalf("refused: %+v", refusal)
				}
				got := req.Schedule
				n := got.Recurrence.Count
				if got.Occurrence != c.occurrence || got.Due != stamped+c.due || n != c.count {
					t.Errorf("occurrence %d of %d, due %d after the timestamp; want %d of %d, %d",
						got.Occurrence, n, got.Due-stamped, c.occurrence, c.count, c.due)
				}
			}
		})
	}
}

// TestValidateJitter: the first occurrence is delayed too.
func TestValidateJitter(t *testing.T) {
	req, _, refusal := testRules().Validate(
		request(nil, "timer-every", "1m", "timer-jitter", "30s", "timer-until", "2023-11-14T22:14:19.5Z",
			"timer-target-topic", "ok"), now)
	if refusal != nil {
		t.Fatal(refusal)
	}
	got := req.Schedule
	if delay := got.Due - stamped - 60_000; delay <= 0 || delay >= 30_000 || got.Recurrence.Delay != delay ||
		got.Scheduled() != stamped+60_000 {
		t.Errorf("got %+v, %+v", got, got.Recurrence)
	}
}

// TestJitterOfOneFiring: a timer that fires once may be delayed too, by a part that only its ID and its request decide.
func TestJitterOfOneFiring(t *testing.T) {
	for _, headers := range [][]string{{"timer-at", "1700000060000"}, {"timer-after", "1m"}} {
		rec := request(nil, append(headers, "timer-jitter", "30s", "timer-target-topic", "ok")...)
		req, _, refusal := testRules().Validate(rec, now)
		if refusal != nil {
			t.Fatal(refusal)
		}
		got := req.Schedule
		delay := got.Due - got.Scheduled()
		if delay <= 0 || delay >= 30_000 || got.Recurs() || got.Occurrence != 1 {
			t.Errorf("got %+v, %+v", got, got.Recurrence)
		}
		again, _, _ := testRules().Validate(rec, now+1)
		if !reflect.DeepEqual(again.Schedule, got) {
			t.Errorf("got %+v, then %+v", got, again.Schedule)
		}
	}
}

// TestStartOfCronInThePast: occurrences between the start and the request are numbered and were missed.
func TestStartOfCronInThePast(t *testing.T) {
	for policy, want := range map[string]struct {
		occurrence int64
		due        string
	}{
		"all": {1, "2023-11-12T09:00:00Z"}, "latest": {3, "2023-11-14T09:00:00Z"}, "none": {4, "2023-11-15T09:00:00Z"},
	} {
		req, _, refusal := testRules().Validate(request(nil, "timer-cron", "0 9 * * *", "timer-at",
			"2023-11-11T09:00:01Z", "timer-catch-up", policy, "timer-target-topic", "ok"), now)
		if refusal != nil {
			t.Fatal(refusal)
		}
		due, _ := time.Parse(time.RFC3339, want.due)
		if got := req.Schedule; got.Occurrence != want.occurrence || got.Due != due.UnixMilli() {
			t.Errorf("%s: got %+v, want %+v", policy, got, want)
		}
	}
}

// TestPeriodInThePast: occurrences of a period before the request are counted from its timer-at, and so is the room
// that jitter has.
func TestPeriodInThePast(t *testing.T) {
	for policy, want := range map[string]struct {
		occurrence int64
		due        string
	}{
		"all": {1, "2023-01-31T09:00:00Z"}, "latest": {10, "2023-10-31T09:00:00Z"},
		"none": {11, "2023-11-30T09:00:00Z"},
	} {
		for _, jitter := range []string{"0s", "400d"} {
			req, _, refusal := testRules().Validate(request(nil, "timer-every", "P1M", "timer-zone", "Africa/Abidjan",
				"timer-at", "2023-01-31T09:00:00Z", "timer-catch-up", policy, "timer-jitter", jitter,
				"timer-target-topic", "ok"), now)
			if refusal != nil {
				t.Fatal(refusal)
			}
			due, _ := time.Parse(time.RFC3339, want.due)
			got := req.Schedule
			if jitter != "0s" {
				if got.Due-got.Scheduled() >= 31*24*3600_000 {
					t.Errorf("%s: delayed by %d ms, beyond the next occurrence", policy, got.Due-got.Scheduled())
				}
				continue
			}
			if got.Occurrence != want.occurrence || got.Due != due.UnixMilli() {
				t.Errorf("%s: occurrence %d at %s, want %+v", policy, got.Occurrence, time.UnixMilli(got.Due).UTC(),
					want)
			}
		}
	}
}

// TestChanged: the condition says whether the request names a due time, and is none with timer-after.
func TestChanged(t *testing.T) {
	for text, want := range map[string]timer.Condition{
		"timer-at=1800000000000": {Kind: timer.IfChanged, Anchored: true},
		"timer-every=1m":         {Kind: timer.IfChanged},
		"timer-after=1m":         {},
	} {
		name, value, _ := strings.Cut(text, "=")
		req, _, refusal := testRules().Validate(request(nil, name, value, "timer-if", "changed",
			"timer-target-topic", "ok"), now)
		if refusal != nil || req.If != want {
			t.Errorf("%s: %+v, %+v, want %+v", text, req.If, refusal, want)
		}
	}
}

// TestChangedAfterTheEnd: the meaning of a request does not depend on whether all of it was due before the request. The
// first timer is paused, so it is still pending then.
func TestChangedAfterTheEnd(t *testing.T) {
	for _, c := range []struct {
		end  []string
		more []string
		want timer.Outcome
	}{
		{[]string{"timer-until", "2023-11-01T00:02:30Z"}, nil, timer.Unchanged},
		{[]string{"timer-until", "2023-11-01T00:02:30Z", "timer-count", "9"}, nil, timer.Unchanged},
		{[]string{"timer-count", "2"}, nil, timer.Unchanged},
		{[]string{"timer-until", "2023-11-01T00:02:30Z"}, []string{"timer-count", "3"}, timer.Replaced},
	} {
		headers := append([]string{"timer-every", "1m", "timer-at", "2023-11-01T00:00:00Z", "timer-catch-up", "none",
			"timer-target-topic", "ok", "timer-if", "changed"}, c.end...)
		first := request(nil, headers...)
		first.Timestamp = time.Date(2023, 10, 31, 0, 0, 0, 0, time.UTC)
		pending, _, refusal := testRules().Validate(first, now)
		if refusal != nil {
			t.Fatal(refusal)
		}
		req, _, refusal := testRules().Validate(request(nil, append(headers, c.more...)...), now)
		if refusal != nil {
			t.Fatal(refusal)
		}
		if e := req.Apply(pending.Schedule.Ref(), pending.Schedule); e.Outcome != c.want {
			t.Errorf("%q, then with %q: outcome %d, want %d", c.end, c.more, e.Outcome, c.want)
		}
	}
}

// TestChangedHoweverWritten: a schedule with the same meaning is unchanged, however it is written, and whenever.
func TestChangedHoweverWritten(t *testing.T) {
	const changed, differs = timer.Unchanged, timer.Replaced
	etf1 := []string{"scheduler-epoch", "1893456000"}
	for _, c := range []struct {
		dialect       Dialect
		first, second []string
		want          timer.Outcome
	}{
		{Plain, []string{"timer-cron", "0 9 * * MON"}, []string{"timer-cron", "0 9 * * 1"}, changed},
		{Plain, []string{"timer-cron", "@daily"}, []string{"timer-cron", " 0  0 0 * * ? ", "timer-zone", "UTC"}, changed},
		{Plain, []string{"timer-cron", "0 9 L * *"}, []string{"timer-cron", "00 9 l * *"}, changed},
		{Plain, []string{"timer-cron", "0 9 * * fri#2"}, []string{"timer-cron", "0 9 * * 5#2"}, changed},
		{Plain, []string{"timer-cron", "0 9 * * fri#2"}, []string{"timer-cron", "0 9 * * fri#3"}, differs},
		{Plain, []string{"timer-cron", "0 9 1 * 1"}, []string{"timer-cron", "0 9 1 * *"}, differs},
		{Plain, []string{"timer-cron", "0 9 L * *"}, []string{"timer-cron", "0 9 * * *"}, differs},
		{Plain, []string{"timer-every", "90s"}, []string{"timer-every", "PT1M30S"}, changed},
		{Plain, []string{"timer-every", "P1Y1W", "timer-zone", "Africa/Lagos"},
			[]string{"timer-every", "P12M7D", "timer-zone", "Africa/Lagos"}, changed},
		{Plain, []string{"timer-at", "1893456000000"}, []string{"timer-at", "2030-01-01T01:00:00+01:00"}, changed},
		{Plain, []string{"timer-every", "1m"}, []string{"timer-every", "1m", "timer-remember", "0s"}, changed},
		{Plain, []string{"timer-every", "1m", "timer-remember", "0s"}, []string{"timer-every", "1m"}, changed},
		{Plain, []string{"timer-every", "1m"}, []string{"timer-every", "1m", "timer-remember", "0s key"}, differs},
		{ETF1, etf1, etf1, changed},
		{ETF1, etf1, append([]string{"a", "b"}, etf1...), differs},
		{ETF1, etf1, []string{"timer-at", "1893456000000", "timer-target-key-null", "true"}, differs}, // no marks
		{ETF1, []string{"timer-at", "1893456000000", "scheduler-timestamp", "1"},
			[]string{"timer-at", "1893456000000", "scheduler-timestamp", "2"}, differs}, // theirs, passed on
		{NATS, []string{"Nats-Schedule", "@daily"}, []string{"Nats-Schedule", "0 0 0 * * *"}, changed},
		{Pulsar, []string{"deliverAt", "1893456000000"}, []string{"timer-at", "2030-01-01T00:00:00Z"}, changed},
	} {
		rules := testRules()
		rules.Dialect, rules.DefaultTarget = c.dialect, "ok"
		validated := func(headers []string, later time.Duration) timer.Request {
			rec := request([]byte("v"), append([]string{"timer-if", "changed"}, headers...)...)
			rec.Timestamp = rec.Timestamp.Add(later)
			req, _, refusal := rules.Validate(rec, now)
			if refusal != nil {
				t.Fatalf("%q: %+v", headers, refusal)
			}
			return req
		}
		pending, req := validated(c.first, 0).Schedule, validated(c.second, 10*time.Second)
		if e := req.Apply(pending.Ref(), pending); e.Outcome != c.want {
			t.Errorf("%s %q, then %q: outcome %d, want %d", c.dialect, c.first, c.second, e.Outcome, c.want)
		}
	}
}

// TestChangedAfterTheLimit: limit-past is for new timers. One that is paused is still pending after that time; declared
// again, it stays as it was, and with another payload it does not expire either.
func TestChangedAfterTheLimit(t *testing.T) {
	rules := testRules()
	rules.LimitPast, rules.DefaultMaxLate = time.Second, time.Hour
	validated := func(value string, later time.Duration) timer.Request {
		rec := request([]byte(value), "timer-at", strconv.FormatInt(now, 10), "timer-target-topic", "ok", "timer-if",
			"changed")
		rec.Timestamp = time.UnixMilli(now).Add(later)
		req, _, refusal := rules.Validate(rec, now)
		if refusal != nil {
			t.Fatal(refusal)
		}
		return req
	}
	for late, pendingLate := range map[time.Duration]int64{0: 3_600_001, 2 * time.Second: 1} {
		pending := validated("1", late).Schedule
		for value, want := range map[string]timer.Outcome{"1": timer.Unchanged, "2": timer.Replaced} {
			req := validated(value, time.Minute)
			e := req.Apply(pending.Ref(), pending)
			if e.Outcome != want || e.After.TooLate != pendingLate || string(e.After.Value) != value {
				t.Errorf("%q, first written %s after it is due: outcome %d, %+v is pending", value, late, e.Outcome,
					e.After)
			}
			if none := req.Apply(timer.Absent, nil); none.After.TooLate != 1 {
				t.Errorf("with nothing pending, it expires %d ms late", none.After.TooLate)
			}
		}
	}
}

// TestPeriodWithStart: a period that has its start in front is counted from that. Occurrences before timer-at have
// numbers and do not fire.
func TestPeriodWithStart(t *testing.T) {
	const zone, year = "Europe/Berlin", "2023-01-31T08:00:00Z/P1M"
	for _, c := range []struct {
		headers []string
		number  int64
		due     string // or the reason for which it is rejected
	}{
		{[]string{"timer-every", year, "timer-at", "2024-02-28T00:00:00Z"}, 14, "2024-02-29T08:00:00Z"},
		{[]string{"timer-every", year, "timer-at", "2024-02-29T08:00:00Z"}, 14, "2024-02-29T08:00:00Z"},
		{[]string{"timer-every", year, "timer-at", "2024-02-29T08:00:00.001Z"}, 15, "2024-03-31T07:00:00Z"},
		{[]string{"timer-every", year, "timer-at", "2022-01-01T00:00:00Z", "timer-catch-up", "all"}, 1,
			"2023-01-31T08:00:00Z"},
		{[]string{"timer-every", year, "timer-catch-up", "all"}, 1, "2023-01-31T08:00:00Z"},
		{[]string{"timer-every", year}, 10, "2023-10-31T08:00:00Z"},
		{[]string{"timer-every", "1700006400000/P1D"}, 1, "2023-11-15T00:00:00Z"},
		{[]string{"timer-every", year, "timer-at", "2024-02-28T00:00:00Z", "timer-count", "14"}, 14,
			"2024-02-29T08:00:00Z"},
		{[]string{"timer-every", year, "timer-at", "2024-02-28T00:00:00Z", "timer-count", "13"}, 0, "bad-count"},
		{[]string{"timer-every", year, "timer-at", "2024-02-28T00:00:00Z", "timer-until", "2024-02-29T07:00:00Z"}, 0,
			"until-before-first"},
		{[]string{"timer-every", "2023-01-31/P1M"}, 0, "bad-interval"},
		{[]string{"timer-every", "/P1M"}, 0, "bad-interval"},
		{[]string{"timer-every", year + "/P1M"}, 0, "bad-interval"},
		{[]string{"timer-every", "9000-01-31T08:00:00Z/P1M"}, 0, "beyond-horizon"},
		{[]string{"timer-every", "99999999999999999/P1M"}, 0, "beyond-horizon"},
	} {
		req, _, refusal := testRules().Validate(request(nil, append(c.headers, "timer-zone", zone, "timer-target-topic",
			"ok")...), now)
		if refusal != nil {
			if refusal.Reason != c.due {
				t.Errorf("%q: %+v", c.headers, refusal)
			}
			continue
		}
		due := time.UnixMilli(req.Schedule.Due).UTC().Format(time.RFC3339Nano)
		if due != c.due || req.Schedule.Occurrence != c.number {
			t.Errorf("%q: number %d at %s, want %d at %s", c.headers, req.Schedule.Occurrence, due, c.number, c.due)
		}
	}
}

// TestPeriodAtTheHorizon: a period is too long if it can be longer than the horizon.
func TestPeriodAtTheHorizon(t *testing.T) {
	for period, days := range map[string]int{"P1Y": 366, "P100Y": 36525, "P4Y": 1461, "P1M": 31, "P2W1D": 15} {
		for _, less := range []int{0, 1} {
			r := testRules()
			r.Limits.Horizon = time.Duration(days-less) * 24 * time.Hour
			_, _, refusal := r.Validate(request(nil, "timer-every", period, "timer-zone", "Africa/Lagos", "timer-at",
				strconv.FormatInt(now, 10), "timer-target-topic", "ok"), now)
			if (refusal != nil) != (less > 0) {
				t.Errorf("%s with a horizon of %d days: %+v", period, days-less, refusal)
			}
		}
	}
}

// badRecurrence is a request that is refused.
type badRecurrence struct {
	name    string
	headers []string
	want    waterclock.Reason
	says    string
}

func badRecurrences() []badRecurrence {
	every, cron := []string{"timer-every", "1m"}, []string{"timer-cron", "0 9 * * *"}
	and := func(headers []string, more ...string) []string {
		return append(headers[:len(headers):len(headers)], more...)
	}
	period := func(text string) []string { return []string{"timer-every", text, "timer-zone", "Europe/Berlin"} }
	return []badRecurrence{
		{"calendars: none", and(cron, "timer-not-on", ""), waterclock.ReasonBadNotOn, "1 to 16"},
		{"calendars: a comma too many", and(cron, "timer-not-on", "a,"), waterclock.ReasonBadNotOn, "1 to 16"},
		{"calendars: a bad name", and(cron, "timer-not-on", "ä"), waterclock.ReasonBadNotOn, "letters"},
		{"calendars: too many", and(cron, "timer-not-on", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"),
			waterclock.ReasonBadNotOn, "1 to 16"},
		{"calendars: unknown", and(cron, "timer-not-on", "always,gone"), waterclock.ReasonUnknownCalendar, "gone"},
		{"calendars: unknown, once", []string{"timer-at", "1700000000000", "timer-not-on", "gone"},
			waterclock.ReasonUnknownCalendar, "gone"},
		{"shift: unknown", and(cron, "timer-not-on", "always", "timer-shift", "up"), waterclock.ReasonBadShift, "skip"},
		{"shift: alone", and(cron, "timer-shift", "next"), waterclock.ReasonBadShift, "timer-not-on"},
		{"shift: alone, once", []string{"timer-at", "1700000000000", "timer-shift", "skip"},
			waterclock.ReasonBadShift, "timer-not-on"},
		{"calendars: nothing is free", and(cron, "timer-not-on", "always"), waterclock.ReasonNeverDue, "100 years"},
		{"calendars: nothing is free, once", []string{"timer-at", "1700000000000", "timer-not-on", "always",
			"timer-shift", "next"}, waterclock.ReasonNeverDue, "100 years"},
		{"every and cron", and(every, cron...), waterclock.ReasonConflictingHeaders, "timer-cron"},
		{"after and every", and(every, "timer-after", "1m"), waterclock.ReasonConflictingHeaders, "timer-after"},
		{"after and cron", and(cron, "timer-after", "1m"), waterclock.ReasonConflictingHeaders, "timer-after"},
		{"every and a zone", and(every, "timer-zone", "UTC"), waterclock.ReasonBadInterval, "timer-zone"},
		{"a time part and a zone", period("P1DT2H"), waterclock.ReasonBadInterval, "timer-zone"},
		{"hours and a zone", period("PT24H"), waterclock.ReasonBadInterval, "timer-zone"},
		{"half a month", period("P0.5M"), waterclock.ReasonBadInterval, "decimals"},
		{"days before months", period("P1D1M"), waterclock.ReasonBadInterval, "once each"},
		{"months twice", period("P1M1M"), waterclock.ReasonBadInterval, "once each"},
		{"a period of nothing", period("P"), waterclock.ReasonBadInterval, "no number"},
		{"a period without a unit", period("P1"), waterclock.ReasonBadInterval, "unit each"},
		{"a period with a sign", period("P-1D"), waterclock.ReasonBadInterval, "unit each"},
		{"a negative period", period("-P1D"), waterclock.ReasonBadInterval, "ISO 8601"},
		{"no period", period(""), waterclock.ReasonBadInterval, "empty"},
		{"no days", period("P0D"), waterclock.ReasonIntervalTooShort, "100ms"},
		{"a long period", period("P101Y"), waterclock.ReasonBeyondHorizon, "36525d"},
		{"a longer period", period("P9999999999999999999Y"), waterclock.ReasonBadInterval, "too long"},
		{"a period in no zone", []string{"timer-every", "P1D", "timer-zone", ""}, waterclock.ReasonUnknownZone, `""`},
		{"a period on Mars", []string{"timer-every", "P1D", "timer-zone", "Mars/Olympus"},
			waterclock.ReasonUnknownZone, "Mars"},
		{"until before the second start", and(cron, "timer-at", "2023-11-16T00:00:00Z", "timer-until",
			"2023-11-16T08:00:00Z"), waterclock.ReasonUntilBeforeFirst, "2023-11-16T09:00:00.000Z"},
		{"a start that is no time", and(cron, "timer-at", "soon"), waterclock.ReasonBadTime, "timer-at"},
		{"every and cancel", and(every, "timer-cancel", "true"), waterclock.ReasonConflictingHeaders, "timer-cancel"},
		{"cron and cancel", and(cron, "timer-cancel", "true"), waterclock.ReasonConflictingHeaders, "timer-cancel"},

		{"zone alone", []string{"timer-after", "1s", "timer-zone", "UTC"}, waterclock.ReasonNoRecurrence, "timer-zone"},
		{"until alone", []string{"timer-after", "1s", "timer-until", "1700000000000"}, waterclock.ReasonNoRecurrence,
			"timer-until"},
		{"count alone", []string{"timer-count", "3"}, waterclock.ReasonNoRecurrence, "timer-count"},
		{"bad jitter alone", []string{"timer-at", "1700000000000", "timer-jitter", "3"}, waterclock.ReasonBadJitter,
			"timer-jitter"},
		{"changed, and cancels", []string{"timer-cancel", "true", "timer-if", "changed"}, waterclock.ReasonBadIf,
			"present"},
		{"changed, and pauses", []string{"timer-pause", "true", "timer-if", "changed"}, waterclock.ReasonBadIf,
			"present"},
		{"catch-up alone", []string{"timer-after", "1s", "timer-catch-up", "x"}, waterclock.ReasonNoRecurrence,
			"timer-catch-up"},

		{"every: bare", []string{"timer-every", "60"}, waterclock.ReasonBadInterval, "bare number"},
		{"every: negative", []string{"timer-every", "-5s"}, waterclock.ReasonBadInterval, "sign"},
		{"every: a month", []string{"timer-every", "P1M"}, waterclock.ReasonBadInterval, "add timer-zone"},
		{"every: empty", []string{"timer-every", ""}, waterclock.ReasonBadInterval, "empty"},
		{"every: nothing", []string{"timer-every", "0s"}, waterclock.ReasonIntervalTooShort, "100ms"},
		{"every: too short", []string{"timer-every", "99ms"}, waterclock.ReasonIntervalTooShort, "100ms"},
		{"every: forever", []string{"timer-every", strings.Repeat("9", 400) + "d", "timer-at", "1700000000000"},
			waterclock.ReasonBeyondHorizon, "36525d"},
		{"every: first behind the horizon", []string{"timer-every", "1m", "timer-at", "4855760000001"},
			waterclock.ReasonBeyondHorizon, "36525d"},

		{"cron: empty", []string{"timer-cron", ""}, waterclock.ReasonBadCron, "0 fields"},
		{"cron: words", []string{"timer-cron", "every day"}, waterclock.ReasonBadCron, "2 fields"},
		{"cron: four fields", []string{"timer-cron", "* * * *"}, waterclock.ReasonBadCron, "4 fields"},
		{"cron: seven fields", []string{"timer-cron", "0 0 0 1 1 * 2030"}, waterclock.ReasonBadCron, "7 fields"},
		{"cron: a step of nothing", []string{"timer-cron", "*/0 * * * *"}, waterclock.ReasonBadCron, "step"},
		{"cron: 25 o'clock", []string{"timer-cron", "0 25 * * *"}, waterclock.ReasonBadCron, "hour"},
		{"cron: a zone in front", []string{"timer-cron", "TZ=Europe/Berlin 0 9 * * *"}, waterclock.ReasonBadCron,
			"timer-zone"},
		{"cron: another zone in front", []string{"timer-cron", "CRON_TZ=0 0 9 * * *"}, waterclock.ReasonBadCron,
			"time zone"},
		{"cron: TZ alone", []string{"timer-cron", "TZ=0"}, waterclock.ReasonBadCron, "time zone"},
		{"cron: @every", []string{"timer-cron", "@every 5m"}, waterclock.ReasonBadCron, "@every"},
		{"cron: 60 kB", []string{"timer-cron", strings.Repeat("*", 60_000)}, waterclock.ReasonBadCron, "60000 bytes"},
		{"cron: 100 kB", []string{"timer-cron", strings.Repeat("*", 100_000)}, waterclock.ReasonHeadersTooLarge,
			"65536"},
		{"cron: the 30th of February", []string{"timer-cron", "0 0 30 2 *"}, waterclock.ReasonCronNeverDue, "no date"},
		{"cron: no text", []string{"timer-cron", "* * * * \xff"}, waterclock.ReasonNotUTF8, "timer-cron"},
		{"zone: none such", and(cron, "timer-zone", "Mars/Olympus"), waterclock.ReasonUnknownZone, `"Mars/Olympus"`},
		{"zone: empty", and(cron, "timer-zone", ""), waterclock.ReasonUnknownZone, `""`},
		{"zone: this machine's", and(cron, "timer-zone", "Local"), waterclock.ReasonUnknownZone, `"Local"`},
		{"zone: an offset", and(cron, "timer-zone", "+01:00"), waterclock.ReasonUnknownZone, `"+01:00"`},
		{"zone: a path", and(cron, "timer-zone", "../../etc/passwd"), waterclock.ReasonUnknownZone, "passwd"},

		{"until: words", and(every, "timer-until", "tomorrow"), waterclock.ReasonBadUntil, `"tomorrow"`},
		{"until: seconds", and(every, "timer-until", "1700000000"), waterclock.ReasonSecondsNotMillis, "timer-until"},
		{"until: before the first", and(every, "timer-until", "2023-11-14T22:14:19.499Z"),
			waterclock.ReasonUntilBeforeFirst, "22:14:19.500Z"},
		{"until: before cron's first", and(cron, "timer-until", "2023-11-15T08:59:59.999Z"),
			waterclock.ReasonUntilBeforeFirst, "09:00:00.000Z"},
		{"count: 0", and(every, "timer-count", "0"), waterclock.ReasonBadCount, `"0"`},
		{"count: -1", and(every, "timer-count", "-1"), waterclock.ReasonBadCount, `"-1"`},
		{"count: words", and(every, "timer-count", "thrice"), waterclock.ReasonBadCount, `"thrice"`},
		{"count: empty", and(every, "timer-count", ""), waterclock.ReasonBadCount, `""`},
		{"jitter: negative", and(every, "timer-jitter", "-1s"), waterclock.ReasonBadJitter, "sign"},
		{"jitter: bare", and(every, "timer-jitter", "5"), waterclock.ReasonBadJitter, "bare number"},
		{"catch-up: some", and(every, "timer-catch-up", "some"), waterclock.ReasonBadCatchUp, `"some"`},
		{"catch-up: shouted", and(every, "timer-catch-up", "ALL"), waterclock.ReasonBadCatchUp, `"ALL"`},
		{"max-late: negative", and(every, "timer-max-late", "-1s"), waterclock.ReasonBadMaxLate, "sign"},
		{"max-late: negative, plain", []string{"timer-after", "1s", "timer-max-late", "-1s"},
			waterclock.ReasonBadMaxLate, "sign"},
		{"max-late: empty", []string{"timer-after", "1s", "timer-max-late", ""}, waterclock.ReasonBadMaxLate, "empty"},
		{"remember: negative", []string{"timer-after", "1s", "timer-remember", "-1s"},
			waterclock.ReasonBadRemember, "sign"},
		{"remember: too long", []string{"timer-after", "1s", "timer-remember", "169h"}, waterclock.ReasonBadRemember,
			"more than 7d"},
		{"remember: no token", []string{"timer-after", "1s", "timer-remember", "1h "},
			waterclock.ReasonBadRemember, "token"},
		{"remember: two tokens", []string{"timer-after", "1s", "timer-remember", "1h a b"},
			waterclock.ReasonBadRemember, "token"},
		{"remember: large token", []string{"timer-after", "1s", "timer-remember",
			"1h " + strings.Repeat("x", waterclock.MaxTokenBytes+1)}, waterclock.ReasonBadRemember, "64"},
		{"labels: none", []string{"timer-after", "1s", "timer-labels", ""}, waterclock.ReasonBadLabels, "no name"},
		{"labels: doubled", and(every, "timer-labels", "a=1,b=2,a=3"), waterclock.ReasonBadLabels, `"a" is given twice`},
		{"labels: no header for them", and(every, "timer-labels", "a=1", "timer-labels-header", ""),
			waterclock.ReasonBadLabels, "1 to 256 bytes"},
		{"labels: in a header of ours", and(every, "timer-labels", "a=1", "timer-labels-header", "Timer-Labels"),
			waterclock.ReasonBadLabels, "reserved"},
		{"labels: a header alone", and(every, "timer-labels-header", "x"), waterclock.ReasonBadLabels, "without"},
		{"every twice", and(every, every...), waterclock.ReasonDuplicateHeader, "timer-every"},
	}
}

func TestValidateRefusesRecurrences(t *testing.T) {
	for _, tt := range badRecurrences() {
		t.Run(tt.name, func(t *testing.T) {
			rec := request([]byte("v"), append(tt.headers, "timer-target-topic", "ok")...)
			req, _, refusal := testRules().Validate(rec, now)
			if refusal == nil {
				t.Fatalf("accepted: %+v, %+v", req.Schedule, req.Schedule.Recurrence)
			}
			if refusal.Reason != string(tt.want) || !strings.Contains(refusal.Detail, tt.says) {
				t.Errorf("got %s: %s\nwant %s with %q", refusal.Reason, refusal.Detail, tt.want, tt.says)
			}
			checkValidated(t, rec)
		})
	}
	for _, headers := range [][]string{{"timer-every", "1m"}, {"timer-cron", "0 9 * * *"}} {
		rec := with(request(nil, append(headers, "timer-target-topic", "ok")...),
			func(r *kgo.Record) { r.Timestamp = time.UnixMilli(-1) })
		if _, _, refusal := testRules().Validate(rec, now); refusal == nil ||
			refusal.Reason != string(waterclock.ReasonNoTimestamp) {
			t.Errorf("%q without a timestamp: %+v", headers, refusal)
		}
		rec = with(rec, func(r *kgo.Record) { r.Timestamp = time.UnixMilli(1<<63 - 1) })
		if _, _, refusal := testRules().Validate(rec, now); refusal == nil ||
			refusal.Reason != string(waterclock.ReasonBeyondHorizon) {
			t.Errorf("%q behind a forged timestamp: %+v", headers, refusal)
		}
		rec = with(rec, func(r *kgo.Record) { r.Timestamp = time.UnixMilli(0) })
		if req, _, refusal := testRules().Validate(rec, now); refusal != nil || req.Schedule.Due >= now {
			t.Errorf("%q behind an old timestamp: %+v, %+v", headers, req.Schedule, refusal)
		}
	}
}

// TestValidateShortestInterval: the limit holds for expressions too.
func TestValidateShortestInterval(t *testing.T) {
	r := testRules()
	r.Limits.Interval = 10 * time.Minute
	for text, fits := range map[string]bool{
		"timer-every=10m": true, "timer-every=599999ms": false, "timer-cron=*/10 * * * *": true,
		"timer-cron=*/9 * * * *": false,
		"timer-cron=* * * * * *": false, "timer-cron=@hourly": true, "timer-cron=55,0 23,0 * * *": false,
		"timer-cron=55,0 23,0 * * 1": true,
	} {
		name, value, _ := strings.Cut(text, "=")
		_, _, refusal := r.Validate(request(nil, name, value, "timer-target-topic", "ok"), now)
		if fits != (refusal == nil) || !fits && refusal.Reason != string(waterclock.ReasonIntervalTooShort) {
			t.Errorf("%s: %+v, fits %v", text, refusal, fits)
		}
	}
}

func TestValidateRecurrenceAllocations(t *testing.T) {
	r := testRules()
	for _, headers := range [][]string{{"timer-every", "1m"},
		{"timer-cron", "0 9 * * *", "timer-zone", "Africa/Lagos"}} {
		rec := request(nil, append(headers, "timer-target-topic", "ok")...)
		got := testing.AllocsPerRun(100, func() {
			if _, _, refusal := r.Validate(rec, now); refusal != nil {
				t.Fatal(refusal)
			}
		})
		if got > 6 {
			t.Errorf("%q: %v allocations", headers, got)
		}
	}
}
