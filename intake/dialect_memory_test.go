package intake

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// A part that is small in a record and large in memory is counted before it is built, in every dialect: validating a
// request allocates little more than the request has. In each case the request is rejected for the part that is too
// large.
func TestMemoryOfDialects(t *testing.T) {
	const n = 499_000
	sky := func(headers []byte) []byte {
		v := binary.AppendVarint(nil, 1_900_000_000_000) // time
		v = append(binary.AppendVarint(v, 1), 't')       // topic
		v = append(binary.AppendVarint(v, 1), 'k')       // key
		v = binary.AppendVarint(v, 0)                    // no value
		return append(v, headers...)
	}
	block := append(binary.AppendVarint(nil, n), make([]byte, 2*n+1)...) // one block of empty headers
	one := append(binary.AppendVarint(nil, 1), 0, 0)                     // a block of one
	skyJSON := func(headers string) []byte {
		return fmt.Appendf(nil, `{"time":1893456000000,"topic":"t","key":"","headers":{%s}}`, headers)
	}
	var distinct strings.Builder
	for i := range n / 5 {
		fmt.Fprintf(&distinct, `"%x":"",`, i)
	}
	many := make([]kgo.RecordHeader, n)
	own := make([]kgo.RecordHeader, n)
	for i := range own {
		own[i].Key = waterclock.HeaderID
	}
	fields := []kgo.RecordHeader{{Key: natsSchedule, Value: bytes.Repeat([]byte("a "), n)}}
	repeated := strings.Repeat(`"":"",`, n/2) + `"":""`
	nested := `"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	digits := bytes.Repeat([]byte("9"), n)
	for _, tt := range []struct {
		name    string
		dialect Dialect
		value   []byte
		headers []kgo.RecordHeader
		reason  waterclock.Reason // empty: it is valid
	}{
		{"avro, one block", Sky, sky(block), nil, waterclock.ReasonTooManyHeaders},
		{"avro, blocks of one", Sky, sky(bytes.Repeat(one, n/2)), nil, waterclock.ReasonTooManyHeaders},
		{"avro, cut off", Sky, sky(block[:n]), nil, waterclock.ReasonBadValue},
		{"JSON, distinct headers", SkyJSON, skyJSON(distinct.String() + `"":""`), nil, waterclock.ReasonTooManyHeaders},
		{"JSON, one header over and over", SkyJSON, skyJSON(repeated), nil, waterclock.ReasonTooManyHeaders},
		{"JSON, nested lists", SkyJSON, skyJSON(nested), nil, waterclock.ReasonBadValue},
		{"JSON, a long number", SkyJSON, fmt.Appendf(nil, `{"time":%s}`, digits), nil, waterclock.ReasonBadValue},
		{"headers besides a schedule", Sky, sky(one), many, waterclock.ReasonTooManyHeaders},
		{"plain", Plain, nil, many, waterclock.ReasonTooManyHeaders},
		{"etf1", ETF1, []byte("v"), many, waterclock.ReasonTooManyHeaders},
		{"etf1, headers that are dropped", ETF1, []byte("v"), own, waterclock.ReasonTooManyHeaders},
		{"rabbitmq", RabbitMQ, []byte("v"), many, waterclock.ReasonTooManyHeaders},
		{"nats", NATS, []byte("v"), many, waterclock.ReasonTooManyHeaders},
		{"nats, an expression of very many fields", NATS, []byte("v"), fields, waterclock.ReasonHeadersTooLarge},
		{"pulsar", Pulsar, []byte("v"), many, waterclock.ReasonTooManyHeaders},
		{"pulsar, headers that are dropped", Pulsar, []byte("v"), own, waterclock.ReasonTooManyHeaders},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := dialectRules(tt.dialect, Limits{})
			rec := &kgo.Record{
				Topic: "r", Key: []byte("a"), Value: tt.value, Headers: tt.headers, Timestamp: time.UnixMilli(1),
			}
			size := recordBytes(rec)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, refusal := r.Validate(rec, 0)
			runtime.ReadMemStats(&after)
			if refusal == nil && tt.reason != "" || refusal != nil && refusal.Reason != string(tt.reason) {
				t.Errorf("%+v, want %s", refusal, tt.reason)
			}
			if refusal != nil && len(refusal.Detail) > timer.MaxDetailBytes {
				t.Errorf("the detail has %d bytes", len(refusal.Detail))
			}
			if got, most := after.TotalAlloc-before.TotalAlloc, uint64(512<<10+8*size); got > most {
				t.Errorf("a request of %d KiB allocates %d KiB, more than %d", size>>10, got>>10, most>>10)
			}
		})
	}
}

func dialectRules(d Dialect, limits Limits) *Rules {
	return &Rules{
		Topic: "r", Partitions: 1, Dialect: d, DefaultTarget: "t", Limits: limits,
		Allow: func(string) bool { return true },
	}
}

// The limits of a translation reject nothing that headers.read takes.
func TestLimitsOfDialects(t *testing.T) {
	for _, d := range []Dialect{ETF1, RabbitMQ, NATS, Pulsar} {
		for _, limit := range []int{4, DefaultHeaders} {
			r := dialectRules(d, Limits{Headers: limit})
			say := map[Dialect][]kgo.RecordHeader{
				ETF1:     {{Key: etf1Epoch, Value: []byte("1893456000")}},
				RabbitMQ: {{Key: rabbitDelay, Value: []byte("1")}},
				NATS:     {{Key: natsSchedule, Value: []byte("@at 2030-11-10T23:00:00Z")}},
				Pulsar:   {{Key: pulsarAfterMillis, Value: []byte("1")}},
			}[d]
			added := map[Dialect]int{ETF1: 5, RabbitMQ: 1, NATS: 1, Pulsar: 1}[d] // once it is translated
			headers := append(say, kgo.RecordHeader{Key: traceparent, Value: make([]byte, traceparentBytes)},
				kgo.RecordHeader{Key: tracestate, Value: make([]byte, tracestateBytes)})
			for range limit {
				headers = append(headers, kgo.RecordHeader{Key: waterclock.HeaderID})
			}
			for range limit - added {
				headers = append(headers, kgo.RecordHeader{Key: "x"})
			}
			rec := &kgo.Record{
				Topic: "r", Key: []byte("a"), Value: []byte("v"), Headers: headers, Timestamp: time.UnixMilli(1),
			}
			if limit >= added {
				if _, _, refusal := r.Validate(rec, 1_900_000_000_000); refusal != nil {
					t.Errorf("%s, %d headers: %+v", d, limit, refusal)
				}
			}
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: "x"})
			_, _, refusal := r.Validate(rec, 1_900_000_000_000)
			if refusal == nil || refusal.Reason != string(waterclock.ReasonTooManyHeaders) {
				t.Errorf("%s, one header more than %d: %+v", d, limit, refusal)
			}
		}
	}
}
