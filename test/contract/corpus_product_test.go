package contract

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
	"github.com/waterclock/waterclock/internal/timer"
)

// heard is a sink that notes what it is given of the partition of a case. Its fields but next belong to the reader
// until that has ended.
type heard struct {
	recs   []*kgo.Record
	skips  []*partlog.Unreadable
	failed error
	next   atomic.Int64
}

func (h *heard) Room(int64) timer.Size { return timer.Unlimited }

func (h *heard) Deliver(r partlog.Read) {
	h.recs = append(h.recs, r.Records...)
	h.next.Store(r.Next)
}

func (h *heard) Skip(u *partlog.Unreadable) {
	h.skips = append(h.skips, u)
	h.next.Store(u.Next)
}

func (h *heard) Fail(err error) { h.failed = err }

// between is what was heard of the offsets [from, to), in the words of the table.
func (h *heard) between(from, to int64) string {
	var recs []*kgo.Record
	var said []string
	for _, r := range h.recs {
		if r.Offset >= from && r.Offset < to {
			recs = append(recs, r)
		}
	}
	for _, u := range h.skips {
		if u.First >= from && u.First < to {
			said = append(said, fmt.Sprintf("dead letter %s for %d offsets: %v", u.Refusal("records").Reason,
				u.Next-u.First, u.Err))
		}
	}
	if len(recs) > 0 || len(said) == 0 {
		records := fmt.Sprint(len(recs), " records")
		if len(recs) > 0 {
			records += ", " + corpus.Digest(recs...)
		}
		said = append(said, records)
	}
	for i, r := range recs {
		if r.Offset != from+int64(i) {
			said = append(said, fmt.Sprint("at ", r.Offset-from))
		}
	}
	if h.failed != nil {
		said = append(said, "fails: "+h.failed.Error())
	}
	return strings.Join(said, ", ")
}

// product reads what was written with a Consumer, each partition to the sound record behind the batches, and returns
// what it makes of the batches, plain and aborted.
func (b *bench) product(seeds []string) map[string][2]string {
	cl := kafkatest.Client(b.t, kgo.SeedBrokers(seeds...))
	c := partlog.NewConsumer(cl, partlog.MaxUnpacked, 16<<20)
	ctx, cancel := context.WithCancel(b.ctx)
	sinks := make(map[*written]*heard)
	for _, w := range b.all {
		if w.broker == taken || w.aborted == taken {
			sinks[w] = new(heard)
			c.Add(w.topic, w.partition, w.from[0]-1, sinks[w])
		}
	}
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	for w, sink := range sinks {
		end := max(w.to[0], w.to[1]) + 1
		if _, ok := await.Within(time.Minute, func() bool { return sink.next.Load() >= end }); !ok {
			b.t.Errorf("%s: read to %d of %d", w.Name, sink.next.Load(), end)
		}
	}
	cancel()
	running.Wait()
	got := make(map[string][2]string)
	for w, sink := range sinks {
		var said [2]string
		for i := range said {
			if w.to[i] > 0 {
				said[i] = sink.between(w.from[i], w.to[i])
			}
		}
		got[w.Name] = said
	}
	return got
}

// apart says why the service does not read what Kafka's consumer reads.
func apart(name string) (why string) {
	switch {
	case strings.HasPrefix(name, "offset deltas: "):
		// a position is an offset: two records cannot have the same, and Java drops some of them silently
		return "dead letter "
	case strings.HasPrefix(name, "large: 64 MiB"):
		return "dead letter batch-too-large "
	case strings.HasPrefix(name, "large: 100000 empty headers"):
		return "1 records, " // with the first partlog.MaxHeaders of them, and their number
	}
	return ""
}

// judge compares what the service reads with what Kafka's consumer does. What that reads whole, at the offsets that the
// batch says, the service must read alike; for everything else there is one dead letter, and nothing of the batch.
func judge(t *testing.T, name string, v corpus.Verdict, said [2]string) {
	t.Helper()
	if v.Taken() {
		switch alike := readWhole(v) && !strings.Contains(v.Consumer, ", at "); {
		case alike && said[0] != v.Consumer && apart(name) != "" && strings.HasPrefix(said[0], apart(name)):
		case alike && said[0] != v.Consumer:
			t.Errorf("%s: Kafka's consumer: %s; here: %s", name, v.Consumer, said[0])
		case !alike && (!strings.HasPrefix(said[0], "dead letter ") || strings.Contains(said[0], " records, ")):
			t.Errorf("%s: Kafka's consumer: %s; here: %s, want a dead letter and nothing else", name,
				v.Consumer, said[0])
		}
	}
	if said[1] != "" && said[1] != v.Aborted {
		t.Errorf("%s, aborted: Kafka's consumer: %s; here: %s", name, v.Aborted, said[1])
	}
}

// readWhole reports whether Kafka's consumer reads the batch to its end and goes on.
func readWhole(v corpus.Verdict) bool {
	var records int
	var digest string
	n, err := fmt.Sscanf(v.Consumer, "%d records, %s", &records, &digest)
	return v.Taken() && !strings.Contains(v.Consumer, ", then ") && err == nil && n == 2
}
