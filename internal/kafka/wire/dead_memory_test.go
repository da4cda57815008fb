package wire

import (
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/timer"
)

// allocated returns how many bytes do allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A request with many empty headers (two bytes each in the log, 40 in memory) is rejected, and its dead letter is cut
// to fit. Building it allocates by the size of the letter, whatever the headers are.
func TestMemoryOfDeadLetters(t *testing.T) {
	const limit = 1 << 20
	to := &topics.Topic{Name: "dead", MaxMessageBytes: limit}
	many := func(n int, key string) *kgo.Record {
		rec := &kgo.Record{Topic: "t", Key: []byte("a"), Headers: make([]kgo.RecordHeader, n)}
		for i := range rec.Headers {
			rec.Headers[i].Key = key
		}
		return rec
	}
	for _, tt := range []struct {
		name      string
		rec       *kgo.Record
		bound     uint64
		truncated string
	}{
		{"empty headers", many(15<<20, ""), 16 << 10, truncatedHeaders},
		{"timer- headers", many(1<<20, "timer-after"), 16 << 10, truncatedKey},
		{"headers of an earlier letter", many(1<<20, waterclock.HeaderReason), 16 << 10, ""},
		{"as many as fit", many(limit/11, ""), 4 * limit, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got *kgo.Record
			n := allocated(func() { got = DeadRequest(to, tt.rec, &timer.Refusal{Reason: "r", Detail: "d"}) })
			if n > tt.bound {
				t.Errorf("the letter of a request with %d headers allocates %d KiB, more than %d", len(tt.rec.Headers),
					n>>10, tt.bound>>10)
			}
			truncated := ""
			for _, h := range got.Headers {
				if h.Key == waterclock.HeaderTruncated {
					truncated = string(h.Value)
				}
			}
			if truncated != tt.truncated || StoredBytes(got) > limit {
				t.Errorf("truncated %q, %d bytes; want %q", truncated, StoredBytes(got), tt.truncated)
			}
		})
	}
}

// The letter of an emission is bounded in the same way. Its timer has limit-headers headers, 128 at most.
func TestMemoryOfDeadEmissions(t *testing.T) {
	to := &topics.Topic{Name: "dead", MaxMessageBytes: 1 << 20}
	tm := timer.Timer{ID: []byte("a"), Value: make([]byte, 2<<20), Target: timer.Target{Topic: "o"},
		Headers: make([]timer.Header, 128)}
	why := &timer.Refusal{Reason: "r", Detail: "d"}
	if n := allocated(func() { DeadEmission(to, waterclock.Source{}, &tm, why) }); n > 32<<10 {
		t.Errorf("the letter of an emission allocates %d KiB", n>>10)
	}
}
