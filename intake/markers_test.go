package intake

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// ends reports whether the last record is the one before an offset, and nothing waits behind it.
func (s *sink) ends(next int64) func() bool {
	return func() bool {
		return len(s.records) > 0 && s.records[len(s.records)-1].Offset == next-1 && s.behind == 0
	}
}

// transact writes a record in a transaction, so a marker follows it.
func (rig *readRig) transact(cl *kgo.Client, stamp time.Time, end kgo.TransactionEndTry) {
	rig.t.Helper()
	must(rig.t, cl.BeginTransaction())
	rec := &kgo.Record{Topic: readTopic, Value: []byte("v"), Timestamp: stamp}
	must(rig.t, cl.ProduceSync(context.Background(), rec).FirstErr())
	if err := cl.EndTransaction(context.Background(), end); err != nil {
		rig.t.Fatal(err)
	}
}

func (rig *readRig) transactional() *kgo.Client {
	rig.t.Helper()
	cl, err := kgo.NewClient(append(rig.cl.Opts(), kgo.TransactionalID("t"))...)
	must(rig.t, err)
	rig.t.Cleanup(cl.Close)
	return cl
}

// Only markers and aborted records follow the last record: nothing waits to be read. A reader that counts them as
// requests shows a lag forever.
func TestReaderTellsThatOnlyMarkersAreLeft(t *testing.T) {
	rig := newReadRig(t, 1)
	cl := rig.transactional()
	s := new(sink)
	rig.run()
	rig.r.Add(readTopic, 0, 0, s)
	s.awaits(t, "has what there is", s.ends(readPerPart))
	// Each transaction is a record and a marker; reading continues after both.
	next := func(at int64) func() bool {
		return func() bool { return s.next == at && s.epoch > 0 }
	}
	for i := range int64(3) {
		rig.transact(cl, time.Now(), kgo.TryCommit)
		at := readPerPart + 4*i
		s.awaits(t, "has a committed one", s.ends(at+1))
		s.awaits(t, "has its marker", next(at+2))
		rig.transact(cl, time.Now(), kgo.TryAbort)
		s.awaits(t, "has the marker of an aborted one", next(at+4))
	}
	s.awaits(t, "has an aborted one", s.ends(readPerPart+9))
}

// Old timestamps use up a rate only while more follows: a partition that is read to its end is up to date.
func TestReaderIsUpToDateAfterMarkers(t *testing.T) {
	rig := newReadRig(t, 1)
	rig.r.SetQuota(readTopic, Quota{Rate: 20})
	cl := rig.transactional()
	s := new(sink)
	rig.run()
	rig.r.Add(readTopic, 0, readPerPart, s)
	long := time.Now().Add(-time.Hour)
	for i := range int64(30) { // more than a second's worth, in longer
		rig.transact(cl, long, kgo.TryCommit)
		s.has(t, int(i)+1)
		await.For(t, time.Second/20)
	}
	if s.look(func() bool { return s.over > 0 }) {
		t.Errorf("%d requests are beyond a rate that was kept", s.over)
	}
}

// A batch of an aborted transaction that is too large is skipped. Nothing behind the last record counts as waiting, not
// even its marker.
func TestASkippedBatchDoesNotCountAsWaiting(t *testing.T) {
	rig := newReadRig(t, 1)
	cl, err := kgo.NewClient(
		append(rig.cl.Opts(), kgo.TransactionalID("large"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerBatchMaxBytes(90<<20),
			kgo.MaxBufferedRecords(100), kgo.ManualFlushing())...)
	must(t, err)
	t.Cleanup(cl.Close)
	must(t, cl.BeginTransaction())
	for range 40 {
		cl.Produce(context.Background(), &kgo.Record{Topic: readTopic, Value: make([]byte, 1<<20)},
			func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
	}
	must(t, cl.Flush(context.Background()))
	if err := cl.EndTransaction(context.Background(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	s := new(sink)
	rig.run()
	rig.r.Add(readTopic, 0, 0, s)
	s.awaits(t, "has what there is", s.ends(readPerPart))
}
