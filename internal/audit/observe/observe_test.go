package observe

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/timer"
)

const now = int64(1_790_000_000_000)

func record(topic string, offset int64, key, value []byte, headers ...string) *kgo.Record {
	rec := &kgo.Record{Topic: topic, Partition: 1, Offset: offset, Key: key, Value: value,
		Timestamp: time.UnixMilli(now)}
	for i := 0; i < len(headers); i += 2 {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return rec
}

func TestRequest(t *testing.T) {
	rules := &intake.Rules{Topic: "timers", Changelog: "timers.waterclock.changelog", Partitions: 2,
		Allow: func(string) bool { return true }}
	request := func(value []byte, headers ...string) history.Request {
		return Request(rules, record("timers", 7, []byte("a"), value, headers...), now, time.Time{})
	}
	want := history.Request{
		Record: history.Record{Place: history.Place{Topic: "timers", Partition: 1, Offset: 7}, Timestamp: now}, ID: "a",
		Action: history.Schedules, If: "absent", Due: now + 1000,
		Recurs: &history.Recurrence{Every: 1000, Count: 3, Jitter: 50, CatchUp: waterclock.CatchUpAll}, MaxLate: 2001,
		Remember: 3000,
		Emits: history.Payload{Topic: "orders", Partition: 4, NullKey: true, Value: "v", Headers: "\x01h\x02w",
			Labels: "a=1,b=2"},
	}
	got := request([]byte("v"), "timer-every", "1s", "timer-count", "3", "timer-jitter", "50ms", "timer-catch-up",
		"all", "timer-max-late", "2s", "timer-remember", "3s",
		"timer-if", "absent", "timer-target-topic", "orders", "timer-target-partition", "4", "timer-target-key-null",
		"true", "timer-labels", "b=2,a=1", "h", "w", "traceparent", "x", "waterclock-id", "y")
	if got.Recurs == nil || *got.Recurs != *want.Recurs {
		t.Fatalf("%+v", got.Recurs)
	}
	if got.Recurs = want.Recurs; got != want {
		t.Errorf("%+v, %+v, want %+v, %+v", got, got.Emits, want, want.Emits)
	}
	for action, r := range map[history.Action]history.Request{
		history.Cancels: request(nil), history.Triggers: request(nil, "timer-trigger", "true"),
		history.Pauses:  request(nil, "timer-pause", "true"),
		history.Moves:   request(nil, "timer-move", "true", "timer-after", "0s"),
		history.Resumes: request(nil, "timer-resume", "true"), history.Poison: request(nil, "timer-at", "soon"),
	} {
		if r.Action != action || r.ID != "a" {
			t.Errorf("%+v, want %s", r, action)
		}
	}
}

// Only the service knows calendars: a timer that names one is due at any time, and may be rejected.
func TestRequestThatNamesACalendar(t *testing.T) {
	rules := &intake.Rules{Topic: "timers", Changelog: "timers.waterclock.changelog", Partitions: 2,
		DefaultTarget: "orders", Allow: func(string) bool { return true }}
	once := history.Recurrence{CatchUp: waterclock.CatchUpNone, Count: 1}
	ends := history.Recurrence{CatchUp: waterclock.CatchUpNone, Until: now + 60_000}
	for _, c := range []struct {
		headers []string
		want    history.Recurrence
	}{
		{[]string{"timer-at", "1790000001000"}, once},
		{[]string{"timer-every", "1s", "timer-until", "1790000060000"}, ends},
	} {
		rec := record("timers", 7, []byte("a"), []byte("v"), append(c.headers, "timer-not-on", "busy")...)
		r := Request(rules, rec, now, time.Time{})
		if r.Action != history.Schedules || !r.NotOn || !r.MayBeRejected || r.Due != 0 || *r.Recurs != c.want {
			t.Errorf("%q: %+v, %+v", c.headers, r, r.Recurs)
		}
	}
}

// An emission has the requested payload, in the same form.
func TestEmission(t *testing.T) {
	rec := record("orders", 9, nil, []byte("v"), "h", "w", "waterclock-id", "a", "waterclock-due", "5",
		"waterclock-occurrence", "2",
		"waterclock-source", "timers/1/7", "waterclock-event", "x.1.7.2")
	got, err := Emission(rec, time.Time{})
	want := history.Emission{
		Record: history.Record{Place: history.Place{Topic: "orders", Partition: 1, Offset: 9}, Timestamp: now}, ID: "a",
		Due: 5, Occurrence: 2,
		Source: history.Place{Topic: "timers", Partition: 1, Offset: 7}, Event: "x.1.7.2",
		Carries: history.Payload{Topic: "orders", Partition: 1, NullKey: true, Value: "v", Headers: "\x01h\x02w"},
	}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if _, err := Emission(record("orders", 1, nil, nil), time.Time{}); err == nil {
		t.Error("a record of another writer is an emission")
	}
}

func TestLetter(t *testing.T) {
	for _, c := range []struct {
		headers    []string
		emission   bool
		occurrence int64
	}{
		// The request was itself an emission.
		{[]string{"waterclock-occurrence", "4", "waterclock-reason", "bad-cron", "waterclock-source", "timers/1/7"},
			false, 0},
		{[]string{"waterclock-occurrence", "4", "waterclock-reason", "target-refused", "waterclock-source",
			"timers/1/7"}, true, 4},
		{[]string{"waterclock-reason", "target-too-large", "waterclock-source", "timers/1/7"}, true, -1}, // cut
	} {
		got, err := Letter(record("letters", 3, []byte("a"), nil, c.headers...), time.Time{})
		if err != nil || got.Emission != c.emission || got.Occurrence != c.occurrence || got.Source.Offset != 7 ||
			got.ID != "a" {
			t.Errorf("%v: %+v, %v", c.headers, got, err)
		}
	}
}

func TestChange(t *testing.T) {
	base := timer.Timer{ID: []byte("a"), Offset: 7, Due: 5, Occurrence: 1,
		Target:   timer.Target{Topic: "orders", Partition: timer.AnyPartition, Key: []byte("a")},
		Remember: &timer.Remember{For: 10}}
	change := func(key, value []byte) history.ChangelogRecord {
		t.Helper()
		c, err := Change("timers", record("timers.waterclock.changelog", 30, key, value), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	stored := func(is *timer.Timer) *history.Timer { return change(wire.TimerKey(nil, is.ID), is.AppendTo(nil)).Timer }
	if got := stored(&base); got.Source.String() != "timers/1/7" || got.Due != 5 || got.Paused || got.Remembered ||
		got.Emits.Key != "a" {
		t.Errorf("%+v", got)
	}
	if got := stored(base.MovedTo(12)); got.Source.String() != "timers.waterclock.changelog/1/12" {
		t.Errorf("moved: %+v", got)
	}
	if got := stored(base.Ended(20)); !got.Remembered || got.Source.String() != "timers/1/7" || got.Due != 30 {
		t.Errorf("remembered: %+v", got)
	}
	if got := change(wire.TimerKey(nil, []byte("a")), nil); got.Kind != history.TimerChange || got.Timer != nil ||
		got.ID != "a" {
		t.Errorf("gone: %+v", got)
	}
	p := wire.Checkpoint{Position: 9, Step: "p/1", Group: "g", Owner: "o", Time: 4, Request: [16]byte{1}}
	if got := change(wire.CheckpointKey(), p.AppendTo(nil)); got.Kind != history.Checkpoint || got.Position != 9 ||
		got.Step != "p/1" || got.Group != "g" || got.Owner != "o" || got.Written != 4 || got.Incarnation[:2] != "01" {
		t.Errorf("%+v", got)
	}
	c := wire.Claim{Step: "p/2", Group: "g", Owner: "o", Member: "m", Generation: 3, Time: 4}
	if got := change(wire.ClaimKey(), c.AppendTo(nil)); got.Kind != history.Claim || got.Step != "p/2" ||
		got.Member != "m" || got.Generation != 3 {
		t.Errorf("%+v", got)
	}
	if _, err := Change("timers", record("timers.waterclock.changelog", 30, []byte{9}, nil), time.Time{}); err == nil {
		t.Error("a key of a later format is read")
	}
}
