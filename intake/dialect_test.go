package intake

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// said is one request in a dialect: the timer that it means, a cancel, or why it is refused.
type said struct {
	name   string
	rec    *kgo.Record
	want   *timer.Timer      // nil without a reason: a cancel
	reason waterclock.Reason // if set, detail is part of the sentence
	detail string
}

// hear validates requests in a dialect.
func hear(t *testing.T, d Dialect, all []said) {
	t.Helper()
	rules := testRules()
	rules.Dialect, rules.DefaultTarget = d, "ok-default"
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			c.rec.Topic = "timers"
			before := fmt.Sprintf("%q", c.rec.Headers)
			req, _, refusal := rules.Validate(c.rec, now)
			if after := fmt.Sprintf("%q", c.rec.Headers); after != before {
				t.Errorf("the record's headers are %s, were %s", after, before)
			}
			switch {
			case c.reason != "":
				if refusal == nil || refusal.Reason != string(c.reason) || !strings.Contains(refusal.Detail, c.detail) {
					t.Fatalf("got %+v, %+v; want %s with %q", req.Schedule, refusal, c.reason, c.detail)
				}
			case refusal != nil:
				t.Fatalf("refused: %+v", refusal)
			case !reflect.DeepEqual(req.Schedule, c.want):
				t.Errorf("got  %+v\nwant %+v", req.Schedule, c.want)
			}
			if string(req.ID) != string(c.rec.Key) || req.Offset != c.rec.Offset {
				t.Errorf("got ID %q, offset %d", req.ID, req.Offset)
			}
		})
	}
}

// Their due time is the start of a recurrence in our words.
func TestTheirDueTimeIsOurStart(t *testing.T) {
	for d, headers := range map[Dialect][]string{
		ETF1: {"scheduler-epoch", "1893456000"}, Pulsar: {"deliverAt", "1893456000000"},
		NATS: {"Nats-Schedule", "@at 2030-01-01T00:00:00Z"},
	} {
		for text, due := range map[string]int64{"timer-cron=0 9 * * *": 1893488400, "timer-every=1h": 1893456000} {
			name, value, _ := strings.Cut(text, "=")
			rules := testRules()
			rules.Dialect, rules.DefaultTarget = d, "ok"
			req, _, refusal := rules.Validate(request(body, append(headers, name, value)...), now)
			if refusal != nil || req.Schedule.Due != due*1000 || !req.Schedule.Recurs() {
				t.Errorf("%s with %s: %+v, %+v", d, text, req.Schedule, refusal)
			}
		}
	}
}

// means returns the timer of a record with the ID id at offset 42.
func means(due int64, topic string, key, value []byte, headers ...string) *timer.Timer {
	tm := &timer.Timer{
		ID: []byte("id"), Offset: 42, Due: due, Occurrence: 1, Value: value,
		Target: timer.Target{Topic: topic, Partition: timer.AnyPartition, Key: key},
	}
	for i := 0; i < len(headers); i += 2 {
		tm.Headers = append(tm.Headers, timer.Header{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return tm
}

var (
	body   = []byte("video 1")
	idKey  = []byte("id")
	future = int64(1893456000) // in the readme of etf1, Unix seconds
)

// TestETF1 is the readme of etf1's kafka-message-scheduler, and the requests of its client library.
func TestETF1(t *testing.T) {
	readme := []string{"scheduler-epoch", "1893456000", "scheduler-target-topic", "ok-videos", "scheduler-target-key",
		"vid1", "customer-header", "dummy"}
	marks := []string{"scheduler-timestamp", "1699999999", "scheduler-key", "id", "scheduler-topic", "timers"}
	due := future * 1000
	blank := means(due, "ok-videos", nil, body, marks[0], marks[1], marks[2], "  ", marks[4], marks[5])
	blank.ID = []byte("  ")
	hear(t, ETF1, []said{
		{name: "the example of the readme", rec: request(body, readme...),
			want: means(due, "ok-videos", []byte("vid1"), body,
				append([]string{"customer-header", "dummy"}, marks...)...)},
		{name: "a deletion", rec: request(nil)},
		{name: "a tombstone of the scheduler itself, which has all headers",
			rec: request(nil, append(readme, marks...)...)},
		{name: "an empty value is none", rec: request([]byte{}, readme...),
			want: means(due, "ok-videos", []byte("vid1"), []byte{},
				append([]string{"customer-header", "dummy"}, marks...)...)},
		{name: "a null key of the message", rec: with(request(body, readme[:4]...), nullHeader("scheduler-target-key")),
			want: means(due, "ok-videos", nil, body, marks...)},
		{name: "no target key", rec: request(body, readme[:4]...), want: means(due, "ok-videos", nil, body, marks...)},
		{name: "a target key that is no text",
			rec:  request(body, append(readme[:4:4], "scheduler-target-key", "\xff")...),
			want: means(due, "ok-videos", []byte("\xff"), body, marks...)},
		{name: "a target key in our words", rec: request(body, append(readme[:4:4], "timer-target-key", "k")...),
			want: means(due, "ok-videos", []byte("k"), body, marks...)},
		{name: "no target topic: the default", rec: request(body, "scheduler-epoch", "1893456000",
			"scheduler-target-key", "k"),
			want: means(due, "ok-default", []byte("k"), body, marks...)},
		{name: "long past", rec: request(body, append([]string{"scheduler-epoch", "0"}, readme[2:6]...)...),
			want: means(0, "ok-videos", []byte("vid1"), body, marks...)},
		{name: "sent on by a consumer with all headers",
			rec:  request(body, append(append(marks[:4:4], readme[:6]...), "scheduler-topic", "elsewhere")...),
			want: means(due, "ok-videos", []byte("vid1"), body, marks...)},
		{name: "our own words", rec: request(body, "timer-at", "1893456000000", "timer-target-topic", "ok", "a", "b"),
			want: means(due, "ok", idKey, body, "a", "b")},
		{name: "a tombstone in our own words", rec: request(nil, "timer-at", "1893456000000"),
			want: means(due, "ok-default", idKey, nil)},
		{name: "a cancel in our own words", rec: request(body, "timer-cancel", "true")},
		{name: "no header at all", rec: request(body), reason: waterclock.ReasonNoDueTime,
			detail: "add scheduler-epoch"},
		{name: "no epoch", rec: request(body, readme[2:]...), reason: waterclock.ReasonNoDueTime,
			detail: "add scheduler-epoch"},
		{name: "no number", rec: request(body, "scheduler-epoch", "2030-01-01T00:00:00Z"),
			reason: waterclock.ReasonBadTime, detail: "scheduler-epoch is \"2030"},
		{name: "negative", rec: request(body, "scheduler-epoch", "-1"), reason: waterclock.ReasonBadTime,
			detail: "scheduler-epoch is \"-1\""},
		{name: "with a plus, which etf1 reads", rec: request(body, "scheduler-epoch", "+1893456000"),
			reason: waterclock.ReasonBadTime,
			detail: "scheduler-epoch is \"+1893456000\": send Unix seconds, digits alone"},
		{name: "a blank key, which etf1 drops",
			rec:  with(request(body, readme[:4]...), func(r *kgo.Record) { r.Key = []byte("  ") }),
			want: blank},
		{name: "an empty key", rec: with(request(body, readme...), func(r *kgo.Record) { r.Key = []byte{} }),
			reason: waterclock.ReasonBadKey},
		{name: "empty", rec: request(body, "scheduler-epoch", ""), reason: waterclock.ReasonBadTime,
			detail: "scheduler-epoch"},
		{name: "milliseconds", rec: request(body, "scheduler-epoch", "1893456000000"),
			reason: waterclock.ReasonBeyondHorizon, detail: "send seconds"},
		{name: "too far", rec: request(body, "scheduler-epoch", "99999999999", "scheduler-target-topic", "ok"),
			reason: waterclock.ReasonBeyondHorizon},
		{name: "too large for a number", rec: request(body, "scheduler-epoch", strings.Repeat("9", 40)),
			reason: waterclock.ReasonBeyondHorizon},
		{name: "wrong case", rec: request(body, "Scheduler-Epoch", "1893456000"), reason: waterclock.ReasonHeaderCase,
			detail: "write scheduler-epoch"},
		{name: "misspelt", rec: request(body, "scheduler-epoc", "1893456000"), reason: waterclock.ReasonUnknownHeader,
			detail: "scheduler-epoc"},
		{name: "twice", rec: request(body, append(readme, "scheduler-epoch", "1893456001")...),
			reason: waterclock.ReasonDuplicateHeader, detail: "scheduler-epoch"},
		{name: "both languages", rec: request(body, append(readme, "timer-at", "1893456000000")...),
			reason: waterclock.ReasonConflictingHeaders, detail: "scheduler-epoch comes together with timer-at"},
		{name: "both languages, otherwise", rec: request(body, append(readme, "timer-after", "1s")...),
			reason: waterclock.ReasonConflictingHeaders},
		{name: "a due time with a cancel", rec: request(body, append(readme, "timer-cancel", "true")...),
			reason: waterclock.ReasonConflictingHeaders},
		{name: "not text", rec: request(body, "scheduler-epoch", "\xff"), reason: waterclock.ReasonNotUTF8,
			detail: "scheduler-epoch"},
		{name: "a target that is not allowed", rec: request(body,
			append(readme[:2:2], "scheduler-target-topic", "no")...), reason: waterclock.ReasonTargetNotAllowed},
		{name: "a target that is no name", rec: request(body, append(readme[:2:2], "scheduler-target-topic", "a b")...),
			reason: waterclock.ReasonBadTarget},
	})
}

// avroSchedule encodes a schedule as sky-uk's schema says: time, topic, key, value, and, unless they are nil, headers
// in one block.
func avroSchedule(ms int64, topic string, key, value []byte, headers []string) []byte {
	b := avroLong(nil, ms)
	b = avroBytes(b, []byte(topic))
	b = avroBytes(b, key)
	if value == nil {
		b = avroLong(b, 0)
	} else {
		b = avroBytes(avroLong(b, 1), value)
	}
	if headers == nil {
		return b
	}
	if len(headers) > 0 {
		b = avroLong(b, int64(len(headers)/2))
		for _, h := range headers {
			b = avroBytes(b, []byte(h))
		}
	}
	return avroLong(b, 0)
}

func avroLong(b []byte, n int64) []byte {
	for u := uint64(n)<<1 ^ uint64(n>>63); ; u >>= 7 {
		if u < 0x80 {
			return append(b, byte(u))
		}
		b = append(b, byte(u)|0x80)
	}
}

func avroBytes(b, v []byte) []byte { return append(avroLong(b, int64(len(v))), v...) }

// TestSky is the schema of sky-uk's kafka-message-scheduler.
func TestSky(t *testing.T) {
	const due = 1_893_456_000_000
	headers := []string{"b", "2", "a", "1"}
	full := avroSchedule(due, "ok", []byte("k"), body, headers)
	// By hand: 1 ms, "ok", "k", null, one header in a block with its size.
	byHand := []byte{2, 4, 'o', 'k', 2, 'k', 0, 1, 8, 2, 'a', 2, 'z', 0}
	hear(t, Sky, []said{
		{name: "all fields", rec: request(full), want: means(due, "ok", []byte("k"), body, headers...)},
		{name: "headers of the record are not passed on", rec: request(full, "trace", "x"),
			want: means(due, "ok", []byte("k"), body, headers...)},
		{name: "no headers", rec: request(avroSchedule(due, "ok", []byte("k"), body, []string{})),
			want: means(due, "ok", []byte("k"), body)},
		{name: "the older schema", rec: request(avroSchedule(due, "ok", []byte("k"), body, nil)),
			want: means(due, "ok", []byte("k"), body)},
		{name: "a null value: a tombstone", rec: request(avroSchedule(due, "ok", []byte("k"), nil, headers)),
			want: means(due, "ok", []byte("k"), nil, headers...)},
		{name: "empty key and value", rec: request(avroSchedule(due, "ok", nil, []byte{}, nil)),
			want: means(due, "ok", []byte{}, []byte{})},
		{name: "by hand", rec: request(byHand), want: means(1, "ok", []byte("k"), nil, "a", "z")},
		{name: "before 1970", rec: request(avroSchedule(-5, "ok", []byte("k"), body, nil)),
			want: means(0, "ok", []byte("k"), body)},
		{name: "a deletion", rec: request(nil)},
		{name: "the scheduler's own tombstone", rec: request(nil, "schedule:expired", "true")},
		{name: "our own words", rec: request(body, "timer-at", "1893456000000"),
			want: means(due, "ok-default", idKey, body)},
		{name: "headers of ours within", rec: request(avroSchedule(due, "ok", nil, body, []string{"Timer-At", "1"})),
			reason: waterclock.ReasonUnknownHeader, detail: "Timer-At"},
		{name: "no topic", rec: request(avroSchedule(due, "", nil, body, nil)), reason: waterclock.ReasonBadValue,
			detail: "names no topic"},
		{name: "a schema ID in front", rec: request(append([]byte{0, 0, 0, 0, 1}, full...)),
			reason: waterclock.ReasonBadValue},
		{name: "JSON", rec: request([]byte(`{"time":1,"topic":"ok","key":""}`)), reason: waterclock.ReasonBadValue},
		{name: "empty", rec: request([]byte{}), reason: waterclock.ReasonBadValue, detail: "ends too soon"},
		{name: "cut off", rec: request(full[:len(full)-1]), reason: waterclock.ReasonBadValue, detail: "ends too soon"},
		{name: "more behind it", rec: request(append(bytes.Clone(full), 0)), reason: waterclock.ReasonBadValue,
			detail: "goes on"},
		{name: "a branch that is not there",
			rec:    request(append(avroBytes(avroBytes(avroLong(nil, due), []byte("ok")), nil), 4)),
			reason: waterclock.ReasonBadValue, detail: "neither null nor bytes"},
		{name: "a length beyond the end",
			rec:    request(append(avroLong(nil, due), 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1)),
			reason: waterclock.ReasonBadValue},
		{name: "a number without end", rec: request(bytes.Repeat([]byte{0xff}, 20)), reason: waterclock.ReasonBadValue},
		{name: "a topic that is not text", rec: request(avroSchedule(due, "\xff", nil, body, nil)),
			reason: waterclock.ReasonBadValue, detail: "UTF-8"},
		{name: "more headers than may be", rec: request(avroSchedule(due, "ok", nil, body, make([]string, 300))),
			reason: waterclock.ReasonTooManyHeaders},
		{name: "a target that is not allowed", rec: request(avroSchedule(due, "no", nil, body, nil)),
			reason: waterclock.ReasonTargetNotAllowed},
	})
}

// TestSkyJSON is the JSON form of the same.
func TestSkyJSON(t *testing.T) {
	const due = 1_893_456_000_000
	hear(t, SkyJSON, []said{
		{name: "all fields",
			rec: request([]byte(
				`{"time":1893456000000,"topic":"ok","key":"aw==","value":"dmlkZW8gMQ==","headers":{"b":"Mg==","a":"MQ"}}`)),
			want: means(due, "ok", []byte("k"), body, "a", "1", "b", "2")},
		{name: "the least", rec: request([]byte(`{"time":1893456000000,"topic":"ok","key":"","value":null}`)),
			want: means(due, "ok", []byte{}, nil)},
		{name: "a deletion", rec: request(nil)},
		{name: "no JSON", rec: request([]byte("video")), reason: waterclock.ReasonBadValue, detail: "not JSON"},
		{name: "a time that is text", rec: request([]byte(`{"time":"1893456000000","topic":"ok","key":""}`)),
			reason: waterclock.ReasonBadValue, detail: "not JSON of the right shape"},
		{name: "a time with an exponent", rec: request([]byte(`{"time":1.7e12,"topic":"ok","key":""}`)),
			reason: waterclock.ReasonBadValue, detail: "not JSON of the right shape"},
		{name: "a time with a fraction", rec: request([]byte(`{"time":1700000000000.0,"topic":"ok","key":""}`)),
			reason: waterclock.ReasonBadValue, detail: "not JSON of the right shape"},
		{name: "a header that is null", rec: request(
			[]byte(`{"time":1893456000000,"topic":"ok","key":"aw==","value":null,"headers":{"a":null,"b":"Mg=="}}`)),
			want: means(due, "ok", []byte("k"), nil, "a", "", "b", "2")},
		{name: "no time", rec: request([]byte(`{"topic":"ok","key":""}`)), reason: waterclock.ReasonBadValue,
			detail: "lacks time"},
		{name: "a value in clear", rec: request([]byte(`{"time":1893456000000,"topic":"ok","key":"","value":"{}"}`)),
			reason: waterclock.ReasonBadValue, detail: "value that is not in base64"},
		{name: "a key in clear", rec: request([]byte(`{"time":1893456000000,"topic":"ok","key":"a b"}`)),
			reason: waterclock.ReasonBadValue, detail: "key that is not in base64"},
		{name: "a header in clear",
			rec:    request([]byte(`{"time":1893456000000,"topic":"ok","key":"","headers":{"a":"?"}}`)),
			reason: waterclock.ReasonBadValue, detail: `header "a"`},
	})
}

// TestRabbitMQ is the readme of the delayed message exchange.
func TestRabbitMQ(t *testing.T) {
	hear(t, RabbitMQ, []said{
		{name: "the example of the readme", rec: request(body, "x-delay", "5000"),
			want: means(stamped+5000, "ok-default", idKey, body)},
		{name: "as far as it goes", rec: request(body, "x-delay", "4294967295"),
			want: means(stamped+4294967295, "ok-default", idKey, body)},
		{name: "without delay it is routed at once", rec: request(body, "a", "b"),
			want: means(stamped, "ok-default", idKey, body, "a", "b")},
		{name: "none", rec: request(body, "x-delay", "0"), want: means(stamped, "ok-default", idKey, body)},
		{name: "sent on as it was delivered", rec: request(body, "x-delay", "-5000"),
			want: means(stamped, "ok-default", idKey, body)},
		{name: "where to in our words", rec: request(body, "x-delay", "1", "timer-target-topic", "ok",
			"timer-target-key", "k"), want: means(stamped+1, "ok", []byte("k"), body)},
		{name: "where to, at once", rec: request(body, "timer-target-topic", "ok"),
			want: means(stamped, "ok", idKey, body)},
		{name: "our own words", rec: request(body, "timer-after", "2s"),
			want: means(stamped+2000, "ok-default", idKey, body)},
		{name: "a null body, delayed", rec: request(nil, "x-delay", "7"),
			want: means(stamped+7, "ok-default", idKey, nil)},
		{name: "a null body: a cancel", rec: request(nil, "a", "b")},
		{name: "a cancel in our words", rec: request(body, "timer-cancel", "true")},
		{name: "too far", rec: request(body, "x-delay", "4294967296"), reason: waterclock.ReasonBadDuration,
			detail: "at most 4294967295 ms"},
		{name: "no number", rec: request(body, "x-delay", "5s"), reason: waterclock.ReasonBadDuration,
			detail: `x-delay is "5s"`},
		{name: "a fraction", rec: request(body, "x-delay", "5000.0"), reason: waterclock.ReasonBadDuration},
		{name: "a number in bytes", rec: request(body, "x-delay", "\x00\x00\x13\x88"),
			reason: waterclock.ReasonNotUTF8},
		{name: "empty", rec: request(body, "x-delay", ""), reason: waterclock.ReasonBadDuration},
		{name: "wrong case", rec: request(body, "X-Delay", "1"), reason: waterclock.ReasonHeaderCase},
		{name: "twice", rec: request(body, "x-delay", "1", "x-delay", "1"), reason: waterclock.ReasonDuplicateHeader},
		{name: "both languages", rec: request(body, "x-delay", "1", "timer-after", "1s"),
			reason: waterclock.ReasonConflictingHeaders},
		{name: "both languages, otherwise", rec: request(body, "x-delay", "1", "timer-at", "1893456000000"),
			reason: waterclock.ReasonConflictingHeaders},
		{name: "with a cancel", rec: request(body, "x-delay", "1", "timer-cancel", "true"),
			reason: waterclock.ReasonConflictingHeaders},
		{name: "no key", rec: with(request(body, "x-delay", "1"), func(r *kgo.Record) { r.Key = nil }),
			reason: waterclock.ReasonBadKey},
		{name: "no timestamp", rec: with(request(body, "x-delay", "1"),
			func(r *kgo.Record) { r.Timestamp = time.UnixMilli(-1) }), reason: waterclock.ReasonNoTimestamp},
	})
}

// TestNATS is ADR-51.
func TestNATS(t *testing.T) {
	const due = 1_257_894_000_000 // of its example
	at := []string{"Nats-Schedule", "@at 2009-11-10T23:00:00Z", "Nats-Schedule-Target", "ok.orders"}
	hear(t, NATS, []said{
		{name: "the example of the ADR, without lifetime", rec: request(body, at...),
			want: means(due, "ok.orders", idKey, body)},
		{name: "a zone", rec: request(body, "Nats-Schedule", "@at 2009-11-11T00:00:00+01:00", "Nats-Schedule-Target",
			"ok"), want: means(due, "ok", idKey, body)},
		{name: "headers go with it", rec: request(body, append(at, "Nats-Msg-Id", "7", "a", "b")...),
			want: means(due, "ok.orders", idKey, body, "Nats-Msg-Id", "7", "a", "b")},
		{name: "an empty lifetime is none", rec: request(body, append(at, "Nats-Schedule-TTL", "")...),
			want: means(due, "ok.orders", idKey, body)},
		{name: "no lifetime, said", rec: request(body, append(at, "Nats-Schedule-TTL", "never")...),
			want: means(due, "ok.orders", idKey, body)},
		{name: "no target: the default", rec: request(body, at[:2]...), want: means(due, "ok-default", idKey, body)},
		{name: "a target key in our words", rec: request(body, append(at, "timer-target-key", "k")...),
			want: means(due, "ok.orders", []byte("k"), body)},
		{name: "our own words", rec: request(body, "timer-after", "2s"),
			want: means(stamped+2000, "ok-default", idKey, body)},
		{name: "a null body, scheduled", rec: request(nil, at...), want: means(due, "ok.orders", idKey, nil)},
		{name: "a cancel", rec: request(nil)},
		{name: "no headers", rec: request(body), reason: waterclock.ReasonNoDueTime},
		{name: "a target alone", rec: request(body, at[2:]...), reason: waterclock.ReasonNoDueTime,
			detail: "there is no Nats-Schedule"},
		{name: "the example of the ADR, with a lifetime", rec: request(body, append(at, "Nats-Schedule-TTL", "5m")...),
			reason: waterclock.ReasonUnsupported, detail: "Nats-Schedule-TTL"},
		{name: "no instant", rec: request(body, "Nats-Schedule", "@at tomorrow"), reason: waterclock.ReasonBadTime,
			detail: "is not a time"},
		{name: "no zone", rec: request(body, "Nats-Schedule", "@at 2009-11-10T23:00:00"),
			reason: waterclock.ReasonBadTime, detail: "has no zone"},
		{name: "Unix milliseconds", rec: request(body, "Nats-Schedule", "@at 1257894000000"),
			reason: waterclock.ReasonBadTime},
		{name: "a source", rec: request(body, append(at, "Nats-Schedule-Source", "s")...),
			reason: waterclock.ReasonUnsupported, detail: "Nats-Schedule-Source"},
		{name: "a roll-up", rec: request(body, append(at, "Nats-Schedule-Rollup", "sub")...),
			reason: waterclock.ReasonUnsupported, detail: "Nats-Schedule-Rollup"},
		{name: "a time zone", rec: request(body, append(at, "Nats-Schedule-Time-Zone", "Europe/Amsterdam")...),
			reason: waterclock.ReasonConflictingHeaders, detail: "Nats-Schedule-Time-Zone"},
		{name: "a lifetime of the schedule", rec: request(body, append(at, "Nats-TTL", "1h")...),
			reason: waterclock.ReasonUnsupported, detail: "Nats-TTL"},
		{name: "a stop by another message", rec: request(body, "Nats-Schedule-Next", "purge", "Nats-Scheduler", "s"),
			reason: waterclock.ReasonUnsupported, detail: "null value"},
		{name: "a wildcard for a target", rec: request(body, "Nats-Schedule", "@at 2009-11-10T23:00:00Z",
			"Nats-Schedule-Target", "ok.>"), reason: waterclock.ReasonBadTarget, detail: "Nats-Schedule-Target"},
		{name: "wrong case", rec: request(body, "Nats-Schedule-Ttl", "5m"), reason: waterclock.ReasonHeaderCase,
			detail: "write Nats-Schedule-TTL"},
		{name: "misspelt", rec: request(body, "Nats-Schedule-At", "x"), reason: waterclock.ReasonUnknownHeader},
		{name: "both languages", rec: request(body, append(at, "timer-at", "1893456000000")...),
			reason: waterclock.ReasonConflictingHeaders},
		{name: "both targets", rec: request(body, append(at, "timer-target-topic", "ok")...),
			reason: waterclock.ReasonConflictingHeaders, detail: "Nats-Schedule-Target"},
	})
}

// TestNATSRecurs: schedules of ADR-51 that recur.
func TestNATSRecurs(t *testing.T) {
	const second = 1000
	for _, c := range []struct {
		schedule, zone string
		want           timer.Recurrence
		reason         waterclock.Reason
	}{
		{"@every 5m", "", timer.Recurrence{Every: 300 * second}, ""},
		{"@every 1h30m", "", timer.Recurrence{Every: 5400 * second}, ""},
		{"@every 1500ms", "", timer.Recurrence{Every: 1500}, ""}, // there 2 s
		{"@hourly", "", timer.Recurrence{Cron: "@hourly"}, ""},
		{"@midnight", "UTC", timer.Recurrence{Cron: "@midnight", Zone: "UTC"}, ""},
		{"0 30 4 1,15 * 5", "", timer.Recurrence{Cron: "0 30 4 1,15 * 5"}, ""},
		{"* 0 5 * * mon-fri", "Europe/Amsterdam", timer.Recurrence{Cron: "* 0 5 * * mon-fri", Zone: "Europe/Amsterdam"},
			""},
		// There, stars without a step, anywhere in a list, decide which days are meant.
		{"0 0 9 */2 * *", "", timer.Recurrence{Cron: "0 0 9 */2 * *"}, ""},
		{"0 0 9 */1 * mon", "", timer.Recurrence{Cron: "0 0 9 */1 * mon"}, ""},
		{"0 0 9 1/2 * mon", "", timer.Recurrence{Cron: "0 0 9 1/2 * mon"}, ""},
		{"0 0 9 */2 * mon", "", timer.Recurrence{}, waterclock.ReasonUnsupported},
		{"0 0 9 1 * */2", "", timer.Recurrence{}, waterclock.ReasonUnsupported},
		{"0 0 9 */2 * */2", "", timer.Recurrence{}, waterclock.ReasonUnsupported},
		{"0 0 9 1,* * mon", "", timer.Recurrence{}, waterclock.ReasonUnsupported},
		// There the highest day of the week is Saturday; here it is the Sunday after it.
		{"0 0 9 * * 1/5", "", timer.Recurrence{Cron: "0 0 9 * * 1/5"}, ""},
		{"0 0 9 * * */3", "", timer.Recurrence{Cron: "0 0 9 * * */3"}, ""},
		{"0 0 9 * * 1-6/5", "", timer.Recurrence{Cron: "0 0 9 * * 1-6/5"}, ""},
		{"0 0 9 * * 1/3", "", timer.Recurrence{}, waterclock.ReasonUnsupported},
		{"0 0 9 * * 5,Mon/2", "", timer.Recurrence{}, waterclock.ReasonUnsupported},
		{"@every", "", timer.Recurrence{}, waterclock.ReasonBadCron},
		{"@every soon", "", timer.Recurrence{}, waterclock.ReasonBadInterval},
		{"@every 1ms", "", timer.Recurrence{}, waterclock.ReasonIntervalTooShort},
		{"@every 5m", "Europe/Amsterdam", timer.Recurrence{}, waterclock.ReasonConflictingHeaders},
		{"30 4 1,15 * 5", "", timer.Recurrence{}, waterclock.ReasonBadCron},
		{"TZ=UTC 0 30 4 1 * 5", "", timer.Recurrence{}, waterclock.ReasonBadCron},
		{"@fortnightly", "", timer.Recurrence{}, waterclock.ReasonBadCron},
		{"@hourly", "Local", timer.Recurrence{}, waterclock.ReasonUnknownZone},
		{"@hourly", "+02:00", timer.Recurrence{}, waterclock.ReasonUnknownZone},
	} {
		headers := []string{"Nats-Schedule", c.schedule, "Nats-Schedule-Target", "ok"}
		if c.zone != "" {
			headers = append(headers, "Nats-Schedule-Time-Zone", c.zone)
		}
		rules := testRules()
		rules.Dialect = NATS
		req, _, refusal := rules.Validate(request(body, headers...), now)
		switch {
		case c.reason != "" && (refusal == nil || refusal.Reason != string(c.reason)):
			t.Errorf("%s, %s: %+v, %+v, want %s", c.schedule, c.zone, req.Schedule, refusal, c.reason)
		case c.reason == "" && (refusal != nil || req.Schedule.Recurrence == nil):
			t.Errorf("%s, %s: %+v, %+v", c.schedule, c.zone, req.Schedule, refusal)
		case c.reason == "":
			if got := req.Schedule.Recurrence; got.Every != c.want.Every || got.Cron != c.want.Cron ||
				got.Zone != c.want.Zone || req.Schedule.Target.Topic != "ok" {
				t.Errorf("%s, %s: %+v", c.schedule, c.zone, got)
			}
		}
	}
}

// TestPulsar is the fields of Pulsar's REST and WebSocket APIs, and of the Java client's configuration map.
func TestPulsar(t *testing.T) {
	hear(t, Pulsar, []said{
		{name: "at", rec: request(body, "deliverAt", "1893456000000"),
			want: means(1_893_456_000_000, "ok-default", idKey, body)},
		{name: "at, past", rec: request(body, "deliverAt", "100000000000"),
			want: means(100_000_000_000, "ok-default", idKey, body)},
		{name: "after, in milliseconds", rec: request(body, "deliverAfterMs", "1500", "a", "b"),
			want: means(stamped+1500, "ok-default", idKey, body, "a", "b")},
		{name: "after, in seconds", rec: request(body, "deliverAfterSeconds", "3"),
			want: means(stamped+3000, "ok-default", idKey, body)},
		{name: "at once", rec: request(body), want: means(stamped, "ok-default", idKey, body)},
		{name: "our own words", rec: request(body, "timer-after", "2s", "timer-target-topic", "ok"),
			want: means(stamped+2000, "ok", idKey, body)},
		{name: "a cancel", rec: request(nil)},
		{name: "seconds for milliseconds", rec: request(body, "deliverAt", "1893456000"),
			reason: waterclock.ReasonSecondsNotMillis, detail: "deliverAt"},
		{name: "RFC 3339", rec: request(body, "deliverAt", "2030-01-01T00:00:00Z"), reason: waterclock.ReasonBadTime,
			detail: "deliverAt"},
		{name: "a unit", rec: request(body, "deliverAfterMs", "5s"), reason: waterclock.ReasonBadDuration,
			detail: "deliverAfterMs"},
		{name: "negative", rec: request(body, "deliverAfterSeconds", "-1"), reason: waterclock.ReasonBadDuration},
		{name: "too far", rec: request(body, "deliverAfterSeconds", strings.Repeat("9", 30)),
			reason: waterclock.ReasonBeyondHorizon},
		{name: "two of them", rec: request(body, "deliverAt", "1893456000000", "deliverAfterMs", "1"),
			reason: waterclock.ReasonConflictingHeaders},
		{name: "wrong case", rec: request(body, "deliverat", "1893456000000"), reason: waterclock.ReasonHeaderCase},
		{name: "both languages", rec: request(body, "deliverAt", "1893456000000", "timer-at", "1893456000000"),
			reason: waterclock.ReasonConflictingHeaders},
	})
}

// TestDialectsAreOff: without a dialect, headers of other schedulers are passed on.
func TestDialectsAreOff(t *testing.T) {
	hear(t, Plain, []said{
		{name: "passed on", rec: request(body, "timer-after", "2s", "x-delay", "5", "scheduler-epoch", "7",
			"Nats-Schedule", "@hourly", "deliverAt", "1"),
			want: means(stamped+2000, "ok-default", idKey, body, "x-delay", "5", "scheduler-epoch", "7",
				"Nats-Schedule", "@hourly", "deliverAt", "1")},
		{name: "no due time", rec: request(body, "scheduler-epoch", "1893456000"), reason: waterclock.ReasonNoDueTime},
	})
}

// FuzzDialects: no input makes a dialect panic, change the record, or translate the same record differently.
func FuzzDialects(f *testing.F) {
	f.Add(uint8(1), avroSchedule(5, "ok", []byte("k"), body, []string{"a", "b"}), "scheduler-epoch", []byte("7"),
		"timer-at", []byte("1"))
	f.Add(uint8(4), []byte(nil), "Nats-Schedule", []byte("@at 2009-11-10T23:00:00Z"), "Nats-Schedule-Target",
		[]byte("ok"))
	f.Add(uint8(2), []byte(`{"time":1,"topic":"ok","key":"aw==","headers":{"x":""}}`), "x-delay", []byte("-1"),
		"deliverAt", []byte("0"))
	f.Add(uint8(1), []byte{2, 4, 'o', 'k', 2, 'k', 0, 1, 8, 2, 'a', 2, 'z', 0}, "", []byte{}, "", []byte{})
	all := Dialects()
	f.Fuzz(func(t *testing.T, which uint8, value []byte, name1 string, value1 []byte, name2 string, value2 []byte) {
		rules := testRules()
		rules.Dialect = all[int(which)%len(all)]
		build := func() *kgo.Record {
			return &kgo.Record{
				Topic: "timers", Key: []byte("id"), Value: bytes.Clone(value), Timestamp: time.UnixMilli(stamped),
				Offset: 42,
				Headers: []kgo.RecordHeader{{Key: name1, Value: bytes.Clone(value1)},
					{Key: name2, Value: bytes.Clone(value2)}},
			}
		}
		rec := build()
		first, _, why := rules.Validate(rec, now)
		if !reflect.DeepEqual(rec, build()) {
			t.Fatalf("the record is %+v, was %+v", rec, build())
		}
		again, _, whyAgain := rules.Validate(rec, now)
		if !reflect.DeepEqual(first, again) || !reflect.DeepEqual(why, whyAgain) {
			t.Fatalf("validated %+v, %+v, then %+v, %+v", first, why, again, whyAgain)
		}
	})
}
