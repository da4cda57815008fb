package partlog

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

func scriptedReadAll(t *testing.T, r *Reader, raw []byte, n int) (took time.Duration, pages int) {
	t.Helper()
	a := answer()
	a.RecordBatches, a.LastStableOffset, a.HighWatermark = raw, int64(n), int64(n)
	begun := time.Now()
	for got := 0; got < n; pages++ {
		var page Page
		var err error
		if pages == 0 {
			page, err = r.take(a)
		} else {
			page, err = r.Next(t.Context(), 0)
		}
		must(t, err)
		got += len(page.Records)
	}
	return time.Since(begun), pages
}

// A page has room for a part of a batch. Each further page decompresses, checks and skips all of the batch again, so
// the work is quadratic (audit reads with pages of 8 MiB: a batch of 30 MB is 600 MB as records).
func TestPagesOfOneBatchAreLinear(t *testing.T) {
	runs.NotRaced(t)
	const n = 600_000
	raw := batchOf(n, []byte("v"), true)
	whole := NewReader(nil, Log{Topic: "t"}, 0)
	whole.SetRoom(1 << 40)
	one, _ := scriptedReadAll(t, whole, raw, n)
	paged := NewReader(nil, Log{Topic: "t"}, 0)
	paged.SetRoom(2 << 20)
	many, pages := scriptedReadAll(t, paged, raw, n)
	if many > 5*one+50*time.Millisecond {
		t.Errorf("a batch of %d KiB takes %s in one page and %s in %d", len(raw)>>10, one, many, pages)
	}
}

// A resting replay gives its slot back, and calls LookAgain. It must not keep its last fetch: there are as many resting
// replays as followed partitions.
func TestALookAgainKeepsNoFetch(t *testing.T) {
	r := NewReader(nil, Log{Topic: "t"}, 0)
	r.SetRoom(1)
	a := answer()
	a.RecordBatches = append(batch(5, 3, 3), make([]byte, 4<<20)...)
	if _, err := r.take(a); err != nil {
		t.Fatal(err)
	}
	if r.LookAgain(); r.kept != nil {
		t.Errorf("%d KiB of a fetch stay while the replay waits for a slot", cap(r.kept.rest)>>10)
	}
}
