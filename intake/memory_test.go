package intake

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/timer"
)

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// caseOf returns the batch of a name.
func caseOf(t *testing.T, name string) []byte {
	t.Helper()
	for _, c := range append(corpus.Cases(), corpus.Heavy()...) {
		if c.Name == name {
			return c.Batch(corpus.Nobody(time.Now()))
		}
	}
	t.Fatalf("no case %q", name)
	return nil
}

// idOf is the ID of a topic.
func idOf(t *testing.T, cl *kgo.Client, topic string) [16]byte {
	t.Helper()
	found, err := kadm.NewClient(cl).ListTopics(t.Context(), topic)
	must(t, err)
	return found[topic].ID
}

// eager is a sink that is full after its first delivery, like a partition whose budget is used up. It keeps that.
type eager struct {
	r         *Reader
	partition int32
	account   *budget.Account
	total     *atomic.Int64
	enough    *atomic.Int64 // how many have

	kept []partlog.Read
	used int64
}

const queueEntry = 1 << 10 // as package partition counts a request

func (e *eager) Room(next int64) timer.Size {
	bytes := e.account.Room(max(next, queueEntry))
	return timer.Size{Entries: int(bytes / queueEntry), Bytes: bytes}
}

func (e *eager) Deliver(r partlog.Read) {
	n := int64(len(r.Records))
	if n == 0 {
		return
	}
	e.r.Pause("many", e.partition)
	e.used += n * queueEntry
	e.account.Set(e.used)
	e.total.Add(n)
	if e.kept = append(e.kept, r); len(e.kept) == 1 {
		e.enough.Add(1)
	}
}
func (e *eager) Fail(error)               {}
func (e *eager) Skip(*partlog.Unreadable) {}

// A process that owns partitions on several brokers catches up. The records that come before a partition can hold
// intake back fit into the memory for requests, and each partition gets some.
func TestWhatComesBeforeAPauseHasABound(t *testing.T) {
	const brokers, partitions, total = 6, 96, 16 << 20
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(brokers), kfake.SeedTopics(partitions, "many"))
	raw, id := caseOf(t, "sound: 2000 records, none"), idOf(t, cl, "many")
	for p := range int32(partitions) {
		for range 5 {
			must(t, corpus.Produce(t.Context(), cl, "many", id, p, raw))
		}
	}
	r, err := NewReader(1<<20, testFetch, kgo.SeedBrokers(c.ListenAddrs()...))
	must(t, err)
	var got, enough atomic.Int64
	shared := budget.New(total, map[string]int32{"many": partitions})
	before := heapInUse()
	for p := range int32(partitions) {
		r.Add("many", p, 0, &eager{r: r, partition: p, account: shared.Open("many"), total: &got, enough: &enough})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	await.Until(t, readLimit, "all partitions have enough", func() bool { return enough.Load() >= partitions })
	await.For(t, 100*time.Millisecond)
	held := heapInUse() - before
	t.Logf("%d requests count as %d MiB, and take %d MiB", got.Load(), got.Load()*queueEntry>>20, held>>20)
	// Brokers answer at the same time: each may find the room that another one is about to use, for a batch.
	if most := int64(total + (brokers-1)*2000*queueEntry); got.Load()*queueEntry > most || held > total {
		t.Errorf("%d requests count as %d MiB and take %d MiB, of %d MiB", got.Load(), got.Load()*queueEntry>>20,
			held>>20, total>>20)
	}
}
