package waterclock

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestScheduleRecurring(t *testing.T) {
	at := time.Date(2026, 3, 1, 9, 0, 0, 999_999, time.UTC)
	tests := []struct {
		name    string
		opts    []Option
		headers []string // name=value
	}{
		{"every", []Option{Every(90 * time.Second)}, []string{"timer-every=90000ms"}},
		{"every, rounded up", []Option{Every(1)}, []string{"timer-every=1ms"}},
		{"every, at", []Option{Every(time.Hour), At(at)}, []string{"timer-every=3600000ms", "timer-at=1772355600001"}},
		{"cron", []Option{Cron("0 9 * * mon-fri")}, []string{"timer-cron=0 9 * * mon-fri"}},
		{"cron, zone", []Option{Zone("Africa/Lagos"), Cron("@daily")},
			[]string{"timer-zone=Africa/Lagos", "timer-cron=@daily"}},
		{"all there is", []Option{Every(time.Hour), Until(at), Count(3), Jitter(1500 * time.Microsecond),
			CatchUp(CatchUpNone), MaxLate(time.Minute)},
			[]string{"timer-every=3600000ms", "timer-until=1772355600000", "timer-count=3", "timer-jitter=2ms",
				"timer-catch-up=none", "timer-max-late=60000ms"}},
		{"until, long ago", []Option{Every(time.Hour), At(time.Unix(0, 0)), Until(time.Unix(1, 0))},
			[]string{"timer-every=3600000ms", "timer-at=1970-01-01T00:00:00.000Z",
				"timer-until=1970-01-01T00:00:01.000Z"}},
		{"every month", []Option{EveryPeriod("P1M"), Zone("Africa/Lagos"), At(at), If(IfChanged)},
			[]string{"timer-every=P1M", "timer-zone=Africa/Lagos", "timer-at=1772355600001", "timer-if=changed"}},
		{"cron from an instant on", []Option{Cron("@daily"), At(at)},
			[]string{"timer-cron=@daily", "timer-at=1772355600001"}},
		{"plain, jitter", []Option{After(0), Jitter(1)}, []string{"timer-after=0ms", "timer-jitter=1ms"}},
		{"plain, max-late", []Option{After(0), MaxLate(0)}, []string{"timer-after=0ms", "timer-max-late=0ms"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec, err := Schedule("timers", "id", tt.opts...)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range rec.Headers {
				got = append(got, h.Key+"="+string(h.Value))
			}
			if !reflect.DeepEqual(got, tt.headers) {
				t.Errorf("headers\n got %q\nwant %q", got, tt.headers)
			}
		})
	}
}

func TestScheduleRecurringFaults(t *testing.T) {
	hour := Every(time.Hour)
	tests := []struct {
		name string
		opts []Option
		says string
	}{
		{"every and cron", []Option{hour, Cron("@daily")}, "one of Every and Cron"},
		{"every twice", []Option{hour, hour}, "one of Every and Cron"},
		{"every and after", []Option{hour, After(0)}, "give At and no other with Every"},
		{"every, at twice", []Option{hour, At(time.Now()), At(time.Now())}, "give At and no other with Every"},
		{"cron and after", []Option{Cron("@daily"), After(0)}, "give At and no other with Cron"},
		{"cron and at twice", []Option{Cron("@daily"), At(time.Now()), At(time.Now())}, "give At and no other with Cron"},
		{"every with a zone", []Option{hour, Zone("UTC")}, "give Cron or EveryPeriod with Zone"},
		{"a period without a zone", []Option{EveryPeriod("P1M")}, "give Zone with EveryPeriod"},
		{"a period with hours", []Option{EveryPeriod("P1DT1H"), Zone("UTC")}, "a part of a day"},
		{"no period", []Option{EveryPeriod("P0D"), Zone("UTC")}, "not a time"},
		{"two intervals", []Option{hour, EveryPeriod("P1D"), Zone("UTC")}, "one of Every and Cron"},
		{"until alone", []Option{After(0), Until(time.Now())}, "give Every or Cron with Until"},
		{"count alone", []Option{After(0), Count(1)}, "give Every or Cron with Count"},
		{"catch-up alone", []Option{After(0), CatchUp(CatchUpAll)}, "give Every or Cron with CatchUp"},
		{"zone alone", []Option{After(0), Zone("UTC")}, "give Every or Cron with Zone"},
		{"nothing says when", []Option{MaxLate(1)}, "exactly one of At and After, not 0, or Every or Cron"},
		{"no interval", []Option{Every(0)}, "Every: 0s is not positive"},
		{"negative interval", []Option{Every(-1)}, "Every: -1ns is not positive"},
		{"no expression", []Option{Cron("")}, "0 fields"},
		{"zone in the expression", []Option{Cron("TZ=UTC 0 0 * * *")}, "time zone"},
		{"never", []Option{Cron("0 0 30 2 *")}, "no date matches"},
		{"no zone", []Option{Cron("@daily"), Zone("")}, "Zone: the name is empty"},
		{"until no time", []Option{hour, Until(time.Time{})}, "Until: 0001"},
		{"count 0", []Option{hour, Count(0)}, "Count: 0 is less than 1"},
		{"negative jitter", []Option{hour, Jitter(-1)}, "Jitter: -1ns is negative"},
		{"negative lateness", []Option{After(0), MaxLate(-1)}, "MaxLate: -1ns is negative"},
		{"some policy", []Option{hour, CatchUp("some")}, `CatchUp: "some" is none of all, latest and none`},
		{"count twice", []Option{hour, Count(1), Count(2)}, "timer-count is set twice"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec, err := Schedule("timers", "id", tt.opts...)
			if err == nil || rec != nil || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("built %+v, %v; want %q", rec, err, tt.says)
			}
		})
	}
}
