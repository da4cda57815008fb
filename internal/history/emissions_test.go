package history

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// with is the emission of timer n with an event.
func with(n int, event string) Received {
	r := emission(n, 1, due)
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: waterclock.HeaderEvent, Value: []byte(event)})
	return r
}

func TestEmissions(t *testing.T) {
	early, unread := with(1, "b"), with(2, "c")
	early.At = early.At.Add(-time.Millisecond)
	unread.Headers = unread.Headers[1:]
	for _, c := range []struct {
		name     string
		received []Received
		want     []string // each a word of one violation, in order
	}{
		{"exact", []Received{with(0, "a"), with(1, "b")}, nil},
		{"early", []Received{with(0, "a"), early}, []string{"early"}},
		{"one event twice", []Received{with(0, "a"), with(0, "a"), with(1, "b")}, []string{"event", "2 times"}},
		{"one timer twice", []Received{with(0, "a"), with(0, "x"), with(1, "b")}, []string{"2 times"}},
		{"no ID", []Received{with(0, "a"), with(1, "b"), unread}, []string{"lacks headers"}},
		{"lost", []Received{with(0, "a")}, []string{"lost: p-1"}},
		{"unwanted", []Received{with(0, "a"), with(1, "b"), with(7, "d")}, []string{"unwanted: p-7"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			byID, wrong := Once(c.received)
			wrong = append(wrong, Exactly(byID, []string{"p-0", "p-1"})...)
			if len(wrong) != len(c.want) || !slices.EqualFunc(wrong, c.want, func(v Violation, word string) bool { return strings.Contains(string(v), word) }) {
				t.Errorf("%q, want %q", wrong, c.want)
			}
		})
	}
}

func TestEarly(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *Received)
		want   bool
	}{
		"on time":              {func(*Received) {}, false},
		"late":                 {func(r *Received) { r.At, r.Timestamp = r.At.Add(time.Hour), r.Timestamp.Add(time.Hour) }, false},
		"early by timestamp":   {func(r *Received) { r.Timestamp = r.Timestamp.Add(-time.Millisecond) }, true},
		"early by receipt":     {func(r *Received) { r.At = r.At.Add(-time.Millisecond) }, true},
		"without its due time": {func(r *Received) { r.Headers[1].Value = nil }, true},
	} {
		r := emission(0, 1, due)
		c.change(&r)
		if got := r.Early(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
