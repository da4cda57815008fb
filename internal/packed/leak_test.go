package packed

import (
	"fmt"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// A slot that always has a few records holds no more chunks for all that have come and gone.
func TestASlotThatIsNeverEmpty(t *testing.T) {
	x := new(Index)
	w := New(x, 2, 0, 6)
	n := int64(0)
	add := func(count int) {
		for range count {
			n++
			r := timer.Timer{ID: fmt.Appendf(nil, "id%d", n), Offset: n, Due: 30 * 86400_000, Occurrence: 1, Target: timer.Target{Topic: "t", Partition: timer.AnyPartition}, Value: make([]byte, 200)}
			if !w.Add(Record{Bytes: r.AppendTo(nil), State: Stale, Stored: timer.Absent}, x.Sum(r.ID)) {
				t.Fatal("a record is refused")
			}
		}
	}
	for range 100 {
		add(5000)
		w.Freeze(func(Record) {})
		add(100)
		w.Thaw(func(r Record) { x.Delete(x.Sum(r.ID())) })
	}
	chunks := 0
	for _, all := range w.buckets {
		if all == nil {
			continue
		}
		for i := range all {
			chunks += len(all[i].chunks)
		}
	}
	if chunks > 1000 {
		t.Errorf("%d chunks for %d records", chunks, w.Len())
	}
}
