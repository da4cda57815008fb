package delaytopics

import (
	"fmt"
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
	// readAhead is how long before the newest queued record is due intake goes on reading. It is longer than a tick
	// and a fetch that waits for data together.
	readAhead = 500 * time.Millisecond
	// alertEvery is how often the alert about timestamps far ahead is repeated.
	alertEvery = time.Minute
	// farAhead is how far the timestamp at the front of the queue must lie ahead of the clock to raise an alert. It is
	// Kafka's default of message.timestamp.after.max.ms.
	farAhead = time.Hour
)

// Room implements partlog.Sink. Intake that has no room pauses, so that nothing is fetched until there is some.
func (r *relay) Room(next int64) timer.Size {
	room := partition.RoomFor(r.o.Queue, next)
	if room.IsUsedUp() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pauseIfFull(false)
	}
	return room
}

// Deliver implements partlog.Sink.
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
// it: the brokers, whose clocks count, reject it when it is written, or the topic is configured to take it. No clock of
// this machine knows better (see package clocks).
func validateTime(at int64) *intake.Refusal {
	if at >= 0 {
		return nil
	}
	return &intake.Refusal{Reason: waterclock.ReasonNoTimestamp, Detail: fmt.Sprintf(
		"the delay counts from the record's timestamp, which is %d: let the producer set one, or the topic "+
			"(message.timestamp.type=LogAppendTime).", at)}
}

// full reports whether the queue has enough. It says so at the limit, and from then on until half of the limit is
// free. The lock is held.
func (r *relay) full() bool {
	return r.o.Queue.Set(partition.QueueBytes(r.queue.size()))
}

// resume lets intake go on if there is room and the last queued record is due soon. The lock is held.
func (r *relay) resume(now time.Time) {
	if full := r.full(); r.paused && !full && time.UnixMilli(r.queue.last).Sub(now) <= readAhead {
		r.paused = false
		r.o.Reader.Resume(r.o.Topics.Request.Name, r.o.Partition)
	}
}

// Fail implements partlog.Sink.
func (r *relay) Fail(err error) { r.life.GiveUpReading(err) }

// watchAhead raises an alert if all records wait for one whose timestamp lies far ahead.
func (r *relay) watchAhead(now time.Time, due int64, ok bool) {
	ahead := time.UnixMilli(due).Sub(now) - r.o.Topics.Delay
	if !ok || ahead <= farAhead || time.Since(r.alertedAhead) < alertEvery {
		return
	}
	r.alertedAhead = time.Now()
	r.life.Log.Error("all records wait for one whose timestamp lies far ahead: set the clock of its producer, or "+
		"this machine's, and message.timestamp.after.max.ms of the topic",
		"ahead", ahead)
}

// Skip makes one dead letter of a batch of records that cannot be read. It implements partlog.Sink.
func (r *relay) Skip(u *partlog.Unreadable) {
	reason, detail := u.Reason("records")
	r.life.Log.Warn("unreadable batch becomes a dead letter", "from", u.First, "to", u.Next, "err", u.Err)
	r.life.Input.Read(nil, u.Next, u.Epoch)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue.add(item{
		rec: &kgo.Record{Topic: r.o.Topics.Request.Name, Partition: r.o.Partition, Offset: u.First}, next: u.Next,
		refusal: &intake.Refusal{Reason: reason, Detail: detail},
	}, none)
	r.pauseIfFull(false)
	r.life.Wake.Send()
}
