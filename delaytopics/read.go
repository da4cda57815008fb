package delaytopics

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/partition"
)

const (
	// readAhead is how long before the newest record read is due more is read: longer
	// than a tick and a fetch that waits for data together.
	readAhead = 500 * time.Millisecond
	// alertEvery is how often the next alert is repeated.
	alertEvery = time.Minute
	// farAhead is an alert: the front of the queue has a timestamp so far ahead of the clock that
	// nobody's clock is right to within it (Kafka's default of message.timestamp.after.max.ms).
	farAhead = time.Hour
)

// Deliver implements intake.Sink.
func (p *Partition) Deliver(r intake.Read) {
	now := p.o.Now()
	p.life.Input.Read(r.Records, r.Next, r.Epoch)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = r.End // less than was known, if what is at the end is markers
	for _, rec := range r.Records {
		p.queueRecord(rec)
	}
	p.queue.pass(r.Next)
	if full := p.full(); !p.paused && (full || time.UnixMilli(p.queue.last).Sub(now) > readAhead) {
		p.paused = true
		p.o.Reader.Pause(p.o.Topics.Request.Name, p.o.Partition)
	}
	p.life.Kick()
}

// queueRecord validates a record and queues it. The lock is held.
func (p *Partition) queueRecord(r *kgo.Record) {
	it := item{rec: r, next: r.Offset + 1}
	it.says, it.refusal = p.o.Rules.ValidateDelayed(r)
	at := r.Timestamp.UnixMilli()
	if it.refusal == nil {
		it.refusal = judgeTime(at)
	}
	if it.refusal != nil {
		p.queue.add(it, none) // it waits for nothing but what is before it
		return
	}
	p.o.Targets.Prefetch(it.says.Target)
	p.queue.add(it, at+min(p.o.Topics.Delay.Milliseconds(), math.MaxInt64-at))
}

// judgeTime refuses a timestamp that says nothing. One that lies far ahead holds up all that is behind
// it, and is waited for: the brokers refuse it when it is written, whose clock knows, or the topic is
// configured to take it. Nobody here knows better: see package clocks.
func judgeTime(at int64) *intake.Refusal {
	if at >= 0 {
		return nil
	}
	return &intake.Refusal{Reason: waterclock.ReasonNoTimestamp, Detail: fmt.Sprintf(
		"the delay counts from the record's timestamp, which is %d: let the producer set one, or the topic (message.timestamp.type=LogAppendTime).", at)}
}

// full reports whether the queue has enough: from its limit on, down to half of it. The
// lock is held.
func (p *Partition) full() bool {
	return p.o.Queue.Set(partition.QueueBytes(p.queue.size()))
}

// resume goes on reading when there is room and what was read is due soon. The lock is
// held.
func (p *Partition) resume(now time.Time) {
	if full := p.full(); p.paused && !full && time.UnixMilli(p.queue.last).Sub(now) <= readAhead {
		p.paused = false
		p.o.Reader.Resume(p.o.Topics.Request.Name, p.o.Partition)
	}
}

// Fail implements intake.Sink.
func (p *Partition) Fail(err error) {
	if errors.Is(err, kerr.OffsetOutOfRange) {
		err = fmt.Errorf("the log no longer holds the position: %w", err)
	}
	p.life.GiveUp(fmt.Errorf("read records: %w", err))
}

// watchAhead says so when everything waits for a record whose timestamp lies far ahead.
func (p *Partition) watchAhead(now time.Time, due int64, ok bool) {
	ahead := time.UnixMilli(due).Sub(now) - p.o.Topics.Delay
	if !ok || ahead <= farAhead || time.Since(p.alertedAhead) < alertEvery {
		return
	}
	p.alertedAhead = time.Now()
	p.life.Log.Error("all records wait for one whose timestamp lies far ahead: set the clock of its producer, or this machine's, and message.timestamp.after.max.ms of the topic",
		"ahead", ahead)
}

// SkipBatch implements intake.Sink.
func (p *Partition) SkipBatch(first, next int64) bool {
	known, aborted := p.life.Input.LookedAt(first, next)
	if !known || aborted {
		return known
	}
	p.life.Log.Warn("a batch of records is too large when decompressed and becomes a dead letter", "from", first, "to", next)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.add(item{
		rec: &kgo.Record{Topic: p.o.Topics.Request.Name, Partition: p.o.Partition, Offset: first}, next: next,
		refusal: &intake.Refusal{Reason: waterclock.ReasonBatchTooLarge, Detail: fmt.Sprintf(
			"the batch of records at the offsets %d to %d is larger when decompressed than the service takes, and none of them was looked at: send them again in smaller batches.",
			first, next-1)},
	}, none)
	p.life.Kick()
	return true
}
