package intake

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// now and stamped are the instants of the tests, Unix milliseconds.
const (
	now     = 1_700_000_000_000
	stamped = now - 500
)

// testRules lets requests write to topics whose names begin with "ok".
func testRules() *Rules {
	r := &Rules{
		Topic:      "timers",
		Partitions: 8,
		Allow:      func(topic string) bool { return strings.HasPrefix(topic, "ok") },
		Limits:     DefaultLimits(),
	}
	r.schedules.Calendars = calendars{"weekend": `{"weekly": ["sat", "sun"]}`, "always": `{"weekly": ["0-6"]}`}
	return r
}

// calendars are rules by name.
type calendars map[string]string

func (c calendars) Calendar(name string) (*calendar.Exclusion, int64) {
	e, _ := calendar.ParseRules([]byte(c[name]))
	return e, 0
}

// request builds a record from a value and pairs of header name and value.
func request(value []byte, headers ...string) *kgo.Record {
	rec := &kgo.Record{Key: []byte("id"), Value: value, Offset: 42, Timestamp: time.UnixMilli(stamped)}
	for i := 0; i < len(headers); i += 2 {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return rec
}

func with(rec *kgo.Record, change func(*kgo.Record)) *kgo.Record {
	change(rec)
	return rec
}

func nullHeader(name string) func(*kgo.Record) {
	return func(r *kgo.Record) { r.Headers = append(r.Headers, kgo.RecordHeader{Key: name}) }
}

func TestValidateAccepts(t *testing.T) {
	payload := []byte("payload")
	// plain is the timer of the smallest request; each case changes it.
	plain := func(change func(*timer.Timer)) *timer.Timer {
		tm := &timer.Timer{
			ID: []byte("id"), Offset: 42, Due: now, Occurrence: 1,
			Target: timer.Target{Topic: "ok", Partition: timer.AnyPartition, Key: []byte("id")},
			Value:  payload,
		}
		if change != nil {
			change(tm)
		}
		return tm
	}
	at := []string{"timer-at", "1700000000000", "timer-target-topic", "ok"}
	tests := []struct {
		name string
		rec  *kgo.Record
		want *timer.Timer // nil: a cancel
	}{
		{"at, Unix milliseconds", request(payload, at...), plain(nil)},
		{"at, RFC 3339", request(payload, "timer-at", "2023-11-14T23:13:20+01:00", "timer-target-topic", "ok"),
			plain(nil)},
		{"after", request(payload, "timer-after", "90s", "timer-target-topic", "ok"),
			plain(func(t *timer.Timer) { t.Due = stamped + 90_000 })},
		{"after nothing", request(payload, "timer-after", "0s", "timer-target-topic", "ok"),
			plain(func(t *timer.Timer) { t.Due = stamped })},
		{"long past due", request(payload, "timer-at", "1969-12-31T23:59:59Z", "timer-target-topic", "ok"),
			plain(func(t *timer.Timer) { t.Due = -1000 })},
		{"at the horizon", request(payload, "timer-at", "4855760000000", "timer-target-topic", "ok"),
			plain(func(t *timer.Timer) { t.Due = 4_855_760_000_000 })},
		{"null value with a due time: a tombstone", request(nil, at...),
			plain(func(t *timer.Timer) { t.Value = nil })},
		{"empty value", request([]byte{}, at...), plain(func(t *timer.Timer) { t.Value = []byte{} })},
		{"target key", request(payload, append(at, "timer-target-key", "\xff\x00")...),
			plain(func(t *timer.Timer) { t.Target.Key = []byte("\xff\x00") })},
		{"empty target key", request(payload, append(at, "timer-target-key", "")...),
			plain(func(t *timer.Timer) { t.Target.Key = []byte{} })},
		{"null target key by a null header", with(request(payload, at...), nullHeader("timer-target-key")),
			plain(func(t *timer.Timer) { t.Target.Key = nil })},
		{"null target key by name", request(payload, append(at, "timer-target-key-null", "true")...),
			plain(func(t *timer.Timer) { t.Target.Key = nil })},
		{"null target key twice over", with(request(payload, append(at, "timer-target-key-null", "true")...),
			nullHeader("timer-target-key")),
			plain(func(t *timer.Timer) { t.Target.Key = nil })},
		{"target partition 0", request(payload, append(at, "timer-target-partition", "0")...),
			plain(func(t *timer.Timer) { t.Target.Partition = 0 })},
		{"largest target partition", request(payload, append(at, "timer-target-partition", "2147483647")...),
			plain(func(t *timer.Timer) { t.Target.Partition = 1<<31 - 1 })},
		{"headers in order, twice and null",
			with(request(payload, append([]string{"b", "1", "a", "2", "", "3", "b", "1", "tim", "4", "x-timer-at", "5"},
				at...)...), nullHeader("n")),
			plain(func(t *timer.Timer) {
				t.Headers = []timer.Header{
					{Key: "b", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "", Value: []byte("3")},
					{Key: "b", Value: []byte("1")}, {Key: "tim", Value: []byte("4")},
					{Key: "x-timer-at", Value: []byte("5")},
					{Key: "n"},
				}
			})},
		{"own headers dropped, others' look-alikes kept",
			request(payload,
				append([]string{"waterclock-id", "x", "waterclock-", "y", "Waterclock-id", "z", "water", "w"},
					at...)...),
			plain(func(t *timer.Timer) {
				t.Headers = []timer.Header{{Key: "Waterclock-id", Value: []byte("z")},
					{Key: "water", Value: []byte("w")}}
			})},
		{"own headers are not counted",
			request(payload, append(at, strings.Split(strings.Repeat("waterclock-a,b,", 200), ",")[:400]...)...),
			plain(nil)},
		{"as many headers as may be",
			request(payload, append(at, strings.Split(strings.Repeat("a,b,", 126), ",")[:252]...)...),
			plain(func(t *timer.Timer) {
				for range 126 {
					t.Headers = append(t.Headers, timer.Header{Key: "a", Value: []byte("b")})
				}
			})},
		{"longest ID", with(request(payload, at...), func(r *kgo.Record) { r.Key = bytes.Repeat([]byte("k"), 512) }),
			plain(func(t *timer.Timer) { t.ID = bytes.Repeat([]byte("k"), 512); t.Target.Key = t.ID })},
		{"no timestamp, not needed",
			with(request(payload, at...), func(r *kgo.Record) { r.Timestamp = time.UnixMilli(-1) }), plain(nil)},
		{"on another partition, nobody looks", with(request(payload, at...), func(r *kgo.Record) { r.Partition = 7 }),
			plain(nil)},

		{"cancel: null and nothing else", request(nil), nil},
		{"cancel: null with other headers", request(nil, "trace", "1", "waterclock-id", "x"), nil},
		{"cancel by header, null value", request(nil, "timer-cancel", "true"), nil},
		{"cancel by header, any value", request(payload, "timer-cancel", "true"), nil},
		{"cancel whose target is not looked at", request(payload, "timer-cancel", "true", "timer-target-topic",
			"forbidden"), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, misplaced, refusal := testRules().Validate(tt.rec, now)
			if refusal != nil || misplaced {
				t.Fatalf("refusal %+v, misplaced %v", refusal, misplaced)
			}
			want := timer.Request{ID: tt.rec.Key, Offset: 42, Schedule: tt.want}
			if !reflect.DeepEqual(req, want) {
				t.Errorf("\n got %+v %+v\nwant %+v %+v", req, req.Schedule, want, want.Schedule)
			}
		})
	}
}

// The effect of a request that steers, its time, and its condition.
func TestValidateSteers(t *testing.T) {
	at := []string{"timer-at", "1700000000000", "timer-target-topic", "ok"}
	due := &timer.Timer{
		ID: []byte("id"), Offset: 42, Due: now, Occurrence: 1,
		Target: timer.Target{Topic: "ok", Partition: timer.AnyPartition, Key: []byte("id")}, Value: []byte("v"),
	}
	generation := func(n int64) timer.Condition { return timer.Condition{Kind: timer.IfGeneration, Generation: n} }
	tests := []struct {
		name string
		rec  *kgo.Record
		want timer.Request
	}{
		{"trigger", request(nil, "timer-trigger", "true"), timer.Request{Steer: timer.Trigger, At: stamped}},
		{"trigger, any value, nothing else looked at", request([]byte("v"), "timer-trigger", "true",
			"timer-target-topic", "forbidden", "timer-count", "x", "a", "b"),
			timer.Request{Steer: timer.Trigger, At: stamped}},
		{"trigger without a timestamp",
			with(request(nil, "timer-trigger", "true"), func(r *kgo.Record) { r.Timestamp = time.UnixMilli(-1) }),
			timer.Request{Steer: timer.Trigger, At: now}},
		{"trigger by a clock that is ahead",
			with(request(nil, "timer-trigger", "true"), func(r *kgo.Record) { r.Timestamp = time.UnixMilli(now + 1) }),
			timer.Request{Steer: timer.Trigger, At: now}},
		{"pause", request(nil, "timer-pause", "true"), timer.Request{Steer: timer.Pause, At: now}},
		{"resume", request(nil, "timer-resume", "true"), timer.Request{Steer: timer.Resume, At: now}},
		{"move", request(nil, "timer-move", "true", "timer-at", "1700000000000"),
			timer.Request{Steer: timer.Move, At: 1_700_000_000_000}},
		{"move, an empty value and a trace", request([]byte{}, "timer-move", "true", "timer-after", "2s", "traceparent",
			"00-1-2-00", "waterclock-id", "x"), timer.Request{Steer: timer.Move, At: stamped + 2000}},
		{"move if", request(nil, "timer-move", "true", "timer-after", "0s", "timer-if", "timers/0/17"),
			timer.Request{Steer: timer.Move, At: stamped, If: generation(17)}},
		{"trigger if present", request(nil, "timer-trigger", "true", "timer-if", "present"),
			timer.Request{Steer: timer.Trigger, At: stamped, If: timer.Condition{Kind: timer.IfPresent}}},
		{"cancel if", request(nil, "timer-cancel", "true", "timer-if", "timers/0/17"),
			timer.Request{If: generation(17)}},
		{"cancel if it was moved here", request(nil, "timer-cancel", "true", "timer-if",
			"timers.waterclock.changelog/0/17"), timer.Request{If: generation(timer.MovedBy(17))}},
		{"pause if it is on another partition", request(nil, "timer-pause", "true", "timer-if", "timers/1/17"),
			timer.Request{Steer: timer.Pause, At: now, If: timer.Condition{Kind: timer.IfElsewhere}}},
		{"resume if it is of another topic", request(nil, "timer-resume", "true", "timer-if", "others/0/17"),
			timer.Request{Steer: timer.Resume, At: now, If: timer.Condition{Kind: timer.IfElsewhere}}},
		{"schedule if absent", request([]byte("v"), append(at, "timer-if", "absent")...),
			timer.Request{Schedule: due, If: timer.Condition{Kind: timer.IfAbsent}}},
		{"schedule if", request([]byte("v"), append(at, "timer-if", "timers/0/0")...),
			timer.Request{Schedule: due, If: generation(0)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := testRules()
			r.Changelog = "timers.waterclock.changelog"
			req, _, refusal := r.Validate(tt.rec, now)
			tt.want.ID, tt.want.Offset = tt.rec.Key, 42
			if refusal != nil || !reflect.DeepEqual(req, tt.want) {
				t.Errorf("\n got %+v %+v\nwant %+v", req, refusal, tt.want)
			}
		})
	}
}

func TestValidateRefuses(t *testing.T) {
	v := []byte("payload")
	at := []string{"timer-at", "1700000000000"}
	target := []string{"timer-target-topic", "ok"}
	full := append(at[:2:2], target...)
	tests := []struct {
		name string
		rec  *kgo.Record
		want waterclock.Reason
		says string
	}{
		{"no key", with(request(v, full...), func(r *kgo.Record) { r.Key = nil }), waterclock.ReasonBadKey,
			"has no key"},
		{"empty key", with(request(v, full...), func(r *kgo.Record) { r.Key = []byte{} }), waterclock.ReasonBadKey,
			"has no key"},
		{"long key", with(request(v, full...), func(r *kgo.Record) { r.Key = make([]byte, 513) }),
			waterclock.ReasonBadKey, "513 bytes"},
		{"cancel without a key", with(request(nil), func(r *kgo.Record) { r.Key = nil }), waterclock.ReasonBadKey,
			"has no key"},

		{"129 headers", request(v, append(full[:4:4], strings.Split(strings.Repeat("a,b,", 127), ",")[:254]...)...),
			waterclock.ReasonTooManyHeaders, "128"},
		{"129 headers on a cancel", request(nil, strings.Split(strings.Repeat("a,b,", 129), ",")[:258]...),
			waterclock.ReasonTooManyHeaders, "128"},
		{"large header", request(v, append(full[:4:4], "a", strings.Repeat("x", 65536))...),
			waterclock.ReasonHeadersTooLarge, "65536"},
		{"large name", request(v, append(full[:4:4], strings.Repeat("x", 65536), "")...),
			waterclock.ReasonHeadersTooLarge, "65536"},
		{"large target key", request(v, append(full[:4:4], "timer-target-key", strings.Repeat("x", 65536))...),
			waterclock.ReasonHeadersTooLarge, "65536"},

		{"upper case", request(v, append(target[:2:2], "Timer-At", "1700000000000")...), waterclock.ReasonHeaderCase,
			"write timer-at"},
		{"shouted", request(v, append(target[:2:2], "TIMER-MAX-LATE", "1s")...), waterclock.ReasonHeaderCase,
			"write timer-max-late"},
		{"half upper case on a null value", request(nil, "timer-Cancel", "true"), waterclock.ReasonHeaderCase,
			"write timer-cancel"},
		{"misspelt", request(v, append(full[:4:4], "timer-targettopic", "x")...), waterclock.ReasonUnknownHeader,
			`"timer-targettopic"`},
		{"prefix alone", request(nil, "timer-", "x"), waterclock.ReasonUnknownHeader, `"timer-"`},
		{"misspelt in upper case", request(v, "TIMER-ATT", "x"), waterclock.ReasonUnknownHeader, `"TIMER-ATT"`},
		{"at twice", request(v, append(full[:4:4], at...)...), waterclock.ReasonDuplicateHeader, "timer-at"},
		{"null key header twice", with(with(request(v, full...), nullHeader("timer-target-key")),
			nullHeader("timer-target-key")), waterclock.ReasonDuplicateHeader, "timer-target-key"},
		{"at no text", request(v, "timer-at", "\xff"), waterclock.ReasonNotUTF8, "timer-at"},
		{"target no text", request(v, "timer-target-topic", "ok\x80"), waterclock.ReasonNotUTF8, "timer-target-topic"},

		{"at and after", request(v, append(full[:4:4], "timer-after", "1s")...), waterclock.ReasonConflictingHeaders,
			"timer-after"},
		{"at and cancel", request(v, append(full[:4:4], "timer-cancel", "true")...),
			waterclock.ReasonConflictingHeaders, "timer-cancel"},
		{"after and cancel", request(nil, "timer-after", "1s", "timer-cancel", "true"),
			waterclock.ReasonConflictingHeaders, "timer-cancel"},
		{"key and null key", request(v, append(full[:4:4], "timer-target-key", "", "timer-target-key-null", "true")...),
			waterclock.ReasonConflictingHeaders, "timer-target-key-null"},
		{"cancel: false", request(v, append(full[:4:4], "timer-cancel", "false")...),
			waterclock.ReasonBadCancel, `"false"`},
		{"cancel: True", request(nil, "timer-cancel", "True"), waterclock.ReasonBadCancel, `"True"`},
		{"cancel: null", with(request(nil), nullHeader("timer-cancel")), waterclock.ReasonBadCancel, `""`},
		{"key-null: false", request(v, append(full[:4:4], "timer-target-key-null", "false")...),
			waterclock.ReasonBadTargetKeyNull, `"false"`},

		{"trigger: 1", request(v, "timer-trigger", "1"), waterclock.ReasonBadTrigger, `"1"`},
		{"pause: yes, null value", request(nil, "timer-pause", "yes"), waterclock.ReasonBadPause, `"yes"`},
		{"resume: null", with(request(v), nullHeader("timer-resume")), waterclock.ReasonBadResume, `""`},
		{"cancel and trigger", request(nil, "timer-trigger", "true", "timer-cancel", "true"),
			waterclock.ReasonTwoActions, "timer-cancel comes together with timer-trigger"},
		{"pause and resume", request(nil, "timer-resume", "true", "timer-pause", "true"), waterclock.ReasonTwoActions,
			"timer-pause comes together with timer-resume"},
		{"trigger and pause with a due time",
			request(v, append(full[:4:4], "timer-pause", "true", "timer-trigger", "true")...),
			waterclock.ReasonTwoActions, "timer-trigger"},
		{"at and trigger", request(v, append(full[:4:4], "timer-trigger", "true")...), waterclock.ReasonSteeringDueTime,
			"timer-trigger"},
		{"after and pause", request(v, "timer-after", "1s", "timer-pause", "true"), waterclock.ReasonSteeringDueTime,
			"timer-pause"},
		{"cron and resume", request(v, "timer-cron", "@daily", "timer-resume", "true"),
			waterclock.ReasonSteeringDueTime, "timer-resume"},
		{"move: yes", request(nil, "timer-move", "yes", "timer-after", "1s"), waterclock.ReasonBadMove, `"yes"`},
		{"move and cancel", request(nil, "timer-move", "true", "timer-cancel", "true"), waterclock.ReasonTwoActions,
			"timer-cancel comes together with timer-move"},
		{"move with a target", request(nil, append(full[:4:4], "timer-move", "true")...), waterclock.ReasonBadMove,
			"timer-target-topic comes together with timer-move"},
		{"move with a key", request(nil, append(at[:2:2], "timer-move", "true", "timer-target-key", "k")...),
			waterclock.ReasonBadMove, "timer-target-key comes"},
		{"move with a recurrence", request(nil, "timer-move", "true", "timer-every", "1s"), waterclock.ReasonBadMove,
			"timer-every comes"},
		{"move with a header", request(nil, append(at[:2:2], "timer-move", "true", "a", "b")...),
			waterclock.ReasonBadMove, `the header "a" comes`},
		{"move with a value", request(v, append(at[:2:2], "timer-move", "true")...), waterclock.ReasonBadMove,
			"7 bytes"},
		{"move to no time", request(nil, "timer-move", "true"), waterclock.ReasonNoDueTime, "leave out timer-move"},
		{"move to two times", request(nil, append(at[:2:2], "timer-move", "true", "timer-after", "1s")...),
			waterclock.ReasonConflictingHeaders, "timer-after"},
		{"move far", request(nil, "timer-move", "true", "timer-at", "9999-01-01T00:00:00Z"),
			waterclock.ReasonBeyondHorizon, "choose an earlier"},
		{"move if changed", request(nil, "timer-move", "true", "timer-after", "1s", "timer-if", "changed"),
			waterclock.ReasonBadIf, "does not schedule"},
		{"if: empty", request(v, append(full[:4:4], "timer-if", "")...), waterclock.ReasonBadIf, `""`},
		{"if: null", with(request(v, full...), nullHeader("timer-if")), waterclock.ReasonBadIf, `""`},
		{"if: Absent", request(nil, "timer-cancel", "true", "timer-if", "Absent"), waterclock.ReasonBadIf, `"Absent"`},
		{"if: an offset", request(nil, "timer-pause", "true", "timer-if", "17"), waterclock.ReasonBadIf, "timers/0/42"},
		{"if: an offset with a sign", request(nil, "timer-pause", "true", "timer-if", "timers/0/+1"),
			waterclock.ReasonBadIf, "timers/0/+1"},
		{"if: below zero", request(nil, "timer-pause", "true", "timer-if", "timers/0/-1"), waterclock.ReasonBadIf,
			"timers/0/-1"},
		{"if: twice", request(v, append(full[:4:4], "timer-if", "absent", "timer-if", "absent")...),
			waterclock.ReasonDuplicateHeader, "timer-if"},
		{"if alone on a null value", request(nil, "timer-if", "present"), waterclock.ReasonNoDueTime,
			"timer-cancel: true"},
		{"trigger in upper case", request(nil, "Timer-Trigger", "true"), waterclock.ReasonHeaderCase,
			"write timer-trigger"},

		{"nothing says when", request(v), waterclock.ReasonNoDueTime, "timer-at"},
		{"null value with a target", request(nil, target...), waterclock.ReasonNoDueTime, "timer-at"},
		{"at: empty", request(v, append(target[:2:2], "timer-at", "")...), waterclock.ReasonBadTime, `""`},
		{"at: null", with(request(v, target...), nullHeader("timer-at")), waterclock.ReasonBadTime, `""`},
		{"at: words", request(v, append(target[:2:2], "timer-at", "tomorrow")...), waterclock.ReasonBadTime,
			`"tomorrow"`},
		{"at: no zone", request(v, append(target[:2:2], "timer-at", "2026-03-01T09:00:00")...),
			waterclock.ReasonBadTime, "no zone"},
		{"at: seconds", request(v, append(target[:2:2], "timer-at", "1700000000")...),
			waterclock.ReasonSecondsNotMillis, "milliseconds"},
		{"at: largest seconds", request(v, append(target[:2:2], "timer-at", "99999999999")...),
			waterclock.ReasonSecondsNotMillis, "milliseconds"},
		{"after: bare", request(v, append(target[:2:2], "timer-after", "90")...), waterclock.ReasonBadDuration,
			"bare number"},
		{"after: a month", request(v, append(target[:2:2], "timer-after", "P1M")...),
			waterclock.ReasonBadDuration, "months"},
		{"after: null", with(request(v, target...), nullHeader("timer-after")), waterclock.ReasonBadDuration, "empty"},
		{"after without a timestamp", with(request(v, append(target[:2:2], "timer-after", "1s")...),
			func(r *kgo.Record) { r.Timestamp = time.UnixMilli(-1) }), waterclock.ReasonNoTimestamp, "-1"},
		{"at behind the horizon", request(v, append(target[:2:2], "timer-at", "4855760000001")...),
			waterclock.ReasonBeyondHorizon, "36525d"},
		{"at nanoseconds", request(v, append(target[:2:2], "timer-at", "1700000000000000000")...),
			waterclock.ReasonBadTime, "nanoseconds: send milliseconds, 1700000000000."},
		{"after forever", request(v, append(target[:2:2], "timer-after", strings.Repeat("9", 400)+"d")...),
			waterclock.ReasonBeyondHorizon, "after the year 9999"},
		{"after a forged timestamp", with(request(v, append(target[:2:2], "timer-after", "1s")...),
			func(r *kgo.Record) { r.Timestamp = time.UnixMilli(1<<63 - 1) }), waterclock.ReasonBeyondHorizon,
			"after the year 9999"},

		{"no target", request(v, at...), waterclock.ReasonNoTarget, "timers has no default target"},
		{"empty target", request(v, append(at[:2:2], "timer-target-topic", "")...), waterclock.ReasonBadTarget, `""`},
		{"null target", with(request(v, at...), nullHeader("timer-target-topic")), waterclock.ReasonBadTarget, `""`},
		{"target with a slash", request(v, append(at[:2:2], "timer-target-topic", "ok/1")...),
			waterclock.ReasonBadTarget, `"ok/1"`},
		{"target of dots", request(v, append(at[:2:2], "timer-target-topic", "..")...),
			waterclock.ReasonBadTarget, `".."`},
		{"long target", request(v, append(at[:2:2], "timer-target-topic", "ok"+strings.Repeat("x", 248))...),
			waterclock.ReasonBadTarget, "(250 bytes)"},
		{"target not allowed", request(v, append(at[:2:2], "timer-target-topic", "forbidden")...),
			waterclock.ReasonTargetNotAllowed, "forbidden"},
		{"internal target", request(v, append(at[:2:2], "timer-target-topic", "__consumer_offsets")...),
			waterclock.ReasonTargetNotAllowed, "__consumer_offsets"},
		{"negative partition", request(v, append(full[:4:4], "timer-target-partition", "-1")...),
			waterclock.ReasonBadPartition, `"-1"`},
		{"partition of 33 bits", request(v, append(full[:4:4], "timer-target-partition", "2147483648")...),
			waterclock.ReasonBadPartition, `"2147483648"`},
		{"partition in words", request(v, append(full[:4:4], "timer-target-partition", "one")...),
			waterclock.ReasonBadPartition, `"one"`},
		{"partition null", with(request(v, full...), nullHeader("timer-target-partition")),
			waterclock.ReasonBadPartition, `""`},
	}
	reached := map[waterclock.Reason]bool{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := testRules()
			for range 2 { // the second time, the target's verdict is remembered
				req, _, refusal := r.Validate(tt.rec, now)
				if refusal == nil {
					t.Fatalf("accepted: %+v", req.Schedule)
				}
				if refusal.Reason != string(tt.want) || !strings.Contains(refusal.Detail, tt.says) {
					t.Errorf("got %s: %s\nwant %s with %q", refusal.Reason, refusal.Detail, tt.want, tt.says)
				}
				if req.Schedule != nil || req.Offset != 42 {
					t.Errorf("request behind a refusal: %+v", req)
				}
			}
		})
		reached[tt.want] = true
	}
	elsewhere := []waterclock.Reason{
		waterclock.ReasonValueTooLarge, waterclock.ReasonBatchTooLarge, waterclock.ReasonBatchUnreadable,
		waterclock.ReasonWrongPartition, waterclock.ReasonBadValue,
		waterclock.ReasonOverQuota, waterclock.ReasonUnsupported, waterclock.ReasonBadAttempt,
		waterclock.ReasonNoEffect,
		waterclock.ReasonMovedMeanwhile,
	} // tests of their own
	for _, reason := range elsewhere {
		reached[reason] = true
	}
	for _, tt := range badRecurrences() {
		reached[tt.want] = true
	}
	for _, reason := range waterclock.Reasons() {
		if !strings.HasPrefix(string(reason), "target-") && !reached[reason] {
			t.Errorf("no case is refused for %s", reason)
		}
	}
}

func TestValidateInternalTargetAllowedByMistake(t *testing.T) {
	r := testRules()
	r.Allow = func(string) bool { return true }
	_, _, refusal := r.Validate(request(nil, "timer-at", "1700000000000", "timer-target-topic", "__x"), now)
	if refusal == nil || refusal.Reason != string(waterclock.ReasonTargetNotAllowed) {
		t.Errorf("got %+v", refusal)
	}
	if strings.Contains(refusal.Detail, "add it") {
		t.Errorf("advises what cannot help: %s", refusal.Detail)
	}
	r = testRules()
	r.Allow = nil
	_, _, refusal = r.Validate(request(nil, "timer-at", "1700000000000", "timer-target-topic", "ok"), now)
	if refusal == nil || refusal.Reason != string(waterclock.ReasonTargetNotAllowed) {
		t.Errorf("without a list: %+v", refusal)
	}
}

// TestValidateTargetThatNeverCanBe: the message does not suggest the list of targets if that would
// not help.
func TestValidateTargetThatNeverCanBe(t *testing.T) {
	r := testRules()
	r.Never = func(topic string) string {
		if topic == "okbutown" {
			return "it is ours"
		}
		return ""
	}
	to := func(topic string) *timer.Refusal {
		_, _, refusal := r.Validate(request(nil, "timer-at", "1700000000000", "timer-target-topic", topic), now)
		return refusal
	}
	if got := to("okbutown"); got == nil || got.Reason != string(waterclock.ReasonTargetNotAllowed) ||
		got.Detail != "no timer may write to okbutown: it is ours; choose another target." {
		t.Errorf("got %+v", got)
	}
	if got := to("ok"); got != nil {
		t.Errorf("got %+v", got)
	}
	if got := to("other"); got == nil || !strings.Contains(got.Detail, "add it to the targets") {
		t.Errorf("got %+v", got)
	}
}

func TestValidateDefaultTarget(t *testing.T) {
	r := testRules()
	r.DefaultTarget = "ok.default"
	req, _, refusal := r.Validate(request(nil, "timer-at", "1700000000000"), now)
	if refusal != nil || req.Schedule.Target.Topic != "ok.default" {
		t.Errorf("got %+v, %+v", req.Schedule, refusal)
	}
	req, _, refusal = r.Validate(request(nil, "timer-at", "1700000000000", "timer-target-topic", "ok"), now)
	if refusal != nil || req.Schedule.Target.Topic != "ok" {
		t.Errorf("with a header: got %+v, %+v", req.Schedule, refusal)
	}
	r = testRules()
	r.DefaultTarget = "forbidden"
	if _, _, refusal = r.Validate(request(nil, "timer-at", "1700000000000"), now); refusal == nil ||
		refusal.Reason != string(waterclock.ReasonTargetNotAllowed) {
		t.Errorf("a default that is not allowed: %+v", refusal)
	}
}

func TestValidateLimitsLowered(t *testing.T) {
	r := testRules()
	r.Limits = Limits{Horizon: time.Hour, Headers: 3, HeaderBytes: 100, ValueBytes: 4}
	base := []string{"timer-after", "1h", "timer-target-topic", "ok"}
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	tests := []struct {
		name string
		rec  *kgo.Record
		want waterclock.Reason
	}{
		{"fits", request([]byte("1234"), base...), ""},
		{"value", request([]byte("12345"), base...), waterclock.ReasonValueTooLarge},
		{"value of a cancel is not looked at", request([]byte("12345"), "timer-cancel", "true"), ""},
		{"headers", request(nil, append(base[:4:4], "a", "", "b", "")...), waterclock.ReasonTooManyHeaders},
		{"header bytes", request(nil, append(base[:4:4], "a", strings.Repeat("x", 100))...),
			waterclock.ReasonHeadersTooLarge},
		{"a trace does not count",
			request(nil, append(base[:4:4], "a", strings.Repeat("x", 50), "traceparent", parent)...), ""},
		{"nor does its state", request(nil, append(base[:4:4], "a", strings.Repeat("x", 50), "traceparent", parent,
			"tracestate", strings.Repeat("x", 512))...), ""},
		{"a second state does", request(nil, append(base[:4:4], "a", "", "tracestate", "", "tracestate", "")...),
			waterclock.ReasonTooManyHeaders},
		{"a long state does", request(nil, append(base[:4:4], "tracestate", strings.Repeat("x", 513))...),
			waterclock.ReasonHeadersTooLarge},
		{"a second one does",
			request(nil, append(base[:4:4], "a", "", "traceparent", parent, "traceparent", parent)...),
			waterclock.ReasonTooManyHeaders},
		{"a longer one does", request(nil, append(base[:4:4], "traceparent", parent+"-more")...),
			waterclock.ReasonHeadersTooLarge},
		{"horizon", request(nil, "timer-after", "1h0.501s", "timer-target-topic", "ok"),
			waterclock.ReasonBeyondHorizon},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got waterclock.Reason
			if _, _, refusal := r.Validate(tt.rec, now); refusal != nil {
				got = waterclock.Reason(refusal.Reason)
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestValidatePartitionerCheck(t *testing.T) {
	right := Murmur2Partition([]byte("id"), 8)
	tests := []struct {
		check     PartitionerCheck
		partition int32
		misplaced bool
		want      waterclock.Reason
	}{
		{Off, right, false, ""},
		{Off, right ^ 1, false, ""},
		{Warn, right, false, ""},
		{Warn, right ^ 1, true, ""},
		{DeadLetter, right, false, ""},
		{DeadLetter, right ^ 1, true, waterclock.ReasonWrongPartition},
	}
	for _, tt := range tests {
		r := testRules()
		r.PartitionerCheck = tt.check
		rec := request(nil) // a cancel is checked too: it would miss its timer
		rec.Partition = tt.partition
		_, misplaced, refusal := r.Validate(rec, now)
		var got waterclock.Reason
		if refusal != nil {
			got = waterclock.Reason(refusal.Reason)
		}
		if misplaced != tt.misplaced || got != tt.want {
			t.Errorf("%+v: got %v, %q", tt, misplaced, got)
		}
	}
}

// TestValidateRecordBytes: a request that fits only when compressed is refused, a cancel is not.
func TestValidateRecordBytes(t *testing.T) {
	headers := []string{"timer-after", "1h", "timer-target-topic", "ok", "waterclock-x", "y"}
	rec := request([]byte("value"), headers...)
	size := len(rec.Key) + len(rec.Value) + len(strings.Join(headers, ""))
	for limit, want := range map[int]waterclock.Reason{0: "", size: "", size - 1: waterclock.ReasonValueTooLarge} {
		r := testRules()
		r.Limits.RecordBytes = limit
		var got waterclock.Reason
		if _, _, refusal := r.Validate(rec, now); refusal != nil {
			got = waterclock.Reason(refusal.Reason)
		}
		if got != want {
			t.Errorf("%d bytes under a limit of %d: got %q, want %q", size, limit, got, want)
		}
		if _, _, refusal := r.Validate(request(make([]byte, size), "timer-cancel", "true"), now); refusal != nil {
			t.Errorf("a cancel under a limit of %d: %+v", limit, refusal)
		}
	}
}

// TestValidateRemembersTargets: each topic is checked once, up to the limit.
func TestValidateRemembersTargets(t *testing.T) {
	asked := 0
	r := testRules()
	r.Allow = func(string) bool { asked++; return true }
	validate := func(topic string) {
		if _, _, refusal := r.Validate(request(nil, "timer-after", "1s", "timer-target-topic", topic),
			now); refusal != nil {
			t.Fatal(refusal)
		}
	}
	for range 3 {
		validate("a")
		validate("b")
	}
	if asked != 2 {
		t.Errorf("asked %d times for two topics", asked)
	}
	for i := range 2 * maxTargets {
		validate(strings.Repeat("x", i%200+1) + strings.Repeat("y", i/200))
	}
	if got := len(*r.targets.known.Load()); got != maxTargets {
		t.Errorf("remembers %d topics, want %d", got, maxTargets)
	}
}

// TestValidateAllocations: only the timer is allocated, and the list of headers if any are kept.
func TestValidateAllocations(t *testing.T) {
	r := testRules()
	r.PartitionerCheck, r.DefaultTarget = Warn, "ok.a.target.that.is.longer.than.thirty-two.bytes"
	tests := []struct {
		name string
		rec  *kgo.Record
		want float64
	}{
		{"cancel", request(nil), 0},
		{"no header kept", request(nil, "timer-at", "1700000000000", "timer-target-topic",
			"ok.another.that.is.longer.than.thirty-two.bytes", "waterclock-id", "x"), 1},
		{"default target", request(nil, "timer-after", "1h30m"), 1},
		{"RFC 3339", request(nil, "timer-at", "2023-11-14T23:13:20.5+01:00"), 1},
		{"three headers kept", request(nil, "timer-after", "PT5S", "a", "1", "b", "2", "c", "3"), 2},
	}
	for _, tt := range tests {
		got := testing.AllocsPerRun(100, func() {
			if _, _, refusal := r.Validate(tt.rec, now); refusal != nil {
				t.Fatal(refusal)
			}
		})
		if got != tt.want {
			t.Errorf("%s: %v allocations, want %v", tt.name, got, tt.want)
		}
	}
}

// checkValidated checks the invariants of every record, valid or not.
func checkValidated(t interface{ Fatalf(string, ...any) }, rec *kgo.Record) {
	r := testRules()
	r.PartitionerCheck = Warn
	req, misplaced, refusal := r.Validate(rec, now)
	again, _, refusalAgain := r.Validate(rec, now)
	if !reflect.DeepEqual(req, again) || !reflect.DeepEqual(refusal, refusalAgain) {
		t.Fatalf("validated twice, two ways: %+v %+v, %+v %+v", req, refusal, again, refusalAgain)
	}
	if refusal != nil {
		if req.Schedule != nil || waterclock.Reason(refusal.Reason).Meaning() == "" {
			t.Fatalf("refusal %+v with %+v", refusal, req.Schedule)
		}
		if d := refusal.Detail; !utf8.ValidString(d) || !strings.HasSuffix(d, ".") ||
			strings.ContainsAny(d, "\n\x00") || len(d) > 1024 {
			t.Fatalf("detail is no sentence: %q", d)
		}
		return
	}
	if misplaced != (Murmur2Partition(rec.Key, r.Partitions) != rec.Partition) {
		t.Fatalf("misplaced %v", misplaced)
	}
	if req.Schedule == nil {
		return
	}
	tm := req.Schedule
	if tm.Due > now+DefaultHorizon.Milliseconds() || !strings.HasPrefix(tm.Target.Topic, "ok") ||
		tm.Target.Partition < timer.AnyPartition {
		t.Fatalf("accepted beyond the rules: %+v", tm)
	}
	for _, h := range tm.Headers {
		if l := strings.ToLower(h.Key); strings.HasPrefix(l, "timer-") || strings.HasPrefix(h.Key, "waterclock-") {
			t.Fatalf("passed on %q", h.Key)
		}
	}
	back, err := timer.Decode(tm.AppendTo(nil))
	if err != nil || !reflect.DeepEqual(back, tm) {
		t.Fatalf("does not survive storage: %+v, %v; want %+v", back, err, tm)
	}
}

func TestValidateProperties(t *testing.T) {
	names := rapid.OneOf(
		rapid.SampledFrom([]string{
			"timer-at", "timer-after", "timer-cancel", "timer-target-topic", "timer-target-key",
			"timer-target-key-null", "timer-target-partition", "timer-every", "timer-cron", "timer-zone", "timer-until",
			"timer-count",
			"timer-jitter", "timer-catch-up", "timer-max-late", "Timer-At", "timer-x", "waterclock-id", "a", "",
		}), rapid.String())
	values := rapid.OneOf(
		rapid.SampledFrom([]string{"true", "false", "1700000000000", "2026-03-01T09:00:00Z", "90s", "P1DT2H", "ok",
			"ok2", "7", "forbidden", "", "* 9 * * *", "@daily", "Africa/Lagos", "all"}),
		rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	rapid.Check(t, func(t *rapid.T) {
		rec := &kgo.Record{
			Key:       rapid.SliceOfN(rapid.Byte(), 0, 520).Draw(t, "key"),
			Partition: rapid.Int32Range(0, 7).Draw(t, "partition"),
			Timestamp: time.UnixMilli(rapid.Int64Range(-1, 4_000_000_000_000).Draw(t, "timestamp")),
			Offset:    rapid.Int64Min(0).Draw(t, "offset"),
		}
		if rapid.Bool().Draw(t, "has value") {
			rec.Value = rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		}
		for range rapid.IntRange(0, 5).Draw(t, "headers") {
			h := kgo.RecordHeader{Key: names.Draw(t, "name")}
			if rapid.IntRange(0, 9).Draw(t, "null") > 0 {
				h.Value = []byte(values.Draw(t, "header value"))
			}
			rec.Headers = append(rec.Headers, h)
		}
		checkValidated(t, rec)
	})
}

func FuzzValidate(f *testing.F) {
	f.Add([]byte("id"), []byte("v"), int64(stamped), "timer-at", []byte("1700000000000"), "timer-target-topic",
		[]byte("ok"))
	f.Add([]byte("id"), []byte("v"), int64(-1), "timer-after", []byte("P1DT2H"), "timer-target-topic", []byte("ok"))
	f.Add([]byte("id"), []byte(nil), int64(0), "timer-cancel", []byte("true"), "Timer-At", []byte("x"))
	f.Add([]byte("id"), []byte("v"), int64(stamped), "timer-cron", []byte("0 9 * * mon-fri"), "timer-zone",
		[]byte("Europe/Berlin"))
	f.Add([]byte("id"), []byte("v"), int64(stamped), "timer-every", []byte("1m"), "timer-jitter", []byte("5s"))
	f.Add([]byte("id"), []byte(nil), int64(0), "timer-target-key", []byte(nil), "timer-target-partition", []byte("1"))
	f.Fuzz(func(t *testing.T, key, value []byte, stamp int64, name1 string, value1 []byte, name2 string,
		value2 []byte) {
		checkValidated(t, &kgo.Record{
			Key: key, Value: value, Timestamp: time.UnixMilli(stamp),
			Headers: []kgo.RecordHeader{{Key: name1, Value: value1}, {Key: name2, Value: value2},
				{Key: "timer-target-topic", Value: []byte("ok")}},
		})
		checkValidated(t, &kgo.Record{
			Key: key, Value: value, Timestamp: time.UnixMilli(stamp),
			Headers: []kgo.RecordHeader{{Key: name1, Value: value1}, {Key: name2, Value: value2}},
		})
	})
}

// Whether timer-after is within the horizon does not depend on how far the clocks of producer and
// owner differ. A timestamp that lies hours ahead does not extend the horizon.
func TestTheHorizonCountsFromTheLaterClock(t *testing.T) {
	r := testRules()
	r.Limits.Horizon = time.Hour
	for _, tt := range []struct {
		name  string
		ahead time.Duration // of the record's timestamp
		after string
		want  waterclock.Reason
	}{
		{"the same", 0, "1h", ""},
		{"the owner's is behind", time.Second, "1h", ""},
		{"the owner's is an hour behind", time.Hour, "1h", ""},
		{"the producer's is hours ahead", 2 * time.Hour, "1h", waterclock.ReasonBeyondHorizon},
		{"read late", -5 * time.Hour, "5h", ""},
		{"too long", time.Second, "1h0.001s", waterclock.ReasonBeyondHorizon},
		{"too long, and the producer's is behind", -time.Second, "1h1.001s", waterclock.ReasonBeyondHorizon},
	} {
		rec := request(nil, "timer-after", tt.after, "timer-target-topic", "ok")
		rec.Timestamp = time.UnixMilli(now).Add(tt.ahead)
		_, _, refusal := r.Validate(rec, now)
		if tt.want == "" && refusal != nil || tt.want != "" && (refusal == nil || refusal.Reason != string(tt.want)) {
			t.Errorf("%s: %+v", tt.name, refusal)
		}
	}
}
