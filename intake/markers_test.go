package intake

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// endSink records how much follows what it was given. mu guards the fields below it.
type endSink struct {
	unbounded
	mu     sync.Mutex
	last   int64 // offset
	behind int64
	over   int
	next   int64
	epoch  partlog.Epoch
}

func (e *endSink) Deliver(r partlog.Read) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, rec := range r.Records {
		e.last = rec.Offset
		if isOver(rec) {
			e.over++
		}
	}
	e.behind, e.next, e.epoch = r.End-e.last-1, r.Next, r.Epoch
}

func (e *endSink) Fail(error)               {}
func (e *endSink) Skip(*partlog.Unreadable) {}

func (e *endSink) goesOn() (at int64, epoch partlog.Epoch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.next, e.epoch
}

func (e *endSink) is(last, behind int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last == last && e.behind == behind
}

func (e *endSink) at() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// transact writes a record in a transaction, so a marker follows it.
func (rig *readRig) transact(cl *kgo.Client, stamp time.Time, end kgo.TransactionEndTry) {
	rig.t.Helper()
	if err := cl.BeginTransaction(); err != nil {
		rig.t.Fatal(err)
	}
	rec := &kgo.Record{Topic: readTopic, Value: []byte("v"), Timestamp: stamp}
	if err := cl.ProduceSync(context.Background(), rec).FirstErr(); err != nil {
		rig.t.Fatal(err)
	}
	if err := cl.EndTransaction(context.Background(), end); err != nil {
		rig.t.Fatal(err)
	}
}

func (rig *readRig) transactional() *kgo.Client {
	rig.t.Helper()
	cl, err := kgo.NewClient(append(rig.cl.Opts(), kgo.TransactionalID("t"))...)
	if err != nil {
		rig.t.Fatal(err)
	}
	rig.t.Cleanup(cl.Close)
	return cl
}

// Only markers and aborted records follow the last record: nothing waits to be read. A
// reader that counts them as requests shows a lag forever.
func TestReaderTellsThatOnlyMarkersAreLeft(t *testing.T) {
	rig := newReadRig(t, 1)
	cl := rig.transactional()
	s := &endSink{}
	rig.run()
	rig.r.Add(readTopic, 0, 0, s)
	await.Until(t, readLimit, "what there is", func() bool { return s.is(readPerPart-1, 0) })
	// Each transaction is a record and a marker; reading continues after both.
	next := func(at int64) func() bool {
		return func() bool { next, epoch := s.goesOn(); return next == at && epoch > 0 }
	}
	for i := range int64(3) {
		rig.transact(cl, time.Now(), kgo.TryCommit)
		last := readPerPart + 4*i
		await.Until(t, readLimit, "a committed one", func() bool { return s.is(last, 0) })
		await.Until(t, readLimit, "its marker", next(last+2))
		rig.transact(cl, time.Now(), kgo.TryAbort)
		await.Until(t, readLimit, "the marker of an aborted one", next(last+4))
	}
	await.Until(t, readLimit, "an aborted one", func() bool { return s.is(readPerPart+8, 0) })
}

// Old timestamps use up a rate only while more follows: a partition that is read to its
// end is up to date.
func TestReaderIsUpToDateAfterMarkers(t *testing.T) {
	rig := newReadRig(t, 1)
	rig.r.SetQuota(readTopic, Quota{Rate: 20})
	cl := rig.transactional()
	s := &endSink{}
	rig.run()
	rig.r.Add(readTopic, 0, readPerPart, s)
	long := time.Now().Add(-time.Hour)
	for i := range int64(30) { // more than a second's worth, in longer
		rig.transact(cl, long, kgo.TryCommit)
		await.Until(t, readLimit, "read", func() bool { return s.at() == readPerPart+2*i })
		await.For(t, time.Second/20)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over > 0 {
		t.Errorf("%d requests are beyond a rate that was kept", s.over)
	}
}

// A batch of an aborted transaction that is too large is skipped. Nothing behind the
// last record counts as waiting, not even its marker.
func TestASkippedBatchDoesNotCountAsWaiting(t *testing.T) {
	rig := newReadRig(t, 1)
	cl, err := kgo.NewClient(
		append(rig.cl.Opts(), kgo.TransactionalID("large"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerBatchMaxBytes(90<<20),
			kgo.MaxBufferedRecords(100), kgo.ManualFlushing())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		cl.Produce(context.Background(), &kgo.Record{Topic: readTopic, Value: make([]byte, 1<<20)},
			func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
	}
	if err := cl.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := cl.EndTransaction(context.Background(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	s := &endSink{}
	rig.run()
	rig.r.Add(readTopic, 0, 0, s)
	await.Until(t, readLimit, "what there is", func() bool { return s.is(readPerPart-1, 0) })
}
