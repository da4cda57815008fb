package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

// errorPause is the pause after a poll that brought only errors: a deleted topic answers
// every poll at once.
const errorPause = 250 * time.Millisecond

// fetchMaxWait is how long a fetch waits at the broker for data. A partition
// that is added or resumed waits for the fetch under way, so it is short.
const fetchMaxWait = 100 * time.Millisecond

// fetchMaxBytes is how much one fetch brings at most.
const fetchMaxBytes = 4 << 20

// fetchMaxPartition is how much of it comes from one partition, unless a single batch is
// larger. Both limits count bytes as the broker stores them. If producers compress, a
// small timer takes many times as much memory (see Unpacker), and a partition whose sink
// has enough must not have much more under way.
const fetchMaxPartition = 256 << 10

// Read is what one poll brought of a partition.
type Read struct {
	// Records are in order of offset. There are none if the reader has only learned that nothing
	// follows the records before.
	Records []*kgo.Record
	// Next is the offset to read next. Every record below it was delivered, now or before; what
	// else there is below it are markers and aborted records. So once the records are settled, Next
	// is a position.
	Next int64
	// Epoch is the leader epoch of the last batch below Next. Together with Next it tells whether
	// the log was cut (KIP-320). Negative: not known.
	Epoch int32
	// End is the end of the log. If only markers and aborted records follow the last delivered
	// record, it is the offset behind that record.
	End int64
}

// Sink receives what is read from one partition. Its methods are called by the
// reader's one goroutine and must not block.
type Sink interface {
	// Deliver takes what was read. A sink that has enough calls Pause and keeps what it got.
	Deliver(r Read)
	// Fail tells of an error that the reader cannot recover from, such as OFFSET_OUT_OF_RANGE. It
	// may be called repeatedly.
	Fail(err error)
	// SkipBatch tells that the batch with the offsets [first, next) is too large to be decompressed.
	// The client does not tell whether its transaction was aborted. If SkipBatch returns true,
	// reading goes on at next; if not, it is called again after some time.
	SkipBatch(first, next int64) bool
}

// Reader reads the request partitions that this process owns, read_committed, from given
// offsets, with one client. It commits nothing: positions are in checkpoints.
//
// A partition is added or removed between two polls, never during one. Otherwise a poll could
// return records of a partition that is meanwhile given up and acquired again at another
// offset. They would reach the new sink, which would plan them twice or miss what lies between.
type Reader struct {
	client   *kgo.Client
	unpacker *Unpacker

	mu        sync.Mutex // guards the following fields
	turn      *sync.Cond // signals changes of busy and changes
	busy      bool       // a goroutine polls and delivers, or changes sinks
	changes   int        // goroutines that wait to change sinks; polls let them go first
	interrupt func()     // ends the poll that is under way, nil if there is none

	readings map[timer.TopicPartition]*reading // used by the goroutine that has set busy

	pauses pauses
}

// reading is a partition that is read into a sink.
type reading struct {
	sink  Sink
	next  int64  // the offset to read next
	last  int64  // the offset behind the last delivered record
	meter *meter // nil: there is no limit
	quota Quota
}

// NewReader returns a reader of topics whose largest record has largest bytes. opts configure its
// client (brokers, security, limits).
func NewReader(largest int, opts ...kgo.Opt) (*Reader, error) {
	unpacker, err := newUnpacker(largest)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(opts,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // otherwise nothing tells that the log ends in a marker, see deliver
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(fetchMaxWait),
		kgo.FetchMaxBytes(fetchMaxBytes),
		kgo.FetchMaxPartitionBytes(fetchMaxPartition),
		kgo.WithDecompressor(unpacker),
	)...)
	if err != nil {
		return nil, fmt.Errorf("build intake client: %w", err)
	}
	r := &Reader{client: cl, unpacker: unpacker, readings: make(map[timer.TopicPartition]*reading)}
	r.turn = sync.NewCond(&r.mu)
	r.pauses = pauses{reader: r, quotas: make(map[string]Quota), of: make(map[timer.TopicPartition]*pause)}
	return r, nil
}

// SetQuota limits each partition of a topic, from its next record on. Pauses caused by a former
// quota end. It may be called at any time.
func (r *Reader) SetQuota(topic string, q Quota) { r.pauses.set(topic, q) }

// Add starts reading a partition at an offset into sink, which replaces the sink it had. It waits
// for a Deliver that is under way. The offset has no leader epoch: with one, kgo would move to
// the log's end after a data loss.
func (r *Reader) Add(topic string, partition int32, from int64, sink Sink) {
	r.change(func() {
		tp := timer.TopicPartition{Topic: topic, Partition: partition}
		if r.readings[tp] != nil {
			// kgo does not move a partition that it reads already.
			r.client.RemoveConsumePartitions(map[string][]int32{topic: {partition}})
		}
		r.readings[tp] = &reading{sink: sink, next: from, last: from}
		r.pauses.forget(tp)
		r.client.ResumeFetchPartitions(map[string][]int32{topic: {partition}})
		r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(from)}})
	})
}

// Remove stops reading a partition if it is still read into sink. It waits for a Deliver that is
// under way; after it none runs or begins. So it must not be called from Deliver, nor with a lock
// that Deliver takes.
func (r *Reader) Remove(topic string, partition int32, sink Sink) {
	r.change(func() {
		tp := timer.TopicPartition{Topic: topic, Partition: partition}
		if reads := r.readings[tp]; reads == nil || reads.sink != sink {
			return
		}
		delete(r.readings, tp)
		r.pauses.forget(tp)
		r.client.RemoveConsumePartitions(map[string][]int32{topic: {partition}})
	})
}

// change calls do between two polls.
func (r *Reader) change(do func()) {
	r.mu.Lock()
	r.changes++
	if r.interrupt != nil {
		r.interrupt()
	}
	for r.busy {
		r.turn.Wait()
	}
	r.busy = true
	r.mu.Unlock()
	do()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes--
	r.busy = false
	r.turn.Broadcast()
}

// Pause stops fetching a partition. A sink calls Pause and Resume under one lock of its own, so
// that they cannot overtake each other.
func (r *Reader) Pause(topic string, partition int32) {
	r.pauses.setFull(timer.TopicPartition{Topic: topic, Partition: partition}, true)
}

// Resume ends Pause. The partition is fetched as soon as its quota allows it.
func (r *Reader) Resume(topic string, partition int32) {
	r.pauses.setFull(timer.TopicPartition{Topic: topic, Partition: partition}, false)
}

// Client returns the client, for requests about the logs that it reads.
func (r *Reader) Client() *kgo.Client { return r.client }

// Unpacker returns a further unpacker with the same limits.
func (r *Reader) Unpacker() *Unpacker { return &Unpacker{bounded: r.unpacker.bounded} }

// Run polls until ctx ends and then closes the client.
func (r *Reader) Run(ctx context.Context) error {
	defer r.client.Close()
	for ctx.Err() == nil {
		if !r.poll(ctx) {
			continue
		}
		beats.Sleep(ctx, errorPause)
	}
	return nil
}

// poll polls once and delivers the records. It returns true if only errors came and no goroutine
// wanted to change sinks meanwhile. A poll may also bring nothing: kgo removes the records of
// paused partitions.
func (r *Reader) poll(ctx context.Context) (failed bool) {
	r.mu.Lock()
	for r.busy || r.changes > 0 {
		r.turn.Wait()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.busy, r.interrupt = true, cancel
	r.mu.Unlock()
	if refused := r.unpacker.refusedAt(); !refused.IsZero() {
		ctx, cancel = context.WithTimeout(ctx, errorPause)
		defer cancel()
		if time.Since(refused) >= errorPause {
			r.unpacker.refused.Store(0)
			r.set(r.readings)
		}
	}
	fetches := r.client.PollFetches(ctx)
	r.unpacker.Reset()
	records, errs := r.dispatch(fetches)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy, r.interrupt = false, nil
	r.turn.Broadcast()
	return errs > 0 && records == 0 && ctx.Err() == nil
}

// set makes the client fetch partitions again from where they are.
//
// If the unpacker refuses a batch, kgo stops the partition there and reports it once. It drops
// the report, as all that it has buffered, if the partition is paused before the poll, or if any
// partition is removed. So some time after the last refusal, every partition is set to where it
// is. A partition that still stands before such a batch fetches it again. This also repeats
// SkipBatch for a sink that has not decided yet.
func (r *Reader) set(readings map[timer.TopicPartition]*reading) {
	at := make(map[string]map[int32]kgo.EpochOffset)
	for tp, reads := range readings {
		if at[tp.Topic] == nil {
			at[tp.Topic] = make(map[int32]kgo.EpochOffset)
		}
		at[tp.Topic][tp.Partition] = kgo.EpochOffset{Epoch: -1, Offset: reads.next}
	}
	r.client.SetOffsets(at)
}

// dispatch delivers a poll to the sinks and returns the numbers of its records and errors.
func (r *Reader) dispatch(fetches kgo.Fetches) (records, errs int) {
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if errors.Is(p.Err, errNoRoom) {
			return // fetched again
		}
		var tooLarge *kgo.ErrDecompressTooLarge
		if p.Err != nil && !errors.As(p.Err, &tooLarge) {
			errs++
		}
		tp := timer.TopicPartition{Topic: p.Topic, Partition: p.Partition}
		reads := r.readings[tp]
		if reads == nil {
			return
		}
		sink := reads.sink
		if n := len(p.Records); n > 0 {
			records += n
			reads.next = p.Records[n-1].Offset + 1
			r.deliver(tp, reads, p.Records, p.HighWatermark)
		}
		switch {
		case p.Err == nil, errors.Is(p.Err, context.Canceled):
		case tooLarge != nil:
			if sink.SkipBatch(tooLarge.Offset, tooLarge.NextOffset) {
				reads.next = tooLarge.NextOffset
				r.set(map[timer.TopicPartition]*reading{tp: reads})
			}
		default:
			sink.Fail(p.Err)
		}
	})
	return records, errs
}

// deliver gives a sink the records without the markers of transactions. A marker may be the last
// entry of the log, so with the high watermark it tells whether the log was read to its end.
func (r *Reader) deliver(tp timer.TopicPartition, reads *reading, read []*kgo.Record, highWatermark int64) {
	all, epoch := reads.next >= highWatermark, read[len(read)-1].LeaderEpoch
	recs := slices.DeleteFunc(read, func(rec *kgo.Record) bool { return rec.Attrs.IsControl() })
	if len(recs) > 0 {
		reads.last = recs[len(recs)-1].Offset + 1
	}
	end := highWatermark
	if all {
		end = reads.last
	}
	if len(recs) > 0 || all {
		r.limit(tp, reads, recs, all)
		reads.sink.Deliver(Read{Records: recs, Next: reads.next, Epoch: epoch, End: end})
	}
}
