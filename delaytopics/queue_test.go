package delaytopics

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/intake"
)

// However timestamps vary, items come in order, none before its own time or before the item in front of it, and bytes
// is the size of the items that are there.
func TestQueueKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		offset, dropped, bytes := int64(0), int64(0), int64(0)
		latest := int64(none)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") {
				own := rapid.SampledFrom([]int64{none, 5, 10, 20, 30}).Draw(t, "due")
				rec := &kgo.Record{Offset: offset, Value: make([]byte, rapid.IntRange(0, 9).Draw(t, "bytes"))}
				q.add(item{rec: rec, next: offset + 1}, own)
				offset++
				latest = max(latest, own)
				if it := q.items[len(q.items)-1]; it.due != latest {
					t.Fatalf("due %d, want %d", it.due, latest)
				}
			} else if len(q.items) > 0 {
				n := rapid.IntRange(1, len(q.items)).Draw(t, "drop")
				q.drop(n)
				dropped += int64(n)
			}
			bytes = 0
			for i, it := range q.items {
				if it.rec.Offset != dropped+int64(i) {
					t.Fatalf("offset %d at place %d behind %d", it.rec.Offset, i, dropped)
				}
				bytes += it.bytes
			}
			if q.bytes != bytes {
				t.Fatalf("%d bytes, want %d", q.bytes, bytes)
			}
			if due, ok := q.front(); ok != (len(q.items) > 0) || ok && due != q.items[0].due {
				t.Fatalf("front %d %v", due, ok)
			}
		}
	})
}

// A record of which some headers are not passed on has two lists of headers, and both count.
func TestQueueCountsHeadersOfItsOwn(t *testing.T) {
	const n = 1000
	rec := &kgo.Record{Headers: make([]kgo.RecordHeader, n)}
	var shared, own queue
	shared.add(item{rec: rec, says: intake.Delayed{Headers: rec.Headers}}, none)
	own.add(item{rec: rec, says: intake.Delayed{Headers: make([]kgo.RecordHeader, n-1)}}, none)
	if shared.bytes < n*headerMemory || own.bytes-shared.bytes != (n-1)*headerMemory {
		t.Errorf("one list is %d bytes, and two are %d", shared.bytes, own.bytes)
	}
}
