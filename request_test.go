package waterclock

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestSchedule(t *testing.T) {
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.FixedZone("", 3600))
	const atText = "1772352000000"
	tests := []struct {
		name    string
		opts    []Option
		value   []byte
		headers []string // name=value
	}{
		{"at", []Option{At(at), To("orders"), Value([]byte("v"))}, []byte("v"),
			[]string{"timer-at=" + atText, "timer-target-topic=orders"}},
		{"at, rounded up", []Option{At(at.Add(1))}, []byte{}, []string{"timer-at=1772352000001"}},
		{"before numbers are milliseconds", []Option{At(time.Unix(99_999_999, 999_000_000))}, []byte{},
			[]string{"timer-at=1973-03-03T09:46:39.999Z"}},
		{"from where numbers are milliseconds", []Option{At(time.Unix(100_000_000, 0))}, []byte{},
			[]string{"timer-at=100000000000"}},
		{"after", []Option{After(90 * time.Second)}, []byte{}, []string{"timer-after=90000ms"}},
		{"after, rounded up", []Option{After(1)}, []byte{}, []string{"timer-after=1ms"}},
		{"after nothing", []Option{After(0)}, []byte{}, []string{"timer-after=0ms"}},
		{"tombstone", []Option{After(0), NullValue()}, nil, []string{"timer-after=0ms"}},
		{"tombstone by nil", []Option{After(0), Value(nil)}, nil, []string{"timer-after=0ms"}},
		{"key", []Option{After(0), Key([]byte("k"))}, []byte{}, []string{"timer-after=0ms", "timer-target-key=k"}},
		{"empty key", []Option{After(0), Key([]byte{})}, []byte{}, []string{"timer-after=0ms", "timer-target-key="}},
		{"null key", []Option{After(0), NullKey()}, []byte{},
			[]string{"timer-after=0ms", "timer-target-key-null=true"}},
		{"null key by nil", []Option{After(0), Key(nil)}, []byte{}, []string{"timer-after=0ms",
			"timer-target-key-null=true"}},
		{"partition", []Option{After(0), Partition(3)}, []byte{},
			[]string{"timer-after=0ms", "timer-target-partition=3"}},
		{"headers in order, twice", []Option{Header("b", []byte("1")), After(0), Header("a", []byte("2")),
			Header("b", []byte("3"))}, []byte{},
			[]string{"b=1", "timer-after=0ms", "a=2", "b=3"}},
		{"headers of an emission",
			[]Option{After(0),
				Headers([]kgo.RecordHeader{{Key: "a", Value: []byte("1")},
					{Key: "waterclock-id", Value: []byte("x")}})}, []byte{},
			[]string{"timer-after=0ms", "a=1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec, err := Schedule("timers", "id", tt.opts...)
			if err != nil {
				t.Fatal(err)
			}
			if rec.Topic != "timers" || string(rec.Key) != "id" || !reflect.DeepEqual(rec.Value, tt.value) {
				t.Errorf("topic %q, key %q, value %#v", rec.Topic, rec.Key, rec.Value)
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

func TestScheduleFaults(t *testing.T) {
	tests := []struct {
		name  string
		topic string
		id    string
		opts  []Option
		says  []string
	}{
		{"nothing says when", "timers", "id", nil, []string{"exactly one of At and After, not 0"}},
		{"at and after", "timers", "id", []Option{At(time.Now()), After(0)}, []string{"not 2"}},
		{"after twice", "timers", "id", []Option{After(1), After(2)}, []string{"not 2"}},
		{"zero time", "timers", "id", []Option{At(time.Time{})}, []string{"At: 0001"}},
		{"year 10000", "timers", "id", []Option{At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))},
			[]string{"At: 10000"}},
		{"year -1", "timers", "id", []Option{At(time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC))}, []string{"At: -0001"}},
		{"negative duration", "timers", "id", []Option{After(-1)}, []string{"After: -1ns is negative"}},
		{"no ID", "timers", "", []Option{After(0)}, []string{"1 to 512 bytes, not 0"}},
		{"long ID", "timers", strings.Repeat("x", 513), []Option{After(0)}, []string{"1 to 512 bytes, not 513"}},
		{"request topic", "a b", "id", []Option{After(0)}, []string{`request topic "a b"`}},
		{"target", "timers", "id", []Option{After(0), To("a b")}, []string{`To: "a b"`}},
		{"two targets", "timers", "id", []Option{After(0), To("a"), To("b")},
			[]string{"timer-target-topic is set twice"}},
		{"two keys", "timers", "id", []Option{After(0), Key([]byte("a")), NullKey()},
			[]string{"one of Key and NullKey"}},
		{"negative partition", "timers", "id", []Option{After(0), Partition(-1)}, []string{"Partition: -1"}},
		{"timer header", "timers", "id", []Option{After(0), Header("Timer-X", nil)}, []string{`"Timer-X" is reserved`}},
		{"own header", "timers", "id", []Option{After(0), Header("waterclock-id", nil)},
			[]string{`"waterclock-id" is reserved`}},
		{"headers of a dead letter", "timers", "id", []Option{After(0), Headers([]kgo.RecordHeader{{Key: "timer-at"}})},
			[]string{`"timer-at" is reserved`}},
		{"all at once", "", "", []Option{To(""), Partition(-1)},
			[]string{"request topic", "bytes", "To:", "Partition:", "At and After"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec, err := Schedule(tt.topic, tt.id, tt.opts...)
			if err == nil || rec != nil {
				t.Fatalf("built %+v, %v", rec, err)
			}
			for _, want := range tt.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
		})
	}
}

func TestCancel(t *testing.T) {
	rec, err := Cancel("timers", "id")
	if err != nil {
		t.Fatal(err)
	}
	if want := (kgo.Record{Topic: "timers", Key: []byte("id")}); !reflect.DeepEqual(*rec, want) {
		t.Errorf("got %+v", rec)
	}
	for _, bad := range [][2]string{{"timers", ""}, {"", "id"}, {"timers", strings.Repeat("x", 513)}} {
		if _, err := Cancel(bad[0], bad[1]); err == nil {
			t.Errorf("built a cancel of %q on %q", bad[1], bad[0])
		}
	}
}

// An option that has no effect on a request that does not schedule is reported, and so is an invalid condition.
func TestSteerFaults(t *testing.T) {
	for want, build := range map[string]func() (*kgo.Record, error){
		"timer-target-topic has no effect on a pause": func() (*kgo.Record, error) {
			return Pause("timers", "a", To("x"))
		},
		"timer-after has no effect on a trigger": func() (*kgo.Record, error) {
			return Trigger("timers", "a", After(time.Second))
		},
		"trace has no effect on a cancel": func() (*kgo.Record, error) {
			return Cancel("timers", "a", Header("trace", nil))
		},
		"a resume has no value": func() (*kgo.Record, error) {
			return Resume("timers", "a", Value([]byte("v")))
		},
		`"Absent" is none of absent, present and changed`: func() (*kgo.Record, error) {
			return Cancel("timers", "a", If("Absent"))
		},
		"timer-if is set twice": func() (*kgo.Record, error) {
			return Resume("timers", "a", If(IfPresent), If(IfAbsent))
		},
		"an ID has 1 to 512 bytes, not 0": func() (*kgo.Record, error) { return Trigger("timers", "") },
	} {
		if _, err := build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if rec, err := Cancel("timers", "a"); err != nil || rec.Value != nil || len(rec.Headers) != 0 {
		t.Errorf("a plain cancel: %+v, %v", rec, err)
	}
}
