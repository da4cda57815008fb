package partlog

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// roomyReader returns a Reader of a log with batches of many sizes, how many offsets it has, and a count of its
// fetches.
func roomyReader(t *testing.T) (p *partition, r *Reader, end int64, fetches *kfake.FaultHandle) {
	t.Helper()
	p = newPartition(kafkatest.OnFake(t, 1), nil)
	rig := &consumerRig{Setup: p.Setup, cl: p.cl, id: p.target.ID}
	rig.Topic = p.target.Topic
	for i, raw := range [][]byte{
		batchOf(1, make([]byte, 40), false),
		caseOf(t, "sound: 2000 records, zstd").Batch(corpus.Nobody(time.UnixMilli(0))),
		batchOf(50, make([]byte, 90), false), batchOf(1, make([]byte, 30_000), false), batchOf(400, nil, false),
	} {
		rig.write(0, raw)
		if end += corpus.Span(raw); end != p.end() {
			t.Fatalf("batch %d ends at %d, want %d", i, p.end(), end)
		}
	}
	fetches = p.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
	return p, NewReader(p.cl, p.target, 0), end, fetches
}

// Pages have a bound in memory, beyond one record. The remaining records come with the next pages, without a fetch,
// once and in order.
func TestPagesHaveABound(t *testing.T) {
	for _, room := range []int64{1, 1000, 20_000, pageMemory} {
		p, r, end, fetches := roomyReader(t)
		r.SetRoom(room)
		next, pages := int64(0), 0
		for ; r.Position() < end; pages++ {
			page, err := r.Next(p.Ctx, 0)
			if err != nil || page.HighWatermark != end || page.LastStable != end {
				t.Fatalf("%+v, %v", page, err)
			}
			var memory, largest int64
			for _, rec := range page.Records {
				if rec.Offset != next {
					t.Fatalf("record %d, want %d", rec.Offset, next)
				}
				next++
				memory, largest = memory+Memory(rec), max(largest, Memory(rec))
			}
			if len(page.Records) == 0 || memory > room+largest || r.Position() != next {
				t.Fatalf("%d records of %d bytes to %d, with room for %d", len(page.Records), memory,
					r.Position(), room)
			}
			if epoch, behind := r.Last(); epoch == 0 || behind != next {
				t.Fatalf("epoch %d below %d, at %d", epoch, behind, next)
			}
		}
		if pages > 1 != (room < pageMemory) || fetches.Hits() != 1 {
			t.Errorf("%d pages of %d bytes and %d fetches", pages, room, fetches.Hits())
		}
	}
}

// SetPosition drops the kept records, even if the position stays the same.
func TestSetPositionDropsWhatIsKept(t *testing.T) {
	p, r, end, fetches := roomyReader(t)
	r.SetRoom(1000)
	if page, err := r.Next(p.Ctx, 0); err != nil || len(page.Records) == 0 || r.Position() >= end {
		t.Fatal(page, err)
	}
	for i, to := range []int64{2040, 5, r.Position()} {
		r.SetPosition(to)
		page, err := r.Next(p.Ctx, 0)
		if err != nil || len(page.Records) == 0 || page.Records[0].Offset != to || fetches.Hits() != i+2 {
			t.Fatalf("from %d: %d records, %v, after %d fetches", to, len(page.Records), err, fetches.Hits())
		}
	}
}

// A batch that is unreadable or too large is an Unreadable wherever a page begins, and the records behind it are read.
func TestReaderPassesAnUnreadable(t *testing.T) {
	runs.NotRaced(t)
	kafkatest.OnBoth(t, func(t *testing.T, on *kafkatest.Setup) {
		p := newPartition(on, map[string]*string{"retention.ms": kmsg.StringPtr("-1")}) // plain records are old
		rig := &consumerRig{Setup: p.Setup, cl: p.cl, id: p.target.ID}
		rig.Topic = p.target.Topic
		for _, raw := range [][]byte{
			batchOf(2, nil, false), caseOf(t, undecodable).Batch(corpus.Nobody(time.Now())), batchOf(2, nil, false),
			caseOf(t, "large: 64 MiB of zeros, gzip").Batch(corpus.Nobody(time.Now())), batchOf(1, nil, false),
		} {
			rig.write(0, raw) // 0 and 1; 2 to 4; 5 and 6; 7; 8
		}
		for _, room := range []int64{1, pageMemory} {
			r := NewReader(p.cl, p.target, 0)
			r.SetMaxUnpacked(MaxUnpacked)
			r.SetRoom(room)
			records := 0
			var bad []*Unreadable
			for page, err := range r.To(p.Ctx, 9) {
				u, unreadable := errors.AsType[*Unreadable](err)
				switch {
				case unreadable:
					if bad = append(bad, u); u.First != r.Position() {
						t.Fatalf("%v at %d", u, r.Position())
					}
					r.SetPosition(u.Next)
				case err != nil:
					t.Fatal(err)
				}
				records += len(page.Records)
			}
			if records != 5 || len(bad) != 2 || bad[0].Next != 5 || bad[0].TooLarge || bad[1].Next != 8 ||
				!bad[1].TooLarge {
				t.Errorf("with room for %d bytes %d records, %v", room, records, bad)
			}
		}
	})
}
