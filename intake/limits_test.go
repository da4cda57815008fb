package intake

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// sizes records how many bytes came with each Deliver. mu guards the field below it.
type sizes struct {
	sink
	mu    sync.Mutex
	bytes []int
}

func (s *sizes) Deliver(r Read) {
	recs := r.Records
	n := 0
	for _, r := range recs {
		n += len(r.Value)
	}
	s.mu.Lock()
	s.bytes = append(s.bytes, n)
	s.mu.Unlock()
	s.sink.Deliver(r)
}

func (s *sizes) got() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bytes)
}

// A fetch asks for fetchMaxBytes, and for fetchMaxPartition of each partition. It
// brings no more from one partition, except that the first batch comes whole: a request
// that is larger than the limit must be read too.
func TestAFetchIsBounded(t *testing.T) {
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, readTopic))
	var asked atomic.Bool
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		r := req.(*kmsg.FetchRequest)
		if r.MaxBytes > fetchMaxBytes {
			t.Errorf("asks for %d bytes, at most %d", r.MaxBytes, fetchMaxBytes)
		}
		for _, topic := range r.Topics {
			for _, p := range topic.Partitions {
				if p.PartitionMaxBytes > fetchMaxPartition {
					t.Errorf("asks for %d bytes of a partition, at most %d", p.PartitionMaxBytes, fetchMaxPartition)
				}
				if r.MaxBytes == fetchMaxBytes && p.PartitionMaxBytes == fetchMaxPartition {
					asked.Store(true)
				}
			}
		}
		return nil, nil, false
	})
	cl := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0))
	const batch, batches = fetchMaxPartition / 4, 16
	for size, n := range map[int]int{batch: batches, 2 * fetchMaxPartition: 1} {
		value := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{}).Read(value) // never fails
		for range n {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: readTopic, Value: bytes.Clone(value)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, err := NewReader(1<<20, kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() { cancel(); run.Wait() })
	s := &sizes{sink: sink{name: "it"}}
	r.Add(readTopic, 0, 0, s)
	s.wants(t, 0, batches+1)
	if !asked.Load() {
		t.Error("never asks for as much as the limits")
	}
	whole := 0
	for _, n := range s.got() {
		switch {
		case n >= 2*fetchMaxPartition:
			whole++
		case n > fetchMaxPartition:
			t.Errorf("%d bytes came at once, want at most %d", n, fetchMaxPartition)
		}
	}
	if whole != 1 {
		t.Errorf("a batch larger than the limit came %d times", whole)
	}
}
