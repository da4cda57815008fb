package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
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

// unbounded is the part of a sink that always has room.
type unbounded struct{}

func (unbounded) Room(int64) timer.Size { return timer.Unlimited }

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
	if err != nil {
		t.Fatal(err)
	}
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
		if err := rig.cl.ProduceSync(context.Background(), rec).FirstErr(); err != nil {
			rig.t.Fatal(err)
		}
	}
}

// deleteBelow moves a log's start, as retention does.
func (rig *readRig) deleteBelow(partition int32, offset int64) {
	rig.t.Helper()
	os := make(kadm.Offsets)
	os.AddOffset(readTopic, partition, offset, -1)
	if _, err := kadm.NewClient(rig.cl).DeleteRecords(context.Background(), os); err != nil {
		rig.t.Fatal(err)
	}
}

// sink records the offsets that it is given. mu guards the fields below it.
type sink struct {
	unbounded
	name    string
	entered chan struct{} // closed at the first Deliver, if not nil
	hold    chan struct{} // Deliver waits until it is closed, if not nil
	once    sync.Once

	mu      sync.Mutex
	offsets []int64
	errs    []error
	refused [][2]int64
}

func (s *sink) Deliver(r partlog.Read) {
	recs := r.Records
	s.mu.Lock()
	for _, r := range recs {
		s.offsets = append(s.offsets, r.Offset)
	}
	s.mu.Unlock()
	if s.entered != nil {
		s.once.Do(func() { close(s.entered) })
	}
	if s.hold != nil {
		<-s.hold
	}
}

func (s *sink) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
}

func (s *sink) Skip(u *partlog.Unreadable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = append(s.refused, [2]int64{u.First, u.Next})
}

func (s *sink) got() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.offsets)
}

func (s *sink) failures() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.errs)
}

// wants checks that the sink was given exactly the offsets from, … to-1, once and in
// order.
func (s *sink) wants(t *testing.T, from, to int64) {
	t.Helper()
	await.Until(t, readLimit, fmt.Sprintf("%s is given offsets to %d", s.name, to),
		func() bool { return int64(len(s.got())) >= to-from })
	var want []int64
	for o := from; o < to; o++ {
		want = append(want, o)
	}
	if got := s.got(); !slices.Equal(got, want) {
		t.Errorf("%s was given offsets %v, want %v", s.name, got, want)
	}
}

// A partition that comes back is read from its new offset, whether that is further on
// or further back, and its new sink gets nothing of the old reading.
func TestReaderAddsAgainAtAnotherOffset(t *testing.T) {
	rig := newReadRig(t, 2)
	rig.run()
	for i, from := range []int64{0, 7, 3, 10, 0, 9} {
		s := &sink{name: fmt.Sprintf("sink %d from %d", i, from)}
		rig.r.Add(readTopic, 0, from, s)
		s.wants(t, from, readPerPart)
		rig.r.Remove(readTopic, 0, s)
	}
	last := &sink{name: "last"}
	rig.r.Add(readTopic, 0, readPerPart, last)
	rig.produce(0, 3)
	last.wants(t, readPerPart, readPerPart+3)
}

// A fetch has brought records of two partitions. While the sink of the first one takes
// its records, the other partition is lost and acquired again at another position. The
// records that the fetch still holds belong to the old reading: given to the new sink
// they would be planned twice, or leave a gap.
func TestReaderPollUnderWayIsNotForTheNextSink(t *testing.T) {
	for _, from := range []int64{0, 4} {
		t.Run(fmt.Sprintf("from %d", from), func(t *testing.T) {
			rig := newReadRig(t, 2)
			hold := make(chan struct{})
			entered := make(chan struct{})
			var once sync.Once
			old := make([]*holding, 2)
			for p := range old {
				old[p] = &holding{partition: int32(p), enter: func() { once.Do(func() { close(entered) }) }, hold: hold}
				rig.r.Add(readTopic, int32(p), 2, old[p])
			}
			// One fetch asks for both partitions.
			rig.run()
			select {
			case <-entered:
			case <-time.After(readLimit):
				t.Fatal("nothing is delivered")
			}
			other := int32(0)
			if len(old[0].got()) > 0 {
				other = 1
			}
			next := &sink{name: "next owner's sink"}
			changed := make(chan struct{})
			go func() {
				defer close(changed)
				rig.r.Remove(readTopic, other, old[other])
				rig.r.Add(readTopic, other, from, next)
			}()
			// The change may or may not wait for the other delivery; both are right.
			select {
			case <-changed:
			case <-time.After(50 * time.Millisecond):
			}
			close(hold)
			next.wants(t, from, readPerPart)
		})
	}
}

// holding is a sink that holds its first Deliver.
type holding struct {
	sink
	partition int32
	enter     func()
	hold      chan struct{}
}

func (h *holding) Deliver(r partlog.Read) {
	h.sink.Deliver(r)
	h.enter()
	<-h.hold
}

// Once Remove has returned nothing more is delivered, not even by a Deliver that had
// begun: the caller of Remove may free what Deliver uses.
func TestReaderRemoveWaitsForDeliver(t *testing.T) {
	rig := newReadRig(t, 1)
	rig.run()
	s := &sink{name: "sink", entered: make(chan struct{}), hold: make(chan struct{})}
	rig.r.Add(readTopic, 0, 0, s)
	<-s.entered
	removed := make(chan struct{})
	go func() { rig.r.Remove(readTopic, 0, s); close(removed) }()
	select {
	case <-removed:
		t.Error("Remove has returned while Deliver runs")
	case <-time.After(100 * time.Millisecond):
	}
	close(s.hold)
	select {
	case <-removed:
	case <-time.After(readLimit):
		t.Fatal("Remove does not return")
	}
	before := len(s.got())
	rig.produce(0, 3)
	probe := &sink{name: "probe"}
	rig.r.Add(readTopic, 0, readPerPart, probe)
	probe.wants(t, readPerPart, readPerPart+3)
	if got := s.got(); len(got) != before {
		t.Errorf("the removed sink was given %v", got[before:])
	}
}

// Two sinks for one partition: the new owner's is added before the old owner's is
// removed. The old Remove must not stop the new reading.
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

// However often a partition is paused and resumed, alone or with all others, every
// record comes once and the last Resume continues it.
func TestReaderPauseAndResume(t *testing.T) {
	const rounds = 60
	rig := newReadRig(t, 2)
	rig.run()
	sinks := []*sink{{name: "partition 0"}, {name: "partition 1"}}
	for p, s := range sinks {
		rig.r.Add(readTopic, int32(p), 0, s)
	}
	var toggling sync.WaitGroup
	for p := range int32(2) {
		toggling.Go(func() {
			for range rounds {
				rig.r.Pause(readTopic, p)
				rig.r.Resume(readTopic, p)
			}
		})
	}
	for range rounds {
		rig.produce(0, 1)
		rig.produce(1, 1)
	}
	toggling.Wait()
	for _, s := range sinks {
		s.wants(t, 0, readPerPart+rounds)
	}
	// At rest: paused while nothing is there, resumed after something came.
	for p := range int32(2) {
		rig.r.Pause(readTopic, p)
	}
	rig.produce(0, 1)
	rig.produce(1, 1)
	for p := range int32(2) {
		rig.r.Resume(readTopic, p)
	}
	for _, s := range sinks {
		s.wants(t, 0, readPerPart+rounds+1)
	}
}

// A partition that was paused when it was removed is read when it is added again.
func TestReaderAddResumes(t *testing.T) {
	rig := newReadRig(t, 1)
	rig.run()
	before, after := &sink{name: "old"}, &sink{name: "new"}
	rig.r.Add(readTopic, 0, 0, before)
	before.wants(t, 0, readPerPart)
	rig.r.Pause(readTopic, 0)
	rig.r.Remove(readTopic, 0, before)
	rig.r.Add(readTopic, 0, 5, after)
	after.wants(t, 5, readPerPart)
}

// If the log does not hold an offset, the partition's sink is told so again and again.
// The reader does not choose another offset by itself, and goes on reading the others.
func TestReaderTellsOffsetOutOfRange(t *testing.T) {
	for _, tc := range []struct {
		name string
		from int64
	}{
		{"beyond the end", readPerPart + 5},
		{"below the start", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rig := newReadRig(t, 2)
			rig.deleteBelow(0, 5)
			rig.run()
			bad, good := &sink{name: "bad"}, &sink{name: "good"}
			rig.r.Add(readTopic, 0, tc.from, bad)
			rig.r.Add(readTopic, 1, 0, good)
			await.Until(t, readLimit, "the sink is told twice", func() bool { return len(bad.failures()) >= 2 })
			if err := bad.failures()[0]; !errors.Is(err, kerr.OffsetOutOfRange) {
				t.Errorf("told %v, want OFFSET_OUT_OF_RANGE", err)
			}
			good.wants(t, 0, readPerPart)
			if got := bad.got(); len(got) > 0 {
				t.Errorf("delivered %v", got)
			}
			rig.r.Remove(readTopic, 0, bad)
			again := &sink{name: "again"}
			rig.r.Add(readTopic, 0, 5, again)
			again.wants(t, 5, readPerPart)
		})
	}
}

// All calls are legal on a reader that was never run, or was stopped.
func TestReaderAfterRun(t *testing.T) {
	rig := newReadRig(t, 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := rig.r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	s := &sink{name: "late"}
	rig.r.Add(readTopic, 0, 0, s)
	rig.r.Pause(readTopic, 0)
	rig.r.Resume(readTopic, 0)
	rig.r.Remove(readTopic, 0, s)
}

// pack produces one batch of n requests with values of size zeros, which compress well.
func (rig *readRig) pack(partition int32, n, size int) {
	rig.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(rig.cl.OptValue(kgo.SeedBrokers).([]string)...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerBatchMaxBytes(90<<20), kgo.ManualFlushing())
	if err != nil {
		rig.t.Fatal(err)
	}
	defer cl.Close()
	for range n {
		cl.Produce(context.Background(), &kgo.Record{Topic: readTopic, Partition: partition, Value: make([]byte, size)},
			func(_ *kgo.Record, err error) {
				if err != nil {
					rig.t.Errorf("produce: %v", err)
				}
			})
	}
	if err := cl.Flush(context.Background()); err != nil {
		rig.t.Fatal(err)
	}
}

// A batch that would fill the memory is not decompressed. Its sink is told which one it
// is, once, and reading continues after it.
func TestReaderPassesABatchThatIsTooLarge(t *testing.T) {
	const n, size = 40, 1 << 20
	rig := newReadRig(t, 1)
	rig.pack(0, n, size)
	rig.produce(0, 3)
	rig.run()
	s := &sink{name: "sink"}
	rig.r.Add(readTopic, 0, 0, s)
	await.Until(t, readLimit, "what lies behind the batch is delivered",
		func() bool { return len(s.got()) >= readPerPart+3 })
	if got := s.got(); got[readPerPart-1] != readPerPart-1 || got[readPerPart] != readPerPart+n ||
		len(got) != readPerPart+3 {
		t.Errorf("given %v", got)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := [][2]int64{{readPerPart, readPerPart + n}}; !slices.Equal(s.refused, want) || len(s.errs) > 0 {
		t.Errorf("told of %v, %v; want %v", s.refused, s.errs, want)
	}
}

// However well batches compress, what comes at once is bounded, and everything comes.
func TestReaderUnpacksLittleAtOnce(t *testing.T) {
	const batches, n, size = 24, 4, 512 << 10
	rig := newReadRig(t, 2)
	for p := range int32(2) {
		for range batches {
			rig.pack(p, n, size)
		}
	}
	most := 0
	sinks := []*sizes{{sink: sink{name: "partition 0"}}, {sink: sink{name: "partition 1"}}}
	for p, s := range sinks {
		rig.r.Add(readTopic, int32(p), 0, s)
	}
	rig.run()
	for _, s := range sinks {
		s.wants(t, 0, readPerPart+batches*n)
		for _, bytes := range s.got() {
			most = max(most, bytes)
		}
		if errs := s.failures(); len(errs) > 0 {
			t.Errorf("%s was told %v", s.name, errs)
		}
	}
	if limit := 1<<20 + size; most > limit {
		t.Errorf("%d bytes of a partition came at once, want %d at most", most, limit)
	}
}
