package wire

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/timer"
)

// The golden bytes: the examples of docs/EVENTS.md.
func TestGoldenEvents(t *testing.T) {
	at := func(offset int64) waterclock.Source {
		return waterclock.Source{Topic: "timers", Partition: 3, Offset: offset}
	}
	next := &timer.Timer{Due: 1_700_000_060_000, Occurrence: 2, Target: timer.Target{Topic: "orders"}}
	due := &timer.Timer{Due: 1_700_000_000_000, Occurrence: 1, Target: timer.Target{Topic: "orders"}}
	base := Event{ID: []byte("a1"), At: 1_700_000_000_004, Source: at(17)}
	for _, c := range []struct {
		name   string
		change func(*Event)
		want   string
	}{
		{"scheduled", func(e *Event) { e.Pending = next },
			`"source":"timers/3/17","target":"orders","pending":{"due":1700000060000,"occurrence":2}}`},
		{"replaced", func(e *Event) { e.Pending, e.Previous = next, at(9) },
			`"source":"timers/3/17","previous":"timers/3/9","target":"orders","pending":{"due":1700000060000,"occurrence":2}}`},
		{"cancelled", func(e *Event) { e.Cancel = at(21) },
			`"source":"timers/3/17","cancel":"timers/3/21","pending":null}`},
		{
			"fired", func(e *Event) {
				e.Occurred, e.Pending, e.Partition, e.Emission = due, next, 5,
					[]byte("x.3.17.1")
			},
			`"source":"timers/3/17","due":1700000000000,"occurrence":1,"lateness":4,"target":"orders","partition":5,"emission":"x.3.17.1","pending":{"due":1700000060000,"occurrence":2}}`,
		},
		{"expired", func(e *Event) { e.Occurred = due },
			`"source":"timers/3/17","due":1700000000000,"occurrence":1,"lateness":4,"target":"orders","pending":null}`},
		{
			"undeliverable", func(e *Event) {
				e.Occurred, e.Reason, e.Detail = due, "target-unknown",
					"topic orders did not exist"
			},
			`"source":"timers/3/17","due":1700000000000,"occurrence":1,"lateness":4,"target":"orders","reason":"target-unknown","detail":"topic orders did not exist","pending":null}`,
		},
		{
			"paused", func(e *Event) { e.Request, e.Pending, e.Labels = at(8), next, `order=1"7,team=a` },
			`"source":"timers/3/17","request":"timers/3/8","target":"orders","labels":{"order":"1\"7","team":"a"},"pending":{"due":1700000060000,"occurrence":2}}`,
		},
		{"rejected", func(e *Event) { e.Unknown, e.Reason, e.Detail = true, "bad-time", `"x" is none` },
			`"source":"timers/3/17","reason":"bad-time","detail":"\"x\" is none"}`},
	} {
		e := base
		e.Type = waterclock.EventType(c.name)
		c.change(&e)
		want := `{"format":1,"type":"` + c.name + `","id":"a1","at":1700000000004,` + c.want
		if got := string(e.AppendTo(nil)); got != want {
			t.Errorf("%s\n got %s\nwant %s", c.name, got, want)
		}
	}
}

// Each member of an event is a field of waterclock.Event, and each field has a member: a new one needs an entry in
// both.
func TestEveryMemberIsRead(t *testing.T) {
	source := waterclock.Source{Topic: "timers", Offset: 1}
	tm := &timer.Timer{ID: []byte("a1"), Due: 1, Occurrence: 1, Target: timer.Target{Topic: "orders"}}
	e := Event{Type: waterclock.EventFired, ID: tm.ID, At: 7, Source: source, Previous: source, Cancel: source,
		Request: source, Occurred: tm, Emission: []byte("e"), Reason: "r", Detail: "d", Labels: "team=a", Pending: tm}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(e.AppendTo(nil), &members); err != nil {
		t.Fatal(err)
	}
	delete(members, "format")
	for _, f := range reflect.VisibleFields(reflect.TypeFor[waterclock.Event]()) {
		name := strings.ToLower(f.Name)
		if members[name] == nil && name != "unknown" { // pending is missing
			t.Errorf("no member is read as %s", f.Name)
		}
		delete(members, name)
	}
	for name := range members {
		t.Errorf("no field of waterclock.Event has %s", name)
	}
}

// For any ID, name or sentence, the event is JSON with the same meaning to every reader, and it fits into the smallest
// allowed max.message.bytes.
func TestEventsAreJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(),
			rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) }),
			rapid.Just(strings.Repeat("\x00", 2000)))
		const odd = `"\<é`
		labels, _ := timer.MakeLabels([]timer.Label{{Name: "a", Value: strings.Repeat(odd, 100)}, {Name: odd}})
		tm := &timer.Timer{Due: rapid.Int64().Draw(t, "due"), Occurrence: 1, Target: timer.Target{Topic: "orders"}}
		e := Event{
			Type: waterclock.EventUndeliverable, ID: []byte(text.Draw(t, "id")), At: 7, Occurred: tm, Pending: tm,
			Source: waterclock.Source{Topic: strings.Repeat("t", 249), Offset: 1}, Reason: "r",
			Detail: text.Draw(t, "detail"), Labels: labels,
		}
		value := e.AppendTo([]byte("x"))[1:]
		rec := &kgo.Record{Key: EventKey(e.ID), Value: value}
		if StoredBytes(rec) > topics.MessageRoom || rec.Key == nil {
			t.Fatalf("an event of %d bytes, key %q", StoredBytes(rec), rec.Key)
		}
		got, err := waterclock.ParseEvent(rec)
		if err != nil || got.Source != e.Source || got.Due.UnixMilli() != tm.Due || got.Pending == nil ||
			!maps.Equal(got.Labels, labels.Map()) {
			t.Fatalf("%v of %s", err, value)
		}
		if utf8.ValidString(e.Detail) && len(e.Detail) <= timer.MaxDetailBytes && got.Detail != e.Detail {
			t.Fatalf("detail %q is read as %q", e.Detail, got.Detail)
		}
		var raw struct{ ID *string }
		if err := json.Unmarshal(value, &raw); err != nil {
			t.Fatal(err)
		}
		if valid := len(rec.Key) > 0 && utf8.Valid(e.ID); valid != (raw.ID != nil) || valid && *raw.ID != string(e.ID) {
			t.Fatalf("ID %q in %s", e.ID, value)
		}
	})
}
