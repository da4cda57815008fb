package intake

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/timer"
)

// futureRecord is a request whose producer has set a timestamp far ahead (CreateTime; brokers before 4.0 take any,
// later ones if the topic is configured so).
func futureRecord(at int64, headers ...string) *kgo.Record {
	rec := request(nil, append(headers, "timer-target-topic", "ok")...)
	rec.Timestamp = time.UnixMilli(at)
	return rec
}

// Occurrences count as missed by the record's timestamp, which any producer chooses. The horizon has to hold for what
// is pending after that.
func TestMissedKeepsTheHorizon(t *testing.T) {
	for _, at := range []int64{now + (200 * 365 * 24 * time.Hour).Milliseconds(), 1 << 50, math.MaxInt64} {
		rec := futureRecord(at, "timer-at", "1700000000000", "timer-every", "1m")
		req, _, refusal := testRules().Validate(rec, now)
		if refusal != nil {
			continue
		}
		if due, most := req.Schedule.Due, now+DefaultHorizon.Milliseconds()+horizonGrace.Milliseconds(); due > most {
			t.Errorf("timestamp %d: due at %d (%s), beyond the horizon %d", at, due, time.UnixMilli(due).UTC(), most)
		}
	}
}

// A request whose timestamp is the last instant there is costs no more than another one, and its occurrence has a
// number and a time after its beginning.
func TestMissedUpToTheEndOfTime(t *testing.T) {
	for _, when := range [][]string{
		{"timer-every", "1s"}, {"timer-every", "P1D", "timer-zone", "Europe/Berlin"},
		{"timer-cron", "* * * * *", "timer-zone", "Europe/Berlin"}, {"timer-cron", "30 2 * * *"},
	} {
		for _, more := range [][]string{nil, {"timer-count", "99"}, {"timer-count", "99", "timer-catch-up", "none"}} {
			headers := slices.Concat(when, more, []string{"timer-at", "0000-01-01T00:00:00Z"})
			type result struct {
				req     timer.Request
				refusal *timer.Refusal
			}
			done := make(chan result, 1)
			go func() {
				req, _, refusal := testRules().Validate(futureRecord(math.MaxInt64, headers...), now)
				done <- result{req, refusal}
			}()
			select {
			case got := <-done:
				if more == nil && got.refusal != nil {
					break // the rest is beyond the horizon
				}
				begin := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
				if s := got.req.Schedule; got.refusal != nil || s.Due < begin || s.Occurrence < 1 {
					t.Errorf("%q: %+v, %+v", headers, s, got.refusal)
				} else if more != nil && s.Occurrence != 99 && s.Occurrence != 100 {
					t.Errorf("%q: occurrence %d", headers, s.Occurrence)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%q: validating takes more than 10 s", headers)
			}
		}
	}
}
