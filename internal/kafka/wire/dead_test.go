package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/timer"
)

func deadTopic(maxBytes int) *topics.Topic {
	return &topics.Topic{Name: "t.waterclock.dead-letters", Partitions: 8, MaxMessageBytes: maxBytes}
}

// lines writes a record's headers one by one, a null value as <null>.
func lines(rec *kgo.Record) (out []string) {
	for _, h := range rec.Headers {
		v := string(h.Value)
		if h.Value == nil {
			v = "<null>"
		}
		out = append(out, h.Key+"="+v)
	}
	return out
}

func wantLetter(t *testing.T, rec *kgo.Record, key, value string, headers ...string) {
	t.Helper()
	if rec.Topic != "t.waterclock.dead-letters" || rec.Partition != 5 || !rec.Timestamp.IsZero() {
		t.Errorf("goes to %s/%d at %v", rec.Topic, rec.Partition, rec.Timestamp)
	}
	if string(rec.Key) != key || string(rec.Value) != value {
		t.Errorf("key %q, value %q; want %q, %q", rec.Key, rec.Value, key, value)
	}
	if got := lines(rec); !slices.Equal(got, headers) {
		t.Errorf("headers\n got %q\nwant %q", got, headers)
	}
}

func TestDeadRequest(t *testing.T) {
	const verdict = "waterclock-reason=bad-time,waterclock-detail=No such day.,waterclock-source=t/5/77"
	request := func(key, value string, headers ...kgo.RecordHeader) *kgo.Record {
		return &kgo.Record{Topic: "t", Partition: 5, Offset: 77, Key: []byte(key), Value: []byte(value),
			Headers: headers}
	}
	long := strings.Repeat("x", 5000)
	tests := []struct {
		name    string
		max     int
		rec     *kgo.Record
		key     string
		value   string
		headers string // before the verdict
		after   string
	}{
		{
			name: "whole", max: 10_000,
			rec: request("k", "v", header("a", "1"), header("timer-at", "soon"), header("a", "1"),
				kgo.RecordHeader{Key: "n"}),
			key: "k", value: "v", headers: "a=1,timer-at=soon,a=1,n=<null>,",
		},
		{
			name: "limit not known",
			rec:  request("k", long), key: "k", value: long,
		},
		{
			name: "an earlier verdict is replaced, other headers of ours stay", max: 10_000,
			rec: request("k", "v", header("waterclock-reason", "old"), header("waterclock-detail", "old"),
				header("waterclock-source", "old"), header("waterclock-truncated", "value"),
				header("waterclock-id", "k")),
			key: "k", value: "v", headers: "waterclock-id=k,",
		},
		{
			name: "value too large", max: 2000,
			rec: request("k", long, header("a", "1"), header("timer-at", "soon")),
			key: "k", headers: "a=1,timer-at=soon,", after: ",waterclock-truncated=value",
		},
		{
			name: "headers too large", max: 2000,
			rec: request("k", "v", header("a", long), header("Timer-At", "soon")),
			key: "k", headers: "Timer-At=soon,", after: ",waterclock-truncated=value,headers",
		},
		{
			name: "everything too large", max: 2000,
			rec: request(long, "v", header("timer-at", long)),
			key: long[:maxDeadKeyBytes], after: ",waterclock-truncated=value,headers,key",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := len(tt.rec.Headers)
			got := DeadRequest(deadTopic(tt.max), tt.rec, &timer.Refusal{Reason: "bad-time", Detail: "No such day."})
			if text := strings.Join(lines(got), ","); text != tt.headers+verdict+tt.after {
				t.Errorf("headers\n got %s\nwant %s", text, tt.headers+verdict+tt.after)
			}
			wantLetter(t, got, tt.key, tt.value, lines(got)...)
			if len(tt.rec.Headers) != before {
				t.Error("the request was changed")
			}
		})
	}
}

// TestDeadRequestIsParsed holds the letters against the public client.
func TestDeadRequestIsParsed(t *testing.T) {
	rec := &kgo.Record{Topic: "t", Partition: 5, Offset: 77, Key: []byte("k"), Value: make([]byte, 5000),
		Headers: []kgo.RecordHeader{header("waterclock-reason", "old")}}
	why := &timer.Refusal{Reason: "bad-time", Detail: "d"}
	got, err := waterclock.ParseDeadLetter(DeadRequest(deadTopic(2000), rec, why))
	if err != nil || got.ID != "k" || got.Reason != waterclock.ReasonBadTime || got.Detail != "d" ||
		got.Source != (waterclock.Source{Topic: "t", Partition: 5, Offset: 77}) || !got.Truncated {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestDeadEmission(t *testing.T) {
	const verdict = "waterclock-reason=target-unknown,waterclock-detail=Create it.,waterclock-source=t/5/77"
	base := timer.Timer{
		ID: []byte("id"), Offset: 77, Due: 1_900_000_000_000, Occurrence: 1,
		Target: timer.Target{Topic: "orders", Partition: timer.AnyPartition, Key: []byte("id")},
		Value:  []byte("v"),
	}
	tests := []struct {
		name   string
		max    int
		change func(t *timer.Timer)
		value  string
		want   string
	}{
		{
			name: "plain", value: "v",
			want: "timer-at=1900000000000,timer-target-topic=orders,waterclock-occurrence=1," + verdict,
		},
		{
			name: "all of it", value: "v",
			change: func(t *timer.Timer) {
				t.Headers = []timer.Header{{Key: "a", Value: []byte("1")}, {Key: "n"}}
				t.Target.Key, t.Target.Partition, t.Occurrence = []byte("other"), 3, 4
			},
			want: "a=1,n=<null>,timer-at=1900000000000,timer-target-topic=orders,timer-target-key=other," +
				"timer-target-partition=3,waterclock-occurrence=4," + verdict,
		},
		{
			name: "null key, null value",
			change: func(t *timer.Timer) {
				t.Target.Key, t.Value = nil, nil
			},
			want: "timer-at=1900000000000,timer-target-topic=orders,timer-target-key-null=true," +
				"waterclock-occurrence=1," + verdict,
		},
		{
			name: "empty key", value: "v",
			change: func(t *timer.Timer) { t.Target.Key = []byte{} },
			want: "timer-at=1900000000000,timer-target-topic=orders,timer-target-key=,waterclock-occurrence=1," +
				verdict,
		},
		{
			name: "an instant whose number would be refused", value: "v",
			change: func(t *timer.Timer) { t.Due = waterclock.MinUnixMilli - 1 },
			want:   "timer-at=1973-03-03T09:46:39.999Z,timer-target-topic=orders,waterclock-occurrence=1," + verdict,
		},
		{
			name: "too large without its value", max: 500,
			change: func(t *timer.Timer) {
				t.Headers = []timer.Header{{Key: "a", Value: make([]byte, 600)}}
			},
			want: "timer-at=1900000000000,timer-target-topic=orders,waterclock-occurrence=1," + verdict +
				",waterclock-truncated=value,headers",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tm := base
			if tt.change != nil {
				tt.change(&tm)
			}
			src := waterclock.Source{Topic: "t", Partition: 5, Offset: tm.Offset}
			why := &timer.Refusal{Reason: "target-unknown", Detail: "Create it."}
			got := DeadEmission(deadTopic(tt.max), src, &tm, why)
			if text := strings.Join(lines(got), ","); text != tt.want {
				t.Errorf("headers\n got %s\nwant %s", text, tt.want)
			}
			wantLetter(t, got, "id", tt.value, lines(got)...)
			if (got.Value == nil) != (tm.Value == nil || tt.max > 0) {
				t.Errorf("value is null: %v", got.Value == nil)
			}
		})
	}
}

// TestDeadDetailIsBounded: at the limit the sentence is whole, one byte beyond it is cut.
func TestDeadDetailIsBounded(t *testing.T) {
	const most = timer.MaxDetailBytes
	for n, want := range map[int]int{most: most, most + 1: most} {
		got := DeadRequest(deadTopic(0), &kgo.Record{Topic: "t", Key: []byte("k")},
			&timer.Refusal{Reason: "bad-time", Detail: strings.Repeat("d", n)})
		if text := strings.Join(lines(got), ","); !strings.Contains(
			text, "waterclock-detail="+strings.Repeat("d", want)+",") {
			t.Errorf("of a detail of %d bytes not %d are there: %s", n, want, text)
		}
	}
}

// TestDeadRequestFits: whatever the request, the letter fits into any topic that takes a key of maxDeadKeyBytes and a
// detail of timer.MaxDetailBytes.
func TestDeadRequestFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := func(label string) []byte { return make([]byte, rapid.IntRange(0, 4000).Draw(t, label)) }
		rec := &kgo.Record{Topic: "t", Key: size("key"), Value: size("value")}
		for i := range rapid.IntRange(0, 5).Draw(t, "headers") {
			prefix := rapid.SampledFrom([]string{"", "timer-", "TIMER-"}).Draw(t, "prefix")
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: fmt.Sprint(prefix, i), Value: size("header")})
		}
		limit := rapid.IntRange(maxDeadKeyBytes+timer.MaxDetailBytes+500, 20_000).Draw(t, "limit")
		why := &timer.Refusal{Reason: "bad-time", Detail: strings.Repeat("d", 2*timer.MaxDetailBytes)}
		got := DeadRequest(deadTopic(limit), rec, why)
		if n := StoredBytes(got); n > limit {
			t.Fatalf("%d bytes, limit %d", n, limit)
		}
		whole := DeadRequest(deadTopic(0), rec, why)
		if StoredBytes(whole) <= limit && len(got.Value) != len(rec.Value) {
			t.Fatal("truncated without need")
		}
	})
}
