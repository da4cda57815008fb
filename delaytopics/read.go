package delaytopics

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// readAhead is how long before the newest queued record is due intake resumes reading. It is longer than a tick
	// plus a fetch that waits for data.
	readAhead = 500 * time.Millisecond
	// alertEvery is how often the alert about timestamps far ahead is repeated.
	alertEvery = time.Minute
	// farAhead is how far the timestamp at the front of the queue must be ahead of the clock to raise an alert. It is
	// Kafka's default of message.timestamp.after.max.ms.
	farAhead = time.Hour
)

// Room implements partlog.Sink. Intake without room pauses, so that nothing is fetched until there is some.
func (r *relay) Room(next int64) timer.Size {
	room := partition.RoomFor(r.o.Queue, next)
	if room.IsUsedUp() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pauseIfFull(false)
	}
	return room
}

func (r *relay) Deliver(got partlog.Read) {
	now := r.o.Now()
	r.life.Input.Read(got.Records, got.Next, got.Epoch)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end = got.End // this may be less than before: markers at the end do not count
	for _, rec := range got.Records {
		r.queueRecord(rec)
	}
	r.queue.pass(got.Next)
	r.pauseIfFull(time.UnixMilli(r.queue.last).Sub(now) > readAhead)
	r.life.Wake.Send()
}

// pauseIfFull pauses intake if the queue has enough, or if it has read far enough ahead. The lock is held.
func (r *relay) pauseIfFull(ahead bool) {
	if full := r.full(); !r.paused && (full || ahead) {
		r.paused = true
		r.o.Reader.Pause(r.o.Topics.Request.Name, r.o.Partition)
	}
}

// queueRecord validates a record and queues it. The lock is held.
func (r *relay) queueRecord(rec *kgo.Record) {
	it := item{rec: rec, next: rec.Offset + 1}
	it.says, it.refusal = r.o.Rules.ValidateDelayed(rec)
	at := rec.Timestamp.UnixMilli()
	if it.refusal == nil {
		it.refusal = validateTime(at)
	}
	if it.refusal != nil {
		r.queue.add(it, none) // it waits only for the records before it
		return
	}
	r.o.Targets.Prefetch(it.says.Target)
	r.queue.add(it, at+min(r.o.Topics.Delay.Milliseconds(), math.MaxInt64-at))
}

// validateTime rejects a negative timestamp. A timestamp far ahead is valid, although it holds up every record behind
// it: the brokers, whose clocks count, reject it when it is written, or the topic is configured to take it. This
// machine's clocks are no better judge (see package clocks).
func validateTime(at int64) *timer.Refusal {
	if at >= 0 {
		return nil
	}
	return intake.Refuse(waterclock.ReasonNoTimestamp, "the delay counts from the record's timestamp, which is %d: "+
		"let the producer set one, or the topic (message.timestamp.type=LogAppendTime).", at)
}

// full reports whether the queue has enough: from when it reaches the limit until half of the limit is free. The lock
// is held.
func (r *relay) full() bool {
	return r.o.Queue.Set(partition.QueueBytes(r.queue.size()))
}

// resume resumes intake if there is room and the last queued record is due soon. The lock is held.
func (r *relay) resume(now time.Time) {
	if full := r.full(); r.paused && !full && time.UnixMilli(r.queue.last).Sub(now) <= readAhead {
		r.paused = false
		r.o.Reader.Resume(r.o.Topics.Request.Name, r.o.Partition)
	}
}

func (r *relay) Fail(err error) { r.life.GiveUpReading(err) }

// watchAhead raises an alert if all records wait for one whose timestamp is far ahead.
func (r *relay) watchAhead(now time.Time, due int64, ok bool) {
	ahead := time.UnixMilli(due).Sub(now) - r.o.Topics.Delay
	if !ok || ahead <= farAhead || time.Since(r.alertedAhead) < alertEvery {
		return
	}
	r.alertedAhead = time.Now()
	r.life.Log.Error("all records wait for one with a timestamp far ahead: set the clock of its producer, or "+
		"this machine's, and message.timestamp.after.max.ms of the topic",
		"lead", ahead)
}

// Skip turns a batch of records that cannot be read into one dead letter. It implements partlog.Sink.
func (r *relay) Skip(u *partlog.Unreadable) {
	r.life.Log.Warn("unreadable batch, becomes a dead letter", "offset", u.First, "next_offset", u.Next, "err", u.Err)
	r.life.Input.Read(nil, u.Next, u.Epoch)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue.add(item{
		rec: &kgo.Record{Topic: r.o.Topics.Request.Name, Partition: r.o.Partition, Offset: u.First}, next: u.Next,
		refusal: u.Refusal("records"),
	}, none)
	r.pauseIfFull(false)
	r.life.Wake.Send()
}

// itemMemory is about how much memory a queued record takes besides its bytes, and headerMemory one of its headers.
const (
	itemMemory   = 256
	headerMemory = 40
)

// item is one queued record.
type item struct {
	rec  *kgo.Record
	due  int64 // Unix ms, at least that of the item before it; none: it need not wait
	next int64 // the position after it
	says intake.Delayed
	// An item with a refusal becomes a dead letter. undelivered: the target rejected it.
	refusal     *timer.Refusal
	undelivered bool
	// suspect: its target rejected a batch, maybe because of this record.
	suspect bool
	bytes   int64
}

// queue holds the records of a partition that were read and not passed on, in order. It is pure: no clock, no lock.
//
// Invariant: due does not decrease from front to back, nor from dropped items to added ones.
type queue struct {
	items []item
	bytes int64
	last  int64 // due of the last item ever added
	end   int64 // every record below was added; the rest is markers and aborted records
}

// none is the due time of an item that need not wait. It is before any other.
const none = 0

func (q *queue) size() timer.Size { return timer.Size{Entries: len(q.items), Bytes: q.bytes} }

// add adds an item that is due at the given time, or when the item before it is, if that is later.
func (q *queue) add(it item, due int64) {
	q.last = max(q.last, due)
	it.due = q.last
	it.bytes = recordBytes(it.rec)
	if n := len(it.says.Headers); n < len(it.rec.Headers) { // its own list: some headers are not passed on
		it.bytes += headerMemory * int64(n)
	}
	q.bytes += it.bytes
	q.items = append(q.items, it)
}

// pass records that only markers and aborted records are between the last item and a position. A step that passes the
// item on passes them too.
func (q *queue) pass(position int64) {
	if q.end = max(q.end, position); len(q.items) > 0 {
		it := &q.items[len(q.items)-1]
		it.next = max(it.next, position)
	}
}

// drop drops n items from the front.
func (q *queue) drop(n int) {
	for i := range q.items[:n] {
		q.bytes -= q.items[i].bytes
		q.items[i] = item{} // frees its memory
	}
	if q.items = q.items[n:]; len(q.items) == 0 {
		q.items = nil
	}
}

// front returns when the item at the front is due; ok is false if there is none.
func (q *queue) front() (due int64, ok bool) {
	if len(q.items) == 0 {
		return 0, false
	}
	return q.items[0].due, true
}

// recordBytes returns about how much memory a record takes.
func recordBytes(r *kgo.Record) int64 {
	n := itemMemory + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += headerMemory + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}
