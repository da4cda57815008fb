package audit

import (
	"reflect"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
)

// Spilled facts come back, except fields that are in the key. Payloads come back as digests.
func TestCodec(t *testing.T) {
	at := history.Place{Topic: "timers", Partition: 3, Offset: 17}
	digested := func(p history.Payload) history.Payload {
		got, err := decode((*codec).payload, encode((*codec).payload, p), new(names))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	p := history.Payload{Topic: "orders", Partition: -1, Key: "k", Value: "v", Headers: "h", Labels: "a=1"}
	q := history.Request{
		Record: history.Record{Timestamp: 7}, Action: history.Schedules, If: "absent", Due: -5, MaxLate: 6,
		Remember: 8, Emits: p,
		Recurs: &history.Recurrence{Every: 1, Until: 2, Count: 3, Jitter: 4, CatchUp: waterclock.CatchUpAll},
	}
	gotQ, err := decode((*codec).request, encode((*codec).request, q), new(names))
	if q.Emits = digested(p); err != nil || !reflect.DeepEqual(gotQ, q) {
		t.Errorf("%+v, %v", gotQ, err)
	}
	c := history.Request{Record: history.Record{Timestamp: 7}, Action: history.Cancels}
	if got, err := decode((*codec).request, encode((*codec).request, c), new(names)); err != nil || got != c {
		t.Errorf("%+v, %v", got, err)
	}
	m := history.Emission{Record: history.Record{Timestamp: 7}, Due: 6, Occurrence: 2, Stamped: true, Source: at,
		Event: "x.1.2", Carries: p}
	gotM, err := decode((*codec).emission, encode((*codec).emission, m), new(names))
	if m.Carries, m.Event = digested(p), digest("x.1.2"); err != nil || gotM != m {
		t.Errorf("%+v, %v", gotM, err)
	}
	l := history.Letter{Record: history.Record{Timestamp: 7}, Source: at, Reason: waterclock.ReasonBadCron,
		Emission: true, Occurrence: -1}
	if got, err := decode((*codec).letter, encode((*codec).letter, l), new(names)); err != nil || got != l {
		t.Errorf("%+v, %v", got, err)
	}
	e := history.Event{Record: history.Record{Timestamp: 7}, Event: waterclock.Event{
		Type: waterclock.EventFired, At: time.UnixMilli(9).UTC(), Source: at, Previous: at,
		Due: time.UnixMilli(8).UTC(), Occurrence: 2, Target: "orders", Reason: waterclock.ReasonTargetRefused,
		Emission: digest("x.1.2"), Partition: 4,
		Pending: &waterclock.Pending{Due: time.UnixMilli(10).UTC(), Occurrence: 3, Paused: true},
	}, Labelled: digest("a=1")}
	written := e
	written.Emission, written.Labelled = "x.1.2", "a=1"
	if got, err := decode((*codec).event, encode((*codec).event, written), new(names)); err != nil ||
		!reflect.DeepEqual(got, e) {
		t.Errorf("%+v, %v", got, err)
	}
	s := history.Timer{Source: at, Due: 5, Occurrence: 6, Paused: true, Remembered: true, Emits: p}
	gotS, err := decode((*codec).timer, encode((*codec).timer, s), new(names))
	if s.Emits = digested(p); err != nil || gotS != s {
		t.Errorf("%+v, %v", gotS, err)
	}
	for n := range encode((*codec).timer, s) {
		if _, err := decode((*codec).timer, encode((*codec).timer, s)[:n], new(names)); err == nil {
			t.Errorf("%d bytes of a timer are taken", n)
		}
	}
}

// Other payloads have other digests, wherever the bytes stand.
func TestDigest(t *testing.T) {
	seen := map[string]bool{}
	for _, parts := range [][]string{{"a", "b"}, {"ab", ""}, {"", "ab"}, {"a", "b", ""}, {"b", "a"}} {
		seen[digest(parts...)] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d digests of 5", len(seen))
	}
}
