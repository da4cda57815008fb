package waterclock

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func event(value string) *kgo.Record {
	return &kgo.Record{Topic: "timers.waterclock.events", Partition: 7, Offset: 2, Key: []byte("id"),
		Value: []byte(value)}
}

func TestParseEvent(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_005).UTC()
	for _, c := range []struct {
		name, value string
		want        Event
	}{
		{
			"nothing is pending",
			`{"format":1,"type":"cancelled","id":"id","at":1700000000005,"source":"timers/7/42","cancel":"timers/7/50","pending":null}`,
			Event{Type: EventCancelled, At: at, Source: Source{"timers", 7, 42}, Cancel: Source{"timers", 7, 50}},
		},
		{
			"the next occurrence is pending",
			`{"format":1,"type":"fired","id":"id","at":1700000000005,"source":"timers/7/42","due":1700000000001,"occurrence":3,"lateness":4,` +
				`"target":"orders","partition":2,"emission":"e.3","pending":{"due":1700000001001,"occurrence":4}}`,
			Event{
				Type: EventFired, At: at, Source: Source{"timers", 7, 42}, Due: time.UnixMilli(1_700_000_000_001).UTC(),
				Occurrence: 3, Lateness: 4 * time.Millisecond,
				Target: "orders", Partition: 2, Emission: "e.3",
				Pending: &Pending{Due: time.UnixMilli(1_700_000_001_001).UTC(), Occurrence: 4},
			},
		},
		{
			"what is pending is not said",
			`{"format":1,"type":"rejected","id":"id","at":1700000000005,"source":"timers/7/42","reason":"bad-time","detail":"no"}`,
			Event{Type: EventRejected, At: at, Source: Source{"timers", 7, 42}, Reason: ReasonBadTime, Detail: "no",
				Unknown: true},
		},
		{
			"of a later version",
			`{"format":1,"type":"dreamt","id":"id","at":1700000000005,"source":"timers/7/42","of":["sheep"],"pending":{"due":1700000001001,"occurrence":4,"asleep":true}}`,
			Event{Type: "dreamt", At: at, Source: Source{"timers", 7, 42},
				Pending: &Pending{Due: time.UnixMilli(1_700_000_001_001).UTC(), Occurrence: 4}},
		},
	} {
		c.want.ID = "id"
		if got, err := ParseEvent(event(c.value)); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", c.name, err, got, c.want)
		}
	}
}

func TestParseEventFaults(t *testing.T) {
	for _, c := range []struct {
		name, value, says string
		other             bool // ErrNotEvent
	}{
		{"no JSON", "payload", "timers.waterclock.events/7/2", true},
		{"a tombstone", "", "timers.waterclock.events/7/2", true},
		{"other JSON", `{"type":"fired"}`, "no format", true},
		{"no type", `{"format":1}`, "no format or no type", true},
		{"a newer format", `{"format":2,"type":"fired"}`, "written by a newer version", false},
		{"no place", `{"format":1,"type":"fired","source":"timers/x/1"}`, `"x" is not a partition`, false},
		{"pending is no object", `{"format":1,"type":"fired","source":"timers/1/1","pending":7}`, "pending", false},
	} {
		_, err := ParseEvent(event(c.value))
		if err == nil || !strings.Contains(err.Error(), c.says) || errors.Is(err, ErrNotEvent) != c.other {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func FuzzParseEvent(f *testing.F) {
	f.Add([]byte(`{"format":1,"type":"fired","at":1,"source":"t/0/1","due":1,"pending":{"due":1,"occurrence":4}}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		if e, err := ParseEvent(&kgo.Record{Value: value}); err == nil &&
			(e.Type == "" || e.Unknown && e.Pending != nil) {
			t.Errorf("%q is read as %+v", value, e)
		}
	})
}
