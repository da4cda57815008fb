package partition

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/beats"
	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/tracker"
)

// inbox holds, in order, the deliveries that the goroutine of a sub-partition has yet to take.
type inbox struct {
	wake beats.Signal

	mu    sync.Mutex // guards the following fields
	list  []delivery
	ahead timer.Size // room for firings to be planned ahead, as last told
}

// delivery is a run of requests that are planned as one batch, or one batch of the log that is too large to be
// decompressed, or the message that opens the catch-up barrier.
type delivery struct {
	recs     []*kgo.Record
	position int64            // just behind the last one
	bytes    int64            // of memory that the records hold
	refusal  *planner.Refusal // of the one record, which stands for a batch that is too large
	open     bool
	at       time.Time // when it was put here
}

func newInbox() *inbox { return &inbox{wake: beats.NewSignal()} }

func (in *inbox) put(d delivery) {
	d.at = time.Now()
	in.mu.Lock()
	in.list = append(in.list, d)
	in.mu.Unlock()
	in.wake.Send()
}

// putAhead makes the goroutine plan firings: see stepPlanner.fireAhead.
func (in *inbox) putAhead(room timer.Size) {
	in.mu.Lock()
	in.ahead = room
	in.mu.Unlock()
	in.wake.Send()
}

func (in *inbox) takeAll() (list []delivery, ahead timer.Size) {
	in.mu.Lock()
	defer in.mu.Unlock()
	list, ahead = in.list, in.ahead
	in.list, in.ahead = nil, timer.Size{}
	return list, ahead
}

// hand gives requests, in the order of their log, each to the sub-partition of its ID. There are no more below next.
func (r *requests) hand(recs []*kgo.Record, next int64) {
	all := r.subs.all
	parts := make([][]*kgo.Record, len(all))
	if len(all) == 1 {
		parts[0] = recs
	} else {
		for _, rec := range recs {
			n := r.subs.of(rec.Key).number
			parts[n] = append(parts[n], rec)
		}
	}
	runs := make([]tracker.Run, len(parts))
	for i, part := range parts {
		if n := len(part); n > 0 {
			runs[i] = tracker.Run{First: part[0].Offset, Behind: part[n-1].Offset + 1}
		}
	}
	r.subs.progress.handed(runs, next)
	for i, part := range parts {
		for len(part) > 0 {
			n, bytes := batchOf(part)
			r.put(all[i], delivery{recs: part[:n], position: part[n-1].Offset + 1, bytes: bytes})
			part = part[n:]
		}
	}
}

// handOne gives a sub-partition one request that stands for all up to a position.
func (r *requests) handOne(d delivery) {
	s := r.subs.of(d.recs[0].Key)
	runs := make([]tracker.Run, len(r.subs.all))
	runs[s.number] = tracker.Run{First: d.recs[0].Offset, Behind: d.position}
	r.subs.progress.handed(runs, d.position)
	r.put(s, d)
}

func (r *requests) put(s *subPartition, d delivery) {
	r.backlog.delivered(timer.Size{Entries: len(d.recs), Bytes: d.bytes})
	s.inbox.put(d)
}

// open lets timers fire: those of each sub-partition as soon as it has planned what it was handed so far. That includes
// every cancel that could still win.
func (r *requests) open() {
	for _, s := range r.subs.all {
		s.inbox.put(delivery{open: true})
	}
}

// batchOf returns how many of the records are planned as one batch, and about how many bytes they hold. A step takes a
// batch whole, so it is bounded in count and bytes.
func batchOf(recs []*kgo.Record) (n int, bytes int64) {
	for n < min(maxBatch, len(recs)) {
		size := recordSize(recs[n])
		if n > 0 && bytes+size > maxBatchBytes {
			break
		}
		n, bytes = n+1, bytes+size
	}
	return n, bytes
}

// recordSize is about how many bytes a record holds in memory once it is planned, which is more than before.
func recordSize(r *kgo.Record) int64 {
	n := planner.TimerMemory + planner.EntryMemory + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += 40 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}
