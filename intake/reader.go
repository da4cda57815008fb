package intake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// errorPause is how long the reader rests after a poll that brought nothing but
// errors: a deleted topic answers every poll at once.
const errorPause = 250 * time.Millisecond

// fetchMaxWait is how long a fetch waits at the broker for data. A partition
// that is added or resumed waits for the fetch under way, so it is short.
const fetchMaxWait = 100 * time.Millisecond

// fetchMaxBytes is how much one fetch brings at most, hence about what is held
// in memory before any partition can ask for a pause.
const fetchMaxBytes = 32 << 20

// Sink takes what is read of one partition. Its methods are called by the
// reader's one goroutine and must not block.
type Sink interface {
	// Deliver takes records in order of offset. A sink that has enough calls
	// Pause; what was handed over stays with it.
	Deliver(recs []*kgo.Record, highWatermark int64)
	// Fail tells of an error that reading can not get over by itself, such as
	// OFFSET_OUT_OF_RANGE. It may be called again and again.
	Fail(err error)
}

// Reader reads the request partitions that this process owns, read_committed,
// from offsets of our own choosing, with one client. It never commits anything:
// positions live in checkpoints.
type Reader struct {
	client *kgo.Client

	mu    sync.Mutex // guards sinks
	sinks map[topicPartition]Sink
}

type topicPartition struct {
	topic     string
	partition int32
}

// NewReader returns a reader whose client is built with opts (brokers,
// security, limits).
func NewReader(opts ...kgo.Opt) (*Reader, error) {
	cl, err := kgo.NewClient(append(opts,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(fetchMaxWait),
		kgo.FetchMaxBytes(fetchMaxBytes),
	)...)
	if err != nil {
		return nil, fmt.Errorf("build intake client: %w", err)
	}
	return &Reader{client: cl, sinks: make(map[topicPartition]Sink)}, nil
}

// Add starts reading a partition at offset from into sink. No leader epoch goes
// with the offset: with one, kgo moves to the log's end after a data loss.
func (r *Reader) Add(topic string, partition int32, from int64, sink Sink) {
	r.mu.Lock()
	r.sinks[topicPartition{topic, partition}] = sink
	r.mu.Unlock()
	r.client.ResumeFetchPartitions(map[string][]int32{topic: {partition}})
	r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(from)}})
}

// Remove stops reading a partition. After it returns a Deliver that is under
// way may still end, and none begins.
func (r *Reader) Remove(topic string, partition int32, sink Sink) {
	tp := topicPartition{topic, partition}
	r.mu.Lock()
	if r.sinks[tp] != sink {
		r.mu.Unlock()
		return
	}
	delete(r.sinks, tp)
	r.mu.Unlock()
	r.client.RemoveConsumePartitions(map[string][]int32{topic: {partition}})
}

// Pause stops fetching a partition. A sink calls Pause and Resume under one
// lock of its own, so that they can not overtake each other.
func (r *Reader) Pause(topic string, partition int32) {
	r.client.PauseFetchPartitions(map[string][]int32{topic: {partition}})
}

// Resume goes on with a paused partition.
func (r *Reader) Resume(topic string, partition int32) {
	r.client.ResumeFetchPartitions(map[string][]int32{topic: {partition}})
}

// Run polls until ctx ends and then closes the client.
func (r *Reader) Run(ctx context.Context) error {
	defer r.client.Close()
	for {
		fetches := r.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if r.dispatch(fetches) == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(errorPause):
			}
		}
	}
}

// dispatch hands a poll to the sinks and returns how many records it held.
func (r *Reader) dispatch(fetches kgo.Fetches) (n int) {
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		r.mu.Lock()
		sink := r.sinks[topicPartition{p.Topic, p.Partition}]
		r.mu.Unlock()
		if sink == nil {
			return
		}
		if p.Err != nil && !errors.Is(p.Err, context.Canceled) {
			sink.Fail(p.Err)
		}
		if len(p.Records) == 0 {
			return
		}
		n += len(p.Records)
		sink.Deliver(p.Records, p.HighWatermark)
	})
	return n
}
