package rig

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
)

// with returns the emission of timer n with an event.
func with(n int, event string) history.Received {
	const due = int64(1_700_000_000_000)
	id := fmt.Appendf(nil, "p-%d", n)
	return history.Received{At: time.UnixMilli(due), Record: &kgo.Record{
		Key: id, Timestamp: time.UnixMilli(due), Headers: []kgo.RecordHeader{
			{Key: waterclock.HeaderID, Value: id}, {Key: waterclock.HeaderDue, Value: fmt.Append(nil, due)},
			{Key: waterclock.HeaderOccurrence, Value: []byte("1")},
			{Key: waterclock.HeaderSource, Value: fmt.Appendf(nil, "timers/0/%d", n)},
			{Key: waterclock.HeaderEvent, Value: []byte(event)},
		},
	}}
}

// other returns the emission of another request of the same timer.
func other(r history.Received) history.Received {
	for i := range r.Headers {
		if r.Headers[i].Key == waterclock.HeaderSource {
			r.Headers[i].Value = []byte("timers/0/99")
		}
	}
	return r
}

func TestEmissions(t *testing.T) {
	early, unread := with(1, "b"), with(2, "c")
	early.At = early.At.Add(-time.Millisecond)
	unread.Headers = unread.Headers[1:]
	for _, c := range []struct {
		name     string
		received []history.Received
		want     []string // one word for each violation, in order
	}{
		{"exact", []history.Received{with(0, "a"), with(1, "b")}, nil},
		{"early", []history.Received{with(0, "a"), early}, []string{"early"}},
		{"one event twice", []history.Received{with(0, "a"), with(0, "a"), with(1, "b")}, []string{"duplicate"}},
		{"one occurrence twice", []history.Received{with(0, "a"), with(0, "x"), with(1, "b")}, []string{"duplicate"}},
		{"one timer twice", []history.Received{with(0, "a"), other(with(0, "x")), with(1, "b")}, []string{"2 times"}},
		{"no ID", []history.Received{with(0, "a"), with(1, "b"), unread}, []string{"lacks headers"}},
		{"lost", []history.Received{with(0, "a")}, []string{"loss: p-1"}},
		{"unwanted", []history.Received{with(0, "a"), with(1, "b"), with(7, "d")},
			[]string{"p-7 was emitted and must not be"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			byID, wrong := judged(c.received)
			wrong = append(wrong, repeated(byID, wrong)...)
			wrong = append(wrong, unlike(byID, []string{"p-0", "p-1"})...)
			if len(wrong) != len(c.want) ||
				!slices.EqualFunc(wrong, c.want,
					func(v history.Violation, word string) bool { return strings.Contains(v.String(), word) }) {
				t.Errorf("%q, want %q", wrong, c.want)
			}
		})
	}
}
