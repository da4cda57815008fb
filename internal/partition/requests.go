package partition

import (
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

// inbox holds, in order, what intake has delivered and the goroutine that plans has yet to
// take. mu guards what follows it.
type inbox struct {
	wake chan struct{}

	mu    sync.Mutex
	list  []delivery
	ahead load // room for firings that are to be planned ahead; the last word counts, there may have been several
}

// delivery is a run of requests that are planned as one, one batch that is too large
// to be looked into, or the word to open the gate.
type delivery struct {
	recs     []*kgo.Record
	position int64            // just behind the last one
	bytes    int64            // that they hold in memory
	refusal  *planner.Refusal // of the one record, which stands for the batch
	open     bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

func (in *inbox) put(d delivery) {
	in.mu.Lock()
	in.list = append(in.list, d)
	in.mu.Unlock()
	in.rouse()
}

// putAhead has firings planned: see plans.fireAhead.
func (in *inbox) putAhead(room load) {
	in.mu.Lock()
	in.ahead = room
	in.mu.Unlock()
	in.rouse()
}

func (in *inbox) rouse() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

func (in *inbox) takeAll() (list []delivery, ahead load) {
	in.mu.Lock()
	defer in.mu.Unlock()
	list, ahead = in.list, in.ahead
	in.list, in.ahead = nil, load{}
	return list, ahead
}

// Deliver takes requests in, to be planned. It implements intake.Sink.
func (p *Partition) Deliver(r intake.Read) {
	recs, end := r.Records, r.End
	p.life.Input.Read(recs, r.Next, r.Epoch)
	if n := len(recs); n > 0 {
		p.life.Input.WatchRetention(recs[0].Timestamp)
		now := p.o.Now()
		p.lag.read(end-recs[n-1].Offset-1, recs[n-1].Timestamp, now)
		p.arrivals.read(recs[n-1].Offset+1, now.UnixMilli())
	} else {
		p.lag.ends(end - p.delivered.Load())
	}
	p.showLag()
	p.plans.hand(recs, r.Next)
	p.delivered.Store(max(p.delivered.Load(), r.Next)) // after hand: the gate opens behind what it finds delivered
	if len(recs) == 0 {
		p.o.Lanes.Wake() // markers are to be passed, see mayPass
	}
	p.pauseIfFull()
}

// batchOf returns how many of the records are planned as one batch, and about how
// many bytes they hold: a step takes it whole, so it is bounded in count and bytes.
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

// SkipBatch implements intake.Sink.
func (p *Partition) SkipBatch(first, next int64) bool {
	known, aborted := p.life.Input.LookedAt(first, next)
	switch {
	case !known:
		return false
	case aborted:
		p.delivered.Store(next) // there is no request in it
	default:
		p.refuseBatch(first, next)
	}
	return true
}

// refuseBatch has a batch of requests that is too large to be looked into become one
// dead letter, in its place.
func (p *Partition) refuseBatch(first, next int64) {
	p.life.Log.Warn("a batch of requests is too large when decompressed and becomes a dead letter", "from", first, "to", next)
	rec := &kgo.Record{Topic: p.o.Topics.Request.Name, Partition: p.o.Partition, Offset: first}
	p.plans.handOne(delivery{recs: []*kgo.Record{rec}, position: next, bytes: recordSize(rec), refusal: batchTooLarge(first, next)})
	p.delivered.Store(next)
}

func batchTooLarge(first, next int64) *planner.Refusal {
	return &planner.Refusal{Reason: string(waterclock.ReasonBatchTooLarge), Detail: fmt.Sprintf(
		"the batch of requests at the offsets %d to %d is larger when decompressed than the service takes, and none of them was looked at: send them again in smaller batches.",
		first, next-1)}
}

// Fail takes an error of reading. It implements intake.Sink.
func (p *Partition) Fail(err error) { p.life.GiveUp(readError(err)) }

// recordSize is about how many bytes a record holds in memory, as it is or, which
// is more, once it is planned.
func recordSize(r *kgo.Record) int64 {
	n := planner.TimerMemory + planner.EntryMemory + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += 40 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// source names the record that a generation of this partition comes from: a
// request, or the changelog's where the timer was moved here.
func (p *Partition) source(generation int64) waterclock.Source {
	generation = timer.Ref{Offset: generation}.Generation()
	if at, moved := timer.MovedAt(generation); moved {
		return waterclock.Source{Topic: p.o.Topics.Changelog.Name, Partition: p.o.Partition, Offset: at}
	}
	return waterclock.Source{Topic: p.o.Topics.Request.Name, Partition: p.o.Partition, Offset: generation}
}
