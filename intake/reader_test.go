package intake

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	readTopic   = "requests"
	readLimit   = 20 * time.Second // of every wait of a test
	readPerPart = 10               // records in each partition at the start
	testFetch   = 1 << 20
)

// readRig is a broker with a request topic, and a running reader.
type readRig struct {
	t  *testing.T
	cl *kgo.Client
	r  *Reader
}

func newReadRig(t *testing.T, partitions int32) *readRig {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(partitions, readTopic))
	cl := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0))
	r, err := NewReader(1<<20, testFetch, kgo.SeedBrokers(c.ListenAddrs()...), kgo.MetadataMinAge(10*time.Millisecond))
	must(t, err)
	rig := &readRig{t: t, cl: cl, r: r}
	for p := range partitions {
		rig.produce(p, readPerPart)
	}
	return rig
}

// run starts the reader; it ends with the test.
func (rig *readRig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = rig.r.Run(ctx) })
	rig.t.Cleanup(func() { cancel(); wg.Wait() })
}

func (rig *readRig) produce(partition int32, n int) {
	rig.t.Helper()
	for range n {
		rec := &kgo.Record{Topic: readTopic, Partition: partition, Value: []byte("v")}
		must(rig.t, rig.cl.ProduceSync(context.Background(), rec).FirstErr())
	}
}

// sink keeps all deliveries. mu guards the fields below it.
type sink struct {
	name string

	mu      sync.Mutex
	records []*kgo.Record
	times   []time.Time // when each came
	over    int         // records beyond the quota
	next    int64
	behind  int64 // the last record
	epoch   partlog.Epoch
}

var _ partlog.Sink = (*sink)(nil)

func (s *sink) Room(int64) timer.Size { return timer.Unlimited }

func (s *sink) Deliver(r partlog.Read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rec := range r.Records {
		s.records, s.times = append(s.records, rec), append(s.times, time.Now())
		if isOver(rec) {
			s.over++
		}
	}
	if n := len(s.records); n > 0 {
		s.behind = r.End - s.records[n-1].Offset - 1
	}
	s.next, s.epoch = r.Next, r.Epoch
}

func (*sink) Fail(error)               {}
func (*sink) Skip(*partlog.Unreadable) {}

// look calls what with the sink's lock.
func (s *sink) look(what func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return what()
}

func (s *sink) got() (offsets []int64) {
	s.look(func() bool {
		for _, r := range s.records {
			offsets = append(offsets, r.Offset)
		}
		return true
	})
	return offsets
}

// awaits waits until a condition holds for the sink's deliveries.
func (s *sink) awaits(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await.Until(t, readLimit, s.name+" "+what, func() bool { return s.look(holds) })
}

// has waits for n records.
func (s *sink) has(t *testing.T, n int) {
	t.Helper()
	s.awaits(t, fmt.Sprintf("is given %d records", n), func() bool { return len(s.records) >= n })
}

// wants checks that the sink was given exactly the offsets from, … to-1, once and in order.
func (s *sink) wants(t *testing.T, from, to int64) {
	t.Helper()
	s.has(t, int(to-from))
	var want []int64
	for o := from; o < to; o++ {
		want = append(want, o)
	}
	if got := s.got(); !slices.Equal(got, want) {
		t.Errorf("%s was given offsets %v, want %v", s.name, got, want)
	}
}

// Two sinks for one partition: the new owner's is added before the old owner's is removed. The old Remove must not stop
// the new reading.
func TestReaderOldRemoveLeavesTheNewSink(t *testing.T) {
	rig := newReadRig(t, 1)
	rig.run()
	before, after := &sink{name: "old"}, &sink{name: "new"}
	rig.r.Add(readTopic, 0, 0, before)
	before.wants(t, 0, readPerPart)
	rig.r.Add(readTopic, 0, 4, after)
	rig.r.Remove(readTopic, 0, before)
	after.wants(t, 4, readPerPart)
	rig.produce(0, 2)
	after.wants(t, 4, readPerPart+2)
	before.wants(t, 0, readPerPart)
}

// All calls are legal on a reader that was never run, or was stopped.
func TestReaderAfterRun(t *testing.T) {
	rig := newReadRig(t, 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	must(t, rig.r.Run(ctx))
	s := &sink{name: "late"}
	rig.r.Add(readTopic, 0, 0, s)
	rig.r.Pause(readTopic, 0)
	rig.r.Resume(readTopic, 0)
	rig.r.Remove(readTopic, 0, s)
}

// must ends the test with an error, if there is one.
func must(t interface {
	Helper()
	Fatal(args ...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
