package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/timer"
)

// errorPause is how long the reader rests after a poll that brought nothing but
// errors: a deleted topic answers every poll at once.
const errorPause = 250 * time.Millisecond

// fetchMaxWait is how long a fetch waits at the broker for data. A partition
// that is added or resumed waits for the fetch under way, so it is short.
const fetchMaxWait = 100 * time.Millisecond

// fetchMaxBytes is how much one fetch brings at most.
const fetchMaxBytes = 4 << 20

// fetchMaxPartition is how much of it is of one partition, but for a batch that
// is larger alone. Both count bytes as the broker has them: a small timer takes
// many times as many in memory where producers compress (see Unpacker), and a
// partition that has enough must not have much more under way.
const fetchMaxPartition = 256 << 10

// Read is what was read of a partition at once.
type Read struct {
	// Records are in order of offset; none where it has only become known that nothing waits
	// behind those before.
	Records []*kgo.Record
	// Next is where reading goes on: every record below was handed over, now or before. The rest is
	// markers of transactions, and aborted records. So when the records are settled, Next is a position.
	Next int64
	// Epoch is the leader epoch of the last record below Next, whatever that is: with Next it tells
	// whether the log was cut (KIP-320); negative: not known.
	Epoch int32
	// End is that of the log or, if what follows up to there is markers
	// and aborted records, just behind the last record that was handed over.
	End int64
}

// Sink takes what is read of one partition. Its methods are called by the
// reader's one goroutine and must not block.
type Sink interface {
	// Deliver takes what was read. A sink that has enough calls Pause; what was handed
	// over stays with it.
	Deliver(r Read)
	// Fail tells of an error that reading cannot get over by itself, such as
	// OFFSET_OUT_OF_RANGE. It may be called again and again.
	Fail(err error)
	// SkipBatch tells that the batch of records at the offsets from first up to, but
	// not including, next is too large to be looked into. It may be one of an aborted
	// transaction, which the client does not tell. Once it returns true reading goes
	// on behind it; until then it is called again, after some time.
	SkipBatch(first, next int64) bool
}

// Reader reads the request partitions that this process owns, read_committed,
// from offsets of our own choosing, with one client. It never commits anything:
// positions live in checkpoints.
//
// A partition is added or removed between two polls, never during one. A poll
// that has come back may hold records of a partition that is given up and acquired
// again, elsewhere in the log, before they are handed over: by name they would
// reach the new sink, which would plan them twice, or miss what lies between.
type Reader struct {
	client   *kgo.Client
	unpacker *Unpacker

	mu        sync.Mutex // guards what follows
	turn      *sync.Cond // busy, or changes, has changed
	busy      bool       // somebody polls and hands over, or changes sinks
	changes   int        // who waits to change sinks: polls stand back
	interrupt func()     // ends the poll that is under way, nil if there is none

	readings map[timer.TopicPartition]*reading // theirs who is busy

	holds holds
}

// reading is how far a partition is read into its sink.
type reading struct {
	sink  Sink
	next  int64  // where it goes on
	last  int64  // just behind the last record that was handed over
	meter *meter // nil: there is no limit
	quota Quota
}

// NewReader returns a reader of topics whose largest record has so many bytes. Its
// client is built with opts (brokers, security, limits).
func NewReader(largest int, opts ...kgo.Opt) (*Reader, error) {
	unpacker, err := newUnpacker(largest)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(opts,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // else nothing tells that the log's end is a marker, see hand
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
	r.holds = holds{reader: r, quotas: make(map[string]Quota), of: make(map[timer.TopicPartition]*hold)}
	return r, nil
}

// SetQuota limits each partition of a topic, from its next record on. It may be
// called at any time; what an earlier quota delays goes on.
func (r *Reader) SetQuota(topic string, q Quota) { r.holds.set(topic, q) }

// Add starts reading a partition at offset from into sink, in place of the sink
// it had. No leader epoch goes with the offset: with one, kgo moves to the log's
// end after a data loss. It waits for a Deliver that is under way.
func (r *Reader) Add(topic string, partition int32, from int64, sink Sink) {
	r.change(func() {
		tp := timer.TopicPartition{Topic: topic, Partition: partition}
		if r.readings[tp] != nil {
			// kgo goes on where it is with a partition that it reads already.
			r.client.RemoveConsumePartitions(map[string][]int32{topic: {partition}})
		}
		r.readings[tp] = &reading{sink: sink, next: from, last: from}
		r.holds.forget(tp)
		r.client.ResumeFetchPartitions(map[string][]int32{topic: {partition}})
		r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(from)}})
	})
}

// Remove stops reading a partition, if sink is still the one that it is read
// into. It waits for a Deliver that is under way: after it none runs or begins.
// So it must not be called from one, nor with a lock that Deliver takes.
func (r *Reader) Remove(topic string, partition int32, sink Sink) {
	r.change(func() {
		tp := timer.TopicPartition{Topic: topic, Partition: partition}
		if reads := r.readings[tp]; reads == nil || reads.sink != sink {
			return
		}
		delete(r.readings, tp)
		r.holds.forget(tp)
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

// Pause stops fetching a partition. A sink calls Pause and Resume under one
// lock of its own, so that they cannot overtake each other.
func (r *Reader) Pause(topic string, partition int32) {
	r.holds.pause(timer.TopicPartition{Topic: topic, Partition: partition}, true)
}

// Resume goes on with a paused partition, when its quota lets it.
func (r *Reader) Resume(topic string, partition int32) {
	r.holds.pause(timer.TopicPartition{Topic: topic, Partition: partition}, false)
}

// Client lends its connections, for looks at the logs that it reads.
func (r *Reader) Client() *kgo.Client { return r.client }

// Unpacker returns an unpacker for such looks, with the same limits.
func (r *Reader) Unpacker() *Unpacker { return &Unpacker{bounded: r.unpacker.bounded} }

// Run polls until ctx ends and then closes the client.
func (r *Reader) Run(ctx context.Context) error {
	defer r.client.Close()
	for ctx.Err() == nil {
		if !r.poll(ctx) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(errorPause):
		}
	}
	return nil
}

// poll polls once and hands over what comes. It reports whether that was errors
// alone, and nobody wanted to change sinks meanwhile. A poll may also bring
// nothing at all: kgo takes the records of paused partitions out of it.
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

// set has partitions read on from where they are.
//
// kgo stops a partition at a batch that is refused, and tells it once. It throws
// that away, like all that it has buffered, when the partition is paused before the
// poll, or when any other is removed. So a while after the last refusal, when it
// must have been told, every partition is set to where it is: one that still stands
// before such a batch fetches it again, also because its sink does not know yet what
// to make of it.
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

// dispatch hands a poll to the sinks and returns how many records and errors it
// held.
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
			r.hand(tp, reads, p.Records, p.HighWatermark)
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

// hand hands over what was read, but for the markers of transactions. These only tell, with
// the high watermark, whether all was read: where producers use transactions one is the
// last of the log.
func (r *Reader) hand(tp timer.TopicPartition, reads *reading, read []*kgo.Record, highWatermark int64) {
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
		r.measure(tp, reads, recs, all)
		reads.sink.Deliver(Read{Records: recs, Next: reads.next, Epoch: epoch, End: end})
	}
}
