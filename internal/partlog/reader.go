package partlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Reader reads one partition. It belongs to one goroutine at a time, and holds
// no resource but memory: drop it when done.
//
// Invariant: every committed record in [from, position) has been returned, in
// order and once.
type Reader struct {
	route    route
	position int64

	// compacted: see SetCompacted.
	compacted bool
	// isolation of what is returned: see SetUncommitted.
	isolation int8
	// follower is a replica other than the leader that the broker sent us to
	// (KIP-392), noBroker for none.
	follower int32

	decompressor kgo.Decompressor
}

// Page is what one fetch brought.
type Page struct {
	// Records are committed, in order, all at or above the position before.
	// They share the fetch's memory, which lives as long as any of them.
	Records []*kgo.Record

	LogStart      int64 // first offset of the log
	LastStable    int64 // no transaction below it is open
	HighWatermark int64 // offset of the next record to be written
}

// NewReader returns a Reader of t that begins at offset from.
//
// cl lends its connections only. It should be a client that does not consume:
// a broker answers the requests of one connection one after the other, and kgo
// has one connection for fetches to each broker, so a Next that waits for data
// holds up all other fetches of cl to that broker, and they hold up Next.
func NewReader(cl *kgo.Client, t Log, from int64) *Reader {
	return &Reader{
		route:        newRoute(cl, t, DefaultLimits()),
		position:     from,
		isolation:    readCommitted,
		follower:     noBroker,
		decompressor: kgo.DefaultDecompressor(),
	}
}

// Position is the offset up to which the log has been looked at: the next
// record is at or above it. A gate on offset n is open once Position() >= n.
func (r *Reader) Position() int64 { return r.position }

// SetPosition has the next Next begin at an offset.
func (r *Reader) SetPosition(to int64) { r.position = to }

// Log is what r reads; its ID is known once a Next has succeeded.
func (r *Reader) Log() Log { return r.route.t }

// Limits returns the limits in force.
func (r *Reader) Limits() Limits { return r.route.limits }

// SetLimits replaces the limits, from the next Next on.
func (r *Reader) SetLimits(l Limits) { r.route.limits = l }

// SetMaxBytes sets Limits.MaxBytes alone.
func (r *Reader) SetMaxBytes(n int32) { r.route.limits.MaxBytes = n }

// SetDecompressor replaces the decompressor, which bounds nothing, from the next
// Next on.
func (r *Reader) SetDecompressor(d kgo.Decompressor) { r.decompressor = d }

// SetCompacted says that the topic is compacted (cleanup.policy holds
// "compact"). Then a fetch that brings nothing below the last stable offset
// means that compaction has removed all there was, and the position moves to
// that offset. In a log that is not compacted there is no such hole; there the
// same answer means that the records lie in remote storage and did not come in
// time (tiered storage excludes compaction), and the position must stay.
func (r *Reader) SetCompacted(c bool) { r.compacted = c }

// LookAgain has the next Next ask again who leads the partition. One that others
// have replaced, and that does not hear of it, goes on to answer, without an
// error and without what was written since.
func (r *Reader) LookAgain() { r.route.leader, r.follower = noBroker, noBroker }

// SetUncommitted has Next return whatever is in the log up to the high watermark:
// records of open and of aborted transactions too.
func (r *Reader) SetUncommitted() { r.isolation = readUncommitted }

// Next sends one fetch from the position, waits at the broker for data for at
// most wait (rounded down to milliseconds, 0: not at all), returns what came
// and moves the position, which can move although no record came. A page
// without records and without movement is no error: there is nothing more
// below the last stable offset.
//
// Errors: *OutOfRangeError, *TopicGoneError, ctx's (joined with what kept it
// waiting), kgo.ErrClientClosed, a refusal, or a batch that does not decode; in
// each case the position is unchanged and no record is lost by calling again.
func (r *Reader) Next(ctx context.Context, wait time.Duration) (Page, error) {
	var page Page
	err := r.route.do(ctx, func(ctx context.Context, leader *kgo.Broker) (err error) {
		page, err = r.try(ctx, leader, wait)
		return err
	})
	return page, err
}

// More asks whether a Next would move the position, or would say that it is not in
// the log, as of now. It waits out what Next does, and returns its errors.
func (r *Reader) More(ctx context.Context) (more bool, err error) {
	err = r.route.do(ctx, func(ctx context.Context, leader *kgo.Broker) error {
		end, err := r.route.listOffset(ctx, leader, latest, readCommitted)
		if more = end > r.position; more || err != nil || end == r.position {
			return err
		}
		end, err = r.route.listOffset(ctx, leader, latest, readUncommitted)
		more = end < r.position
		return err
	})
	return more && err == nil, err
}

func (r *Reader) try(ctx context.Context, leader *kgo.Broker, wait time.Duration) (Page, error) {
	resp, err := r.answer(ctx, leader, wait)
	if err != nil {
		return Page{}, err
	}
	return r.take(resp)
}

// answer is what the leader, or the follower that it names, says of the position.
func (r *Reader) answer(ctx context.Context, leader *kgo.Broker, wait time.Duration) (*kmsg.FetchResponseTopicPartition, error) {
	br := leader
	if r.follower != noBroker {
		br = r.route.cl.Broker(int(r.follower))
	}
	resp, err := r.fetch(ctx, br, wait)
	if err != nil {
		r.follower = noBroker
		return nil, err
	}
	switch err := kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return nil, r.outOfRange(ctx, leader)
	case err != nil:
		r.follower = noBroker
		return nil, err
	}
	return resp, nil
}

// outOfRange returns the error for a position that the leader has not, and a
// retriable one if the leader has it: a follower was behind, or the leader had
// just begun to lead.
func (r *Reader) outOfRange(ctx context.Context, leader *kgo.Broker) error {
	r.follower = noBroker
	start, _, end, err := r.route.bounds(ctx, leader)
	if err != nil {
		return err
	}
	if start <= r.position && r.position <= end {
		return kerr.OffsetNotAvailable
	}
	return &finalError{&OutOfRangeError{Log: r.route.t, Position: r.position, LogStart: start, End: end}}
}

// fetch sends one Fetch outside of any fetch session and returns the
// partition's part of the answer.
func (r *Reader) fetch(ctx context.Context, br *kgo.Broker, wait time.Duration) (*kmsg.FetchResponseTopicPartition, error) {
	kresp, err := br.Request(ctx, r.request(wait))
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		// A broker that throttles us answers without any partition.
		return nil, kerr.ThrottlingQuotaExceeded // retriable
	}
	return &resp.Topics[0].Partitions[0], nil
}

func (r *Reader) request(wait time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(min(wait, time.Hour).Milliseconds())
	req.MinBytes = 1
	// The limit stands at the partition alone: where that of the request cuts
	// an answer, kfake leaves out which of its transactions were aborted.
	req.MaxBytes = math.MaxInt32
	req.IsolationLevel = r.isolation
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = r.route.t.Topic // up to v12
	rt.TopicID = r.route.t.ID  // from v13
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition = r.route.t.Partition
	rp.FetchOffset = r.position
	rp.PartitionMaxBytes = r.route.limits.MaxBytes
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// take decodes the answer and moves the position.
func (r *Reader) take(resp *kmsg.FetchResponseTopicPartition) (Page, error) {
	opts := kgo.ProcessFetchPartitionOpts{
		Offset:         r.position,
		IsolationLevel: kgo.ReadCommitted(),
		Topic:          r.route.t.Topic,
		Partition:      r.route.t.Partition,
	}
	if r.isolation == readUncommitted {
		opts.IsolationLevel = kgo.ReadUncommitted()
	}
	// next is r.position if nothing was decoded; it moves past markers,
	// aborted batches and the empty batches that compaction leaves.
	fp, next := kgo.ProcessFetchPartition(opts, resp, r.decompressor, nil)
	// What came before a bad batch counts, the next fetch begins at it.
	switch {
	case fp.Err == nil:
	case len(fp.Records) > 0:
		next = fp.Records[len(fp.Records)-1].Offset + 1
	case next <= r.position:
		return Page{}, &finalError{fmt.Errorf("decode %v at %d: %w", r.route.t, r.position, fp.Err)}
	}
	page := Page{
		Records:       fp.Records,
		LogStart:      fp.LogStartOffset,
		LastStable:    fp.LastStableOffset,
		HighWatermark: fp.HighWatermark,
	}
	switch {
	case next > r.position:
		r.position = next
	case resp.PreferredReadReplica >= 0:
		r.follower = resp.PreferredReadReplica
	case len(resp.RecordBatches) > 0:
		return Page{}, &finalError{fmt.Errorf("decode %v at %d: %d bytes hold no whole batch", r.route.t, r.position, len(resp.RecordBatches))}
	case r.compacted && r.position < fp.LastStableOffset:
		r.position = fp.LastStableOffset
	}
	return page, nil
}
