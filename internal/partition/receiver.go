package partition

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kit/tasks"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

// receiver takes delivered requests and hands them to the goroutines that plan. It implements partlog.Sink, on the
// reader's goroutines.
type receiver struct {
	part      *Partition
	subs      *subPartitions
	backlog   *backlog
	arrivals  *arrivals
	delivered atomic.Int64 // every request below this offset is delivered
	held      atomic.Int64 // how long open transactions have blocked the next request, in nanoseconds
	heldAt    time.Time    // the last delivery that was blocked, or zero; only the reader uses it
	running   *tasks.Group

	pauseMu sync.Mutex // guards paused; held over Reader.Pause and Resume
	paused  bool
}

var _ partlog.Sink = (*receiver)(nil)

func newReceiver(l *lane, from int64) *receiver {
	r := &receiver{part: l.part, subs: l.subs, backlog: l.backlog, arrivals: l.arrivals}
	r.delivered.Store(from)
	return r
}

// start begins to read and plan requests. No timer fires before all requests below end are planned.
func (r *receiver) start(ctx context.Context, end int64) {
	r.running = tasks.New(ctx)
	for _, s := range r.subs.all {
		r.running.Go(s.planAll)
	}
	r.part.o.Reader.Add(r.part.o.Topics.Request.Name, r.part.o.Partition, r.delivered.Load(), r)
	r.running.Go(func(ctx context.Context) { r.catchUp(ctx, end) })
}

// stop ends reading and planning, and waits for both.
func (r *receiver) stop() {
	r.part.o.Reader.Remove(r.part.o.Topics.Request.Name, r.part.o.Partition, r)
	r.running.Stop()
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
	r.part.life.Input.Read(recs, got.Next, got.Epoch)
	if n := len(recs); n > 0 {
		r.part.life.Input.WatchRetention(recs[0].Timestamp)
		now := r.part.o.Now()
		r.part.lag.Store(&lag{max(0, end-recs[n-1].Offset-1), recs[n-1].Timestamp, now})
		r.arrivals.read(recs[n-1].Offset+1, now.UnixMilli())
	} else if l := r.part.lag.Load(); l != nil && end <= got.Next {
		r.part.lag.Store(&lag{0, l.newest, l.at})
	}
	r.noteHeld(&got)
	r.showLag()
	r.hand(recs, got.Next)
	// After hand, because the catch-up barrier opens behind the requests that it finds delivered.
	r.delivered.Store(max(r.delivered.Load(), got.Next))
	if len(recs) == 0 {
		r.part.o.Lanes.Wake() // the position may pass markers, see mayPass
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
	r.part.life.Log.Warn("unreadable batch, becomes a dead letter", "offset", u.First, "next_offset",
		u.Next, "err", u.Err)
	r.part.life.Input.Read(nil, u.Next, u.Epoch)
	rec := &kgo.Record{Topic: r.part.o.Topics.Request.Name, Partition: r.part.o.Partition, Offset: u.First}
	s := r.subs.of(rec.Key)
	r.subs.progress.Hand(s.number, u.First, u.Next)
	r.subs.progress.Reach(u.Next)
	b, _ := nextBatch([]*kgo.Record{rec})
	b.Position = u.Next
	b.Refuse(0, u.Refusal("requests"))
	r.backlog.delivered(b.Size())
	s.inbox.put(b)
	r.delivered.Store(u.Next)
	r.pauseIfFull()
}

func (r *receiver) Fail(err error) { r.part.life.GiveUpReading(err) }

// pauseIfFull pauses intake at its limits.
func (r *receiver) pauseIfFull() {
	r.pauseMu.Lock()
	defer r.pauseMu.Unlock()
	if !r.paused && r.backlog.full(false) {
		r.paused = true
		r.part.o.Reader.Pause(r.part.o.Topics.Request.Name, r.part.o.Partition)
	}
}

// resumeIfFree resumes intake once half of its limits is free.
func (r *receiver) resumeIfFree() {
	r.pauseMu.Lock()
	defer r.pauseMu.Unlock()
	if r.paused && !r.backlog.full(true) {
		r.paused = false
		r.part.o.Reader.Resume(r.part.o.Topics.Request.Name, r.part.o.Partition)
	}
}

func (r *receiver) isPaused() bool {
	r.pauseMu.Lock()
	defer r.pauseMu.Unlock()
	return r.paused
}

// lagNow returns the lag that the partition shows.
func (r *receiver) lagNow() (behind int64, age time.Duration) {
	paused := r.isPaused()
	var u unread
	e, known := r.part.life.Input.End()
	if waits := e.End - r.delivered.Load(); known && waits > 0 && (paused || e.Held()) {
		u.behind = waits
		if e.Held() {
			u.oldest = e.Since
		}
	}
	return r.part.lag.Load().now(r.part.o.Now(), paused, u)
}

func (r *receiver) showLag() {
	behind, age := r.lagNow()
	r.part.o.Metrics.setLag(r.part.o.Topics.Request.Name, r.part.o.Partition, behind, age)
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
	for i, part := range parts {
		if n := len(part); n > 0 {
			r.subs.progress.Hand(i, part[0].Offset, part[n-1].Offset+1)
		}
	}
	r.subs.progress.Reach(next)
	for i, part := range parts {
		for len(part) > 0 {
			var b *planner.Batch
			b, part = nextBatch(part)
			r.backlog.delivered(b.Size())
			all[i].inbox.put(b)
		}
	}
}

// open lets timers fire: those of each sub-partition as soon as it has planned the requests that it was handed so far.
// That includes every cancel that could still win.
func (r *receiver) open() {
	for _, s := range r.subs.all {
		s.inbox.update(func() { s.inbox.opens = true })
	}
}

// nextBatch makes a batch of the first records, and returns the rest. A step takes a batch whole, so it is bounded in
// count and bytes.
func nextBatch(recs []*kgo.Record) (b *planner.Batch, rest []*kgo.Record) {
	n, bytes := 0, int64(0)
	for n < min(maxBatch, len(recs)) {
		size := recordSize(recs[n])
		if n > 0 && bytes+size > maxBatchBytes {
			break
		}
		n, bytes = n+1, bytes+size
	}
	b = planner.NewBatch(n)
	b.Bytes = bytes
	for _, rec := range recs[:n] {
		b.Append(rec, rec.Offset)
	}
	return b, recs[n:]
}

const (
	// catchUpPoll is how often the catch-up barrier checks how far intake has read.
	catchUpPoll = 5 * time.Millisecond
	// heldPatience is how long the catch-up barrier waits in total for open transactions of other producers. See
	// catchUp.
	heldPatience = 10 * time.Second
	// heldStep is the most that one gap between deliveries adds, so that time without an answer does not count.
	heldStep = 500 * time.Millisecond
)

// catchUp is the catch-up barrier. It waits until every request up to end, the log's end at the acquisition, is
// delivered. Then timers may fire. So a cancel in the log wins against a timer that fell due while no instance ran,
// unless the cancel stands behind an open transaction, see below.
//
// While a producer has a transaction open, no record from its first one on can be read. Ordinary transactions last for
// milliseconds, so the barrier waits for them, and a cancel behind one wins. But it waits no longer than heldPatience,
// about as long as a failover takes anyway, because all timers of the partition are late until then. The coordinator
// aborts the transaction of a dead producer after its transaction.timeout.ms (60 s by default, 15 minutes at most), and
// a hanging transaction never ends. If the barrier waited for those, one producer could stop a tenant's timers at each
// acquisition. A live owner does not wait either: it reads such requests when the transaction ends. So a request behind
// an open transaction counts as if it were written when the transaction ends.
func (r *receiver) catchUp(ctx context.Context, end int64) {
	poll := time.NewTicker(catchUpPoll)
	defer poll.Stop()
	patience := cmp.Or(r.part.o.HeldPatience, heldPatience)
	for r.delivered.Load() < end {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
		if time.Duration(r.held.Load()) >= patience {
			r.part.life.Log.Warn("catch-up barrier opened despite an open transaction, cancels behind it may be late",
				"offset", r.delivered.Load(), "end", end)
			break
		}
	}
	r.open()
	r.part.life.SetState(ownership.Live)
	r.part.life.Log.Info("partition live", "position", r.delivered.Load(), "pending", r.subs.Pending())
}

// caughtUp is how long after the last request was read the lag is shown as 0, if no request follows.
const caughtUp = time.Second

// lag is how far intake was behind the log when it last delivered something; nil: it has not. It does not change: a
// delivery makes another one. Deliveries of a partition follow each other, those of different acquisitions too
// (partlog.Consumer.Remove), so none is lost.
//
// The lag has two sources. A delivery knows the high watermark of its fetch, and whether only markers lie before it.
// But nothing is delivered while intake is paused, nor from behind the first record of any producer's open transaction.
// Then the log itself is asked, once a second: see Partition.SetLogEnd. Until deliveries come again, offsets are
// counted, including markers and aborted records.
type lag struct {
	behind int64     // records that were waiting at the last delivery
	newest time.Time // timestamp of the last request read
	at     time.Time // when it was read
}

// unread is the part of the log that a look has found and intake has not delivered.
type unread struct {
	behind int64     // offsets
	oldest time.Time // timestamp of the first of them if an open transaction holds them; otherwise zero
}

// now returns the lag to show. It is the age of the newest request when it was read, or its age now if more requests
// wait, or the age of the oldest request that an open transaction holds; some time after the last request it is 0.
func (l *lag) now(now time.Time, paused bool, u unread) (behind int64, age time.Duration) {
	if behind = u.behind; !u.oldest.IsZero() {
		age = now.Sub(u.oldest)
	}
	if l == nil {
		return behind, age
	}
	behind = max(l.behind, behind)
	switch {
	case paused, l.behind > 0:
		age = max(age, now.Sub(l.newest))
	case behind == 0 && now.Sub(l.at) <= caughtUp:
		age = l.at.Sub(l.newest)
	}
	return behind, age
}
