package partition

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/partition/tracker"
	"github.com/waterclock/waterclock/internal/timer"
)

// receiver takes delivered requests and hands them to the goroutines that plan. It implements partlog.Sink, on the
// reader's goroutines.
type receiver struct {
	*shared
	delivered atomic.Int64 // every request below this offset is delivered
	held      atomic.Int64 // how long open transactions have blocked the next request, in nanoseconds
	heldAt    time.Time    // the last delivery that was blocked, or zero; only the reader uses it
	cancel    context.CancelFunc
	running   sync.WaitGroup

	pauseMu sync.Mutex // guards paused; held over Reader.Pause and Resume
	paused  bool
}

func newReceiver(sh *shared, from int64) *receiver {
	r := &receiver{shared: sh}
	r.delivered.Store(from)
	return r
}

// start begins to read and plan requests. No timer fires before all requests below end are planned.
func (r *receiver) start(ctx context.Context, end int64) {
	ctx, r.cancel = context.WithCancel(ctx)
	for _, s := range r.subs.all {
		r.running.Go(func() { s.planAll(ctx) })
	}
	r.o.Reader.Add(r.o.Topics.Request.Name, r.o.Partition, r.delivered.Load(), r)
	r.running.Go(func() { r.catchUp(ctx, end) })
}

// stop ends reading and planning, and waits for both.
func (r *receiver) stop() {
	r.o.Reader.Remove(r.o.Topics.Request.Name, r.o.Partition, r)
	r.cancel()
	r.running.Wait()
}

// Room implements partlog.Sink. Intake that has no room pauses, so that nothing is fetched until there is some.
func (r *receiver) Room(next int64) timer.Size {
	room := r.backlog.room(next)
	if room.IsUsedUp() {
		r.pauseIfFull()
	}
	return room
}

// Deliver takes requests in, to be planned. It implements partlog.Sink.
func (r *receiver) Deliver(got partlog.Read) {
	recs, end := got.Records, got.End
	r.life.Input.Read(recs, got.Next, got.Epoch)
	if n := len(recs); n > 0 {
		r.life.Input.WatchRetention(recs[0].Timestamp)
		now := r.o.Now()
		r.lag.read(end-recs[n-1].Offset-1, recs[n-1].Timestamp, now)
		r.arrivals.read(recs[n-1].Offset+1, now.UnixMilli())
	} else if end <= got.Next {
		r.lag.ends()
	}
	r.noteHeld(&got)
	r.showLag()
	r.hand(recs, got.Next)
	// After hand, because the catch-up barrier opens behind the requests that it finds delivered.
	r.delivered.Store(max(r.delivered.Load(), got.Next))
	if len(recs) == 0 {
		r.o.Lanes.Wake() // the position may pass markers, see mayPass
	}
	r.pauseIfFull()
}

// noteHeld adds the time that an open transaction has blocked the next request.
func (r *receiver) noteHeld(got *partlog.Read) {
	if got.End <= got.Next || got.Stable > got.Next {
		r.heldAt = time.Time{}
		return
	}
	now := time.Now()
	if !r.heldAt.IsZero() {
		r.held.Add(int64(min(now.Sub(r.heldAt), heldStep)))
	}
	r.heldAt = now
}

// Skip makes one dead letter of a batch of requests that cannot be read. It implements partlog.Sink.
func (r *receiver) Skip(u *partlog.Unreadable) {
	reason, detail := u.Reason("requests")
	r.life.Log.Warn("unreadable batch becomes a dead letter", "from", u.First, "to", u.Next, "err", u.Err)
	r.life.Input.Read(nil, u.Next, u.Epoch)
	rec := &kgo.Record{Topic: r.o.Topics.Request.Name, Partition: r.o.Partition, Offset: u.First}
	s, runs := r.subs.of(rec.Key), make([]tracker.Run, len(r.subs.all))
	runs[s.number] = tracker.Run{First: u.First, Behind: u.Next}
	r.subs.progress.handed(runs, u.Next)
	refusal := &planner.Refusal{Reason: string(reason), Detail: detail}
	r.put(s, delivery{recs: []*kgo.Record{rec}, position: u.Next, bytes: recordSize(rec), refusal: refusal})
	r.delivered.Store(u.Next)
	r.pauseIfFull()
}

// Fail implements partlog.Sink.
func (r *receiver) Fail(err error) { r.life.GiveUpReading(err) }

// pauseIfFull pauses intake at its limits.
func (r *receiver) pauseIfFull() {
	r.pauseMu.Lock()
	defer r.pauseMu.Unlock()
	if !r.paused && r.backlog.full(false) {
		r.paused = true
		r.o.Reader.Pause(r.o.Topics.Request.Name, r.o.Partition)
	}
}

// resumeIfFree lets intake go on once half of its limits is free.
func (r *receiver) resumeIfFree() {
	r.pauseMu.Lock()
	defer r.pauseMu.Unlock()
	if r.paused && !r.backlog.full(true) {
		r.paused = false
		r.o.Reader.Resume(r.o.Topics.Request.Name, r.o.Partition)
	}
}

func (r *receiver) isPaused() bool {
	r.pauseMu.Lock()
	defer r.pauseMu.Unlock()
	return r.paused
}

// lagNow returns what the partition shows as its lag.
func (r *receiver) lagNow() (behind int64, age time.Duration) {
	paused := r.isPaused()
	var u unread
	e, known := r.life.Input.End()
	if waits := e.End - r.delivered.Load(); known && waits > 0 && (paused || e.Held()) {
		u.behind = waits
		if e.Held() {
			u.oldest = e.Since
		}
	}
	return r.lag.now(r.o.Now(), paused, u)
}

func (r *receiver) showLag() {
	behind, age := r.lagNow()
	r.o.Metrics.setLag(r.o.Topics.Request.Name, r.o.Partition, behind, age)
}

// hand gives requests, in the order of their log, each to the sub-partition of its ID. There are no more below next.
func (r *receiver) hand(recs []*kgo.Record, next int64) {
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

func (r *receiver) put(s *subPartition, d delivery) {
	r.backlog.delivered(timer.Size{Entries: len(d.recs), Bytes: d.bytes})
	s.inbox.put(d)
}

// open lets timers fire: those of each sub-partition as soon as it has planned what it was handed so far. That includes
// every cancel that could still win.
func (r *receiver) open() {
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
