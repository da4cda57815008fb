package intake

import (
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// futureRecord is a request whose producer has set a timestamp far ahead (CreateTime; brokers before 4.0 take any,
// later ones if the topic is configured so).
func futureRecord(at int64, headers ...string) *kgo.Record {
	rec := request(nil, append(headers, "timer-target-topic", "ok")...)
	rec.Timestamp = time.UnixMilli(at)
	return rec
}

// What was missed counts from the record's timestamp, which any producer chooses. The horizon has to hold for what is
// pending after that.
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
