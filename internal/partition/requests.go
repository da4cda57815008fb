package partition

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/delaytopics"
)

// Deliver fans requests out to the workers. It implements intake.Sink.
func (p *Partition) Deliver(recs []*kgo.Record, highWatermark int64) {
	if n := len(recs); n > 0 {
		p.watchRetention(recs[0].Timestamp)
		p.lag.read(highWatermark-recs[n-1].Offset-1, recs[n-1].Timestamp, p.o.Now())
		p.showLag()
	}
	for len(recs) > 0 {
		n := min(maxBatch, len(recs))
		p.fanOut(recs[:n])
		recs = recs[n:]
	}
	p.pauseIfFull()
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
	p.pauseMu.Lock()
	p.queued += len(recs)
	p.queuedB += bytes
	p.pauseMu.Unlock()
	b := p.tracker.Open(n, recs[len(recs)-1].Offset+1)
	for i, pt := range parts {
		if pt != nil {
			pt.batch = b
			p.workers[i].post(message{part: pt})
		}
	}
	p.delivered.Store(b.Position())
}

// Fail takes an error of reading. It implements intake.Sink.
func (p *Partition) Fail(err error) { p.fail(readError(err)) }

// recordSize is about how many bytes a record holds in memory.
func recordSize(r *kgo.Record) int64 {
	n := 200 + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += 40 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// planned takes a part out of the count of what waits for workers.
func (p *Partition) planned(pt *part) {
	p.pauseMu.Lock()
	p.queued -= len(pt.recs)
	p.queuedB -= pt.bytes
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
// not applied counts: when the store is slow it is the greater part.
func (p *Partition) fill() (entries int, bytes int64) {
	entries, bytes = p.tracker.Fill()
	return entries + p.queued + p.waiting, bytes + p.queuedB + p.waitingB
}

// pauseIfFull stops intake at the queue's limit; firings have as much again.
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

// roomToFire reports whether more firings may be planned.
func (p *Partition) roomToFire() bool {
	entries, bytes := p.tracker.Fill()
	p.pauseMu.Lock()
	entries, bytes = entries+p.waiting, bytes+p.waitingB
	p.pauseMu.Unlock()
	return entries < 2*p.o.QueueEntries && bytes < 2*p.o.QueueBytes
}

// source names a request of this partition.
func (p *Partition) source(offset int64) delaytopics.Source {
	return delaytopics.Source{Topic: p.o.Topics.Request.Name, Partition: p.o.Partition, Offset: offset}
}
