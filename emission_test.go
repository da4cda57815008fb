package waterclock

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// headersOf builds headers from pairs of name and value.
func headersOf(pairs ...string) (hs []kgo.RecordHeader) {
	for i := 0; i < len(pairs); i += 2 {
		hs = append(hs, kgo.RecordHeader{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return hs
}

func emission(change func(map[string]string)) *kgo.Record {
	own := map[string]string{
		HeaderID: "id", HeaderDue: "1700000000001", HeaderOccurrence: "3",
		HeaderSource: "timers/7/42", HeaderEvent: "e",
	}
	change(own)
	rec := &kgo.Record{Topic: "orders", Partition: 1, Offset: 2, Headers: headersOf("a", "1", "a", "2")}
	for _, name := range []string{HeaderID, HeaderDue, HeaderOccurrence, HeaderSource, HeaderEvent} {
		if v, ok := own[name]; ok {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: name, Value: []byte(v)})
		}
	}
	return rec
}

func TestParseEmission(t *testing.T) {
	got, err := ParseEmission(emission(func(map[string]string) {}))
	if err != nil {
		t.Fatal(err)
	}
	want := Emission{
		ID: "id", Due: time.UnixMilli(1_700_000_000_001).UTC(), Occurrence: 3,
		Source: Source{Topic: "timers", Partition: 7, Offset: 42}, Event: "e",
		Headers: headersOf("a", "1", "a", "2"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestParseEmissionFaults(t *testing.T) {
	tests := []struct {
		name   string
		change func(map[string]string)
		says   string
		other  bool // ErrNotEmission
	}{
		{"of another writer", func(m map[string]string) { clear(m) }, "orders/1/2", true},
		{"no ID", func(m map[string]string) { delete(m, HeaderID) }, HeaderID, true},
		{"no due time", func(m map[string]string) { delete(m, HeaderDue) }, HeaderDue, false},
		{"due in words", func(m map[string]string) { m[HeaderDue] = "soon" }, `"soon"`, false},
		{"no occurrence", func(m map[string]string) { delete(m, HeaderOccurrence) }, HeaderOccurrence, false},
		{"no source", func(m map[string]string) { delete(m, HeaderSource) }, HeaderSource, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseEmission(emission(tt.change))
			if err == nil || !strings.Contains(err.Error(), tt.says) || errors.Is(err, ErrNotEmission) != tt.other {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestParseDeadLetter(t *testing.T) {
	rec := &kgo.Record{Topic: "timers.waterclock.dead-letters", Key: []byte("id"), Headers: headersOf(
		"waterclock-id", "from an emission", "waterclock-detail", "of an earlier letter",
		"timer-at", "5", "a", "1",
		HeaderReason, "seconds-not-milliseconds", HeaderDetail, "Send milliseconds.", HeaderSource, "timers/7/42")}
	got, err := ParseDeadLetter(rec)
	if err != nil {
		t.Fatal(err)
	}
	want := DeadLetter{
		ID: "id", Reason: ReasonSecondsNotMillis, Detail: "Send milliseconds.",
		Source: Source{Topic: "timers", Partition: 7, Offset: 42}, Headers: headersOf("timer-at", "5", "a", "1"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	rec.Headers = append(rec.Headers, headersOf(HeaderTruncated, "value")...)
	if got, err = ParseDeadLetter(rec); err != nil || !got.Truncated {
		t.Errorf("truncated: %+v, %v", got, err)
	}
	if _, err = ParseDeadLetter(&kgo.Record{Topic: "x"}); !errors.Is(err, ErrNotDeadLetter) {
		t.Errorf("of another writer: %v", err)
	}
	if _, err = ParseDeadLetter(&kgo.Record{Headers: headersOf(HeaderReason, "bad-key")}); err == nil ||
		errors.Is(err, ErrNotDeadLetter) {
		t.Errorf("without a source: %v", err)
	}
}

func TestSource(t *testing.T) {
	s := Source{Topic: "a.b-c_d", Partition: 2147483647, Offset: 9223372036854775807}
	if got, err := ParseSource(s.String()); err != nil || got != s {
		t.Errorf("%s read back as %+v, %v", s, got, err)
	}
	for _, bad := range []string{"", "a", "a/1", "a/1/2/3", "/1/2", "a//2", "a/-1/2", "a/1/-1", "a/2147483648/1",
		"a/1/9223372036854775808", "a/x/1"} {
		if got, err := ParseSource(bad); err == nil {
			t.Errorf("%q read as %+v", bad, got)
		}
	}
}

// FuzzParse: whatever is on a topic, the parsers return a result or an error. Results survive being written and parsed
// again.
func FuzzParse(f *testing.F) {
	f.Add("1700000000000", "1", "timers/7/42", "bad-key")
	f.Fuzz(func(t *testing.T, due, occurrence, source, reason string) {
		rec := &kgo.Record{Headers: headersOf(HeaderID, "id", HeaderDue, due, HeaderOccurrence, occurrence,
			HeaderSource, source, HeaderReason, reason)}
		e, err := ParseEmission(rec)
		if err == nil {
			if again, err := ParseSource(e.Source.String()); err != nil || again != e.Source {
				t.Fatalf("%q read as %+v, then as %+v, %v", source, e.Source, again, err)
			}
		}
		if d, err := ParseDeadLetter(rec); err == nil && (d.Reason != Reason(reason) || d.Source.Topic == "") {
			t.Fatalf("got %+v", d)
		}
	})
}
