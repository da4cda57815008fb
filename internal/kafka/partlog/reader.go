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

	"github.com/waterclock/waterclock/internal/timer"
)

// Reader reads one partition. One goroutine at a time uses it. It needs no Close.
//
// Invariant: every committed record in [from, position) has been returned, in order and once.
type Reader struct {
	leader   leader
	position int64
	last     batchEnd
	maxBytes int32 // see SetMaxBytes

	// compacted: see SetCompacted.
	compacted bool
	// isolation of the returned records: see SetUncommitted.
	isolation int8
	// replica is one other than the leader that the broker sent us to (KIP-392), NoLeader for none.
	replica int32
	damaged int // how often the batch at the position came with a wrong checksum

	unpacked int   // see SetMaxUnpacked
	room     int64 // see SetRoom
	gate     func(context.Context) (open bool, err error)
	slow     int // of Follow: back-off steps, each of which makes fetches smaller and their time longer: see answerWait
	// kept is the part of a fetch that the last page had no room for, or nil. Its page has the ends that the leader
	// told.
	kept     *batches
	keptPage Page
}

// Page is the result of one fetch.
type Page struct {
	// Records are committed, in order, all at or above the position before.
	Records []*kgo.Record

	LastStable    int64 // no transaction below it is open
	HighWatermark int64 // the log as consumers see it ends here; the leader's own log may go on

	Idle time.Duration // of Follow: for how long nothing has come; 0: the position has moved
}

// NewReader returns a Reader of t that begins at offset from.
//
// cl lends its connections only. It should be a client that does not consume: a broker answers the requests of one
// connection one after the other, and kgo has one connection for fetches to each broker, so a Next that waits for data
// holds up all other fetches of cl to that broker, and they hold up Next.
func NewReader(cl *kgo.Client, t Log, from int64) *Reader {
	return &Reader{
		leader:    newLeader(cl, t),
		position:  from,
		maxBytes:  MaxBytes,
		isolation: readCommitted,
		replica:   NoLeader,
		unpacked:  math.MaxInt32,
		room:      pageMemory,
	}
}

// Position is the offset up to which the log has been read: the next record is at or above it.
func (r *Reader) Position() int64 { return r.position }

// SetPosition makes the next Next begin at an offset.
func (r *Reader) SetPosition(to int64) { r.position, r.last, r.kept = to, batchEnd{}, nil }

// Last returns the leader epoch of the last batch that was read, and the offset behind it. It counts batches without
// records for Next: markers and aborted batches. Epoch 0: nothing was read yet.
func (r *Reader) Last() (epoch Epoch, behind int64) { return r.last.epoch, r.last.behind }

// Leader returns the epoch of the leader that was looked up last, 0 if it is not known. After a call that succeeded,
// it is that of the leader that answered.
func (r *Reader) Leader() Epoch { return EpochOf(r.leader.epoch) }

// Log is the log that r reads; its ID is known once a Next has succeeded.
func (r *Reader) Log() Log { return r.leader.t }

// SetBackoff replaces the longest wait before an attempt is repeated.
func (r *Reader) SetBackoff(most time.Duration) { r.leader.backoff = most }

// SetGoneAfter says how long the brokers must have denied knowing the topic before it counts as gone.
func (r *Reader) SetGoneAfter(d time.Duration) { r.leader.goneAfter = d }

// SetMaxBytes bounds the bytes that one fetch asks for, from 1, instead of MaxBytes.
func (r *Reader) SetMaxBytes(n int32) { r.maxBytes = n }

// SetMaxUnpacked bounds the decompressed size of a batch, in bytes: a larger one is Unreadable. A Reader has no bound
// at first, because only this service writes to a changelog. For topics with other writers set one.
func (r *Reader) SetMaxUnpacked(n int) { r.unpacked = n }

// SetRoom bounds the memory that the records of a page take, in bytes, instead of 16 MiB. A page has at least one
// record if there is one.
func (r *Reader) SetRoom(bytes int64) { r.room = bytes }

// SetCompacted says that the topic is compacted (cleanup.policy holds "compact"). If a fetch returns nothing below the
// last stable offset, compaction has removed all records there, and the position moves to that offset. A log that is
// not compacted has no such hole. There the same answer means that the records lie in remote storage and did not come
// in time, and the position must stay. (Kafka has no tiered storage for compacted topics.)
func (r *Reader) SetCompacted(c bool) { r.compacted = c }

// LookAgain makes the next Next look the leader up again. A former leader that does not know its successor goes on
// answering, without an error and without the records written since.
func (r *Reader) LookAgain() {
	r.leader.node, r.leader.doubted, r.replica, r.kept = NoLeader, true, NoLeader, nil
}

// SetGate makes Follow call open before each fetch. If it returns false, or an error, nothing is fetched. It may wait.
func (r *Reader) SetGate(open func(context.Context) (bool, error)) { r.gate = open }

// SetUncommitted makes Next return all records up to the high watermark, even those of open and aborted transactions.
func (r *Reader) SetUncommitted() { r.isolation = readUncommitted }

// Next sends one fetch from the position, returns the records and moves the position. The broker waits for data for at
// most wait, which is rounded down to milliseconds. The position can move without records. If neither a record came nor
// the position moved, the log has nothing more below the last stable offset.
//
// Errors: *OutOfRangeError, ErrTopicGone, the context's (joined with the error that kept Next waiting),
// kgo.ErrClientClosed, a missing permission, or a batch that does not decode. After an error the position is unchanged,
// so a further call loses no record. A batch that does not decode is an *Unreadable, and SetPosition(Next) passes it.
func (r *Reader) Next(ctx context.Context, wait time.Duration) (Page, error) {
	if r.kept != nil {
		page := r.keptPage
		if err := r.decode(r.kept, &page); err == nil || r.kept.position > r.position {
			r.move(r.kept)
			return page, nil
		}
		r.kept = nil // fetched again
	}
	var page Page
	err := r.leader.do(ctx, func(ctx context.Context, leader *kgo.Broker) error {
		resp, err := r.answer(ctx, leader, wait)
		if err == nil {
			page, err = r.take(resp)
		}
		return err
	})
	return page, err
}

// More reports whether a Next would move the position, or would return an OutOfRangeError, as of now. It is for a gate:
// it fails as Next does, but does not wait long for a leader.
func (r *Reader) More(ctx context.Context) (more bool, err error) {
	err = inTime(ctx, answerWait, func(ctx context.Context) error {
		end, err := r.LastStable(ctx)
		if more = end > r.position; more || err != nil || end == r.position {
			return err
		}
		end, err = r.End(ctx)
		more = end < r.position
		return err
	})
	return more && err == nil, err
}

// LastStable asks the leader for the offset up to which committed records can be read now. A leader that does not know
// yet how far its log is replicated does not answer (KIP-207), so whatever was acknowledged before the call is below
// it. It goes by the topic's name: the next Next notices if the topic was recreated. It waits and fails as Next does.
func (r *Reader) LastStable(ctx context.Context) (int64, error) {
	return r.end(ctx, readCommitted, consumer)
}

// End asks for the offset of the next record that the leader will write, which Kafka calls the log end offset. It is
// beyond the high watermark if in-sync followers lack records that the leader has. It waits and fails as Next does.
func (r *Reader) End(ctx context.Context) (int64, error) {
	return r.end(ctx, readUncommitted, debugging)
}

func (r *Reader) end(ctx context.Context, isolation int8, as int32) (end int64, err error) {
	err = r.leader.do(ctx, func(ctx context.Context, leader *kgo.Broker) error {
		p, err := r.leader.list(ctx, leader, latest, isolation, as)
		end = p.Offset
		return err
	})
	return end, err
}

// answer fetches from the leader, or from the follower that the leader named.
func (r *Reader) answer(ctx context.Context, leader *kgo.Broker,
	wait time.Duration) (*kmsg.FetchResponseTopicPartition, error) {
	br := leader
	if r.replica != NoLeader {
		br = r.leader.cl.Broker(int(r.replica))
	}
	resp, err := r.fetch(ctx, br, wait)
	if err != nil {
		r.replica = NoLeader
		return nil, err
	}
	switch err := kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return nil, r.outOfRange(ctx, leader)
	case err != nil:
		r.replica = NoLeader
		return nil, err
	}
	return resp, nil
}

// outOfRange returns the error for a position that is not in the leader's log. If the position is in it, a follower was
// behind or the leader had just begun to lead, and the error can be retried.
func (r *Reader) outOfRange(ctx context.Context, leader *kgo.Broker) error {
	r.replica = NoLeader
	start, _, end, err := r.leader.bounds(ctx, leader)
	if err != nil {
		return err
	}
	if start <= r.position && r.position <= end {
		return kerr.OffsetNotAvailable
	}
	return &finalError{&OutOfRangeError{Log: r.leader.t, Position: r.position, LogStart: start, End: end}}
}

// fetch sends one Fetch outside of any fetch session and returns the partition's part of the answer.
func (r *Reader) fetch(ctx context.Context, br *kgo.Broker,
	wait time.Duration) (*kmsg.FetchResponseTopicPartition, error) {
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
	req := fetchRequest(min(wait, time.Hour), r.isolation)
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = r.leader.t.Topic // up to v12
	rt.TopicID = r.leader.t.ID  // from v13
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition = r.leader.t.Partition
	rp.CurrentLeaderEpoch = r.leader.epoch // else a former leader that does not know its successor answers
	rp.FetchOffset = r.position
	rp.PartitionMaxBytes = max(1, r.maxBytes>>r.slow)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// take decodes the answer and moves the position.
func (r *Reader) take(resp *kmsg.FetchResponseTopicPartition) (Page, error) {
	s := batchesOf(resp, r.position, r.isolation)
	s.last = r.last
	page := Page{LastStable: resp.LastStableOffset, HighWatermark: resp.HighWatermark}
	err := r.decode(s, &page)
	switch {
	case s.position > r.position: // records before a bad batch count; the next fetch begins at that batch
		r.keptPage = Page{LastStable: page.LastStable, HighWatermark: page.HighWatermark}
		r.move(s)
	case errors.Is(err, errDamaged) && r.damaged+1 < damagedTries:
		r.damaged++
		return Page{}, kerr.CorruptMessage // retriable
	case err != nil:
		r.damaged = 0
		return Page{}, &finalError{fmt.Errorf("decode %v at %d: %w", r.leader.t, r.position, err)}
	case resp.PreferredReadReplica >= 0:
		r.replica = resp.PreferredReadReplica
	case len(resp.RecordBatches) > 0:
		return Page{}, &finalError{fmt.Errorf("decode %v at %d: no whole batch in %d bytes", r.leader.t, r.position,
			len(resp.RecordBatches))}
	case r.compacted && r.position < resp.LastStableOffset:
		r.position = resp.LastStableOffset
	}
	return page, nil
}

// move moves the position, and keeps the records without room.
func (r *Reader) move(s *batches) {
	r.position, r.last, r.kept, r.damaged = s.position, s.last, nil, 0
	if s.cut {
		s.cut, r.kept = false, s
	}
}

// decode fills a page up to its room. A batch that does not fit whole stays open for the next page.
func (r *Reader) decode(s *batches, page *Page) error {
	for room := r.room; ; {
		if s.cut = room <= 0; s.cut {
			return nil
		}
		o := s.open
		if o == nil {
			var bad *Unreadable
			if o, bad = s.openNext(r.leader.t, r.unpacked); bad != nil {
				return bad
			}
			if o == nil {
				return nil
			}
		}
		for o.left > 0 && room > 0 {
			recs := o.take(timer.Size{Entries: pageRecords, Bytes: room})
			for _, rec := range recs {
				room -= Memory(rec)
			}
			page.Records = append(page.Records, recs...)
		}
		if s.open = o; o.left > 0 {
			s.stopAt(o)
			continue
		}
		s.open = nil
		s.pass(o.RecordBatch)
	}
}
