package partition

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/timer"
)

// Deliver fans requests out to the workers. It implements intake.Sink.
func (p *Partition) Deliver(recs []*kgo.Record, highWatermark int64) {
	if n := len(recs); n > 0 {
		p.watchRetention(recs[0].Timestamp)
		p.lag.read(highWatermark-recs[n-1].Offset-1, recs[n-1].Timestamp, p.o.Now())
		p.showLag()
	}
	for len(recs) > 0 {
		n := batchOf(recs)
		p.fanOut(recs[:n])
		recs = recs[n:]
	}
	p.pauseIfFull()
}

// batchOf returns how many of the records are planned as one batch: a step takes
// it whole, so it is bounded in count and bytes.
func batchOf(recs []*kgo.Record) int {
	bytes := int64(0)
	for i, r := range recs[:min(maxBatch, len(recs))] {
		if bytes += recordSize(r); bytes > maxBatchBytes && i > 0 {
			return i
		}
	}
	return min(maxBatch, len(recs))
}

func (p *Partition) fanOut(recs []*kgo.Record) {
	parts := make([]*part, len(p.workers))
	n := 0
	var bytes int64
	for _, r := range recs {
		i := p.worker(r.Key)
		if parts[i] == nil {
			parts[i] = &part{}
			n++
		}
		size := recordSize(r)
		parts[i].recs = append(parts[i].recs, r)
		parts[i].bytes += size
		bytes += size
	}
	p.queue(len(recs), bytes)
	b := p.tracker.Open(n, recs[len(recs)-1].Offset+1)
	for i, pt := range parts {
		if pt != nil {
			pt.batch = b
			p.workers[i].post(message{part: pt})
		}
	}
	p.delivered.Store(b.Position())
}

// refuseBatch has a batch of requests that is too large to be looked into become one
// dead letter, in its place.
func (p *Partition) refuseBatch(first, next int64) {
	p.log.Warn("a batch of requests is too large when decompressed and becomes a dead letter", "from", first, "to", next)
	rec := &kgo.Record{Topic: p.o.Topics.Request.Name, Partition: p.o.Partition, Offset: first}
	pt := &part{recs: []*kgo.Record{rec}, bytes: recordSize(rec), refusal: batchTooLarge(first, next)}
	p.queue(1, pt.bytes)
	pt.batch = p.tracker.Open(1, next)
	p.workers[0].post(message{part: pt})
	p.delivered.Store(next)
}

func batchTooLarge(first, next int64) *intake.Refusal {
	return &intake.Refusal{Reason: waterclock.ReasonBatchTooLarge, Detail: fmt.Sprintf(
		"the batch of requests at the offsets %d to %d is larger when decompressed than the service takes, and none of them was looked at: send them again in smaller batches.",
		first, next-1)}
}

// Fail takes an error of reading. It implements intake.Sink.
func (p *Partition) Fail(err error) { p.fail(readError(err)) }

// recordSize is about how many bytes a record holds in memory, as it is or, which
// is more, once it is planned.
func recordSize(r *kgo.Record) int64 {
	n := timerMemory + entryMemory + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += 40 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// queue adds requests to those that wait for workers, or takes them out of the count.
func (p *Partition) queue(requests int, bytes int64) {
	p.pauseMu.Lock()
	p.queued += requests
	p.queuedB += bytes
	p.pauseMu.Unlock()
}

// wait adds committed entries to those that wait for the store, or takes them
// out of the count.
func (p *Partition) wait(entries int, bytes int64) {
	p.pauseMu.Lock()
	p.waiting += entries
	p.waitingB += bytes
	p.pauseMu.Unlock()
}

// fill is how much is delivered and not in the store yet. What is committed and
// not folded counts: when the store is slow it is the greater part. Firings that
// are not committed have room of their own: a backlog of them may last, and is not
// to hold up the cancels that are written meanwhile.
func (p *Partition) fill() (entries int, bytes int64) {
	entries, bytes = p.tracker.Requests()
	return entries + p.queued + p.waiting, bytes + p.queuedB + p.waitingB
}

// pauseIfFull stops intake at the queue's limit.
func (p *Partition) pauseIfFull() {
	p.pauseMu.Lock()
	defer p.pauseMu.Unlock()
	entries, bytes := p.fill()
	if !p.paused && (entries >= p.o.QueueEntries || bytes >= p.o.QueueBytes) {
		p.paused = true
		p.o.Reader.Pause(p.o.Topics.Request.Name, p.o.Partition)
	}
}

// relieve goes on with what waited for room: intake at half the limit, starved
// workers at once.
func (p *Partition) relieve() {
	p.pauseMu.Lock()
	entries, bytes := p.fill()
	if p.paused && entries <= p.o.QueueEntries/2 && bytes <= p.o.QueueBytes/2 {
		p.paused = false
		p.o.Reader.Resume(p.o.Topics.Request.Name, p.o.Partition)
	}
	p.pauseMu.Unlock()
	for _, w := range p.workers {
		w.mu.Lock()
		starved := w.starved
		w.starved = false
		w.mu.Unlock()
		if starved {
			w.poke()
		}
	}
}

// roomToFire reports whether more firings may be planned: they have as much room
// as requests, of their own, and what waits for the store is held against both.
func (p *Partition) roomToFire() bool {
	entries, bytes := p.tracker.Firings()
	if entries >= p.o.QueueEntries || bytes >= p.o.QueueBytes {
		return false
	}
	p.pauseMu.Lock()
	defer p.pauseMu.Unlock()
	return entries+p.waiting < 2*p.o.QueueEntries && bytes+p.waitingB < 2*p.o.QueueBytes
}

// source names the record that a generation of this partition comes from: a
// request, or the changelog's where the timer was moved here.
func (p *Partition) source(generation int64) delaytopics.Source {
	if at, moved := timer.MovedAt(generation); moved {
		return delaytopics.Source{Topic: p.o.Topics.Changelog.Name, Partition: p.o.Partition, Offset: at}
	}
	return delaytopics.Source{Topic: p.o.Topics.Request.Name, Partition: p.o.Partition, Offset: generation}
}
