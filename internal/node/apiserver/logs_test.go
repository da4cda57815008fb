package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

// A reader that follows a log gets an error once retention has cut the log, and none of the remaining records.
func TestFollowEndsAtAGap(t *testing.T) {
	c := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	defer c.Close()
	opts := []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}
	cl := kafkatest.Client(t, opts...)
	for range 3 {
		if err := cl.ProduceSync(
			t.Context(), &kgo.Record{Topic: "events", Value: []byte("{}")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var cut kadm.Offsets
	cut.Add(kadm.Offset{Topic: "events", At: 2})
	if gone, err := kadm.NewClient(cl).DeleteRecords(t.Context(), cut); err != nil || gone.Error() != nil {
		t.Fatal(err, gone.Error())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l := newLogs(&Instance{Options: opts}, slog.New(slog.DiscardHandler))
	errStop := errors.New("told")
	follow := func(from int64) error {
		return l.Follow(ctx, "events", api.Position{Next: []int64{from}}, func(r *api.Record) error {
			if r != nil {
				return errStop
			}
			return nil
		})
	}
	if err := follow(1); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("behind what is gone: %v", err)
	}
	if err := follow(2); !errors.Is(err, errStop) {
		t.Errorf("what is there: %v", err)
	}
}

// The memory of one read of a log is bounded, even if the records are compressed.
func TestReadOfCompressedLettersHasABound(t *testing.T) {
	const letters, size = 60, 900 << 10
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "letters"))
	opts := []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}
	cl := kafkatest.Client(t,
		append(opts, kgo.ProducerBatchCompression(kgo.SnappyCompression()), kgo.ProducerLinger(0))...)
	zeros := make([]byte, size) // a payload below the default limit of a record
	for range letters {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "letters", Value: zeros}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	l := newLogs(&Instance{Options: opts}, slog.New(slog.DiscardHandler))
	read := func() (held int64) {
		before, n := max(heap(), heap()), 0
		if err := l.Read(t.Context(), "letters", map[int32][2]int64{0: {0, letters}}, func(r *api.Record) error {
			if len(r.Value) != size || r.Offset != int64(n) {
				t.Errorf("letter %d has offset %d and %d bytes", n, r.Offset, len(r.Value))
			}
			if n++; n%10 == 1 {
				held = max(held, heap()-before)
			}
			return nil
		}); err != nil || n != letters {
			t.Fatal(n, err)
		}
		return held
	}
	read() // one-time allocations
	most := read()
	t.Logf("%d KiB", most>>10)
	if bound := int64(16 << 20); most > bound { // of 53 MiB; the broker that answers is in this process too
		t.Errorf("a read holds %d KiB, more than %d KiB", most>>10, bound>>10)
	}
}

// An open transaction delivers pieces without records all the time. While the caller is slow they do not add up, and
// the caller gets the last position.
func TestReadsWithoutRecordsJoin(t *testing.T) {
	q := &queue{room: 1 << 20, wake: beats.NewSignal()}
	var tails []*tail
	for p := range int32(2) {
		tails = append(tails, &tail{queue: q, partition: p})
	}
	next := make([]int64, len(tails))
	for i := range int64(1000) {
		for p, tail := range tails {
			read := partlog.Read{Next: 10 * (i + 1), Stable: i}
			if i == 5 {
				read.Records = []*kgo.Record{{Partition: int32(p), Offset: 42}}
			}
			tail.Deliver(read)
		}
	}
	records, reads := 0, 0
	for {
		d, err := q.next()
		if err != nil {
			t.Fatal(err)
		}
		if d == nil {
			break
		}
		if d.Next <= next[d.partition] {
			t.Errorf("partition %d: next is %d behind %d", d.partition, d.Next, next[d.partition])
		}
		reads, records, next[d.partition] = reads+1, records+len(d.Records), d.Next
		q.release(d)
	}
	if reads != 4 || records != 2 || next[0] != 10_000 || next[1] != 10_000 || q.held != 0 {
		t.Errorf("%d reads with %d records to %v, %d bytes held", reads, records, next, q.held)
	}
}

// Calls and streams meet the same unreadable batch again and again. The log has it once a minute for each topic.
func TestUnreadableBatchesAreLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		l := newLogs(new(Instance), slog.New(slog.NewTextHandler(&text, nil)))
		start := time.Now()
		for time.Since(start) < 2*unreadableReminder {
			for _, topic := range []string{"letters", "events"} {
				(&tail{queue: &queue{topic: topic}, logs: l}).Skip(
					&partlog.Unreadable{First: 3, Next: 4, Err: errors.New("damaged")})
			}
			time.Sleep(time.Second)
		}
		if n := strings.Count(text.String(), "unreadable batch left out"); n != 4 {
			t.Errorf("%d lines, want 4", n)
		}
	})
}
