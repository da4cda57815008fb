package partition

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

// inbox is what intake has delivered and the goroutine that plans has yet to take,
// in order. mu guards the list.
type inbox struct {
	wake chan struct{}

	mu   sync.Mutex
	list []delivery
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
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

func (in *inbox) takeAll() []delivery {
	in.mu.Lock()
	defer in.mu.Unlock()
	list := in.list
	in.list = nil
	return list
}

// Deliver takes requests in, to be planned. It implements intake.Sink.
func (p *Partition) Deliver(recs []*kgo.Record, end int64) {
	p.Read(recs)
	if n := len(recs); n > 0 {
		p.WatchRetention(recs[0].Timestamp)
		now := p.o.Now()
		p.lag.read(end-recs[n-1].Offset-1, recs[n-1].Timestamp, now)
		p.arrivals.read(recs[n-1].Offset+1, now.UnixMilli())
	} else {
		p.lag.ends(end - p.delivered.Load())
	}
	p.showLag()
	for len(recs) > 0 {
		n, bytes := batchOf(recs)
		p.deliver(delivery{recs: recs[:n], position: recs[n-1].Offset + 1, bytes: bytes})
		recs = recs[n:]
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

// deliver hands a run over to who plans. It counts as delivered behind that: the gate,
// which goes by it, puts the word to open behind what it finds delivered.
func (p *Partition) deliver(d delivery) {
	p.backlog.delivered(len(d.recs), d.bytes)
	p.inbox.put(d)
	p.delivered.Store(d.position)
}

// SkipBatch implements intake.Sink.
func (p *Partition) SkipBatch(first, next int64) bool {
	known, aborted := p.LookedAt(first, next)
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
	p.Log.Warn("a batch of requests is too large when decompressed and becomes a dead letter", "from", first, "to", next)
	rec := &kgo.Record{Topic: p.o.Topics.Request.Name, Partition: p.o.Partition, Offset: first}
	p.deliver(delivery{recs: []*kgo.Record{rec}, position: next, bytes: recordSize(rec), refusal: batchTooLarge(first, next)})
}

func batchTooLarge(first, next int64) *planner.Refusal {
	return &planner.Refusal{Reason: string(waterclock.ReasonBatchTooLarge), Detail: fmt.Sprintf(
		"the batch of requests at the offsets %d to %d is larger when decompressed than the service takes, and none of them was looked at: send them again in smaller batches.",
		first, next-1)}
}

// Fail takes an error of reading. It implements intake.Sink.
func (p *Partition) Fail(err error) { p.GiveUp(readError(err)) }

// recordSize is about how many bytes a record holds in memory, as it is or, which
// is more, once it is planned.
func recordSize(r *kgo.Record) int64 {
	n := planner.TimerMemory + planner.EntryMemory + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += 40 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// planAll plans what is delivered until ctx ends. It is a goroutine of its own, which
// waits for the store where IDs are not known; what falls due does not wait for it.
func (p *Partition) planAll(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.planDelivered(); err != nil {
			p.GiveUp(err)
			return
		}
		select {
		case <-ctx.Done():
		case <-p.inbox.wake:
		}
	}
}

func (p *Partition) planDelivered() error {
	for _, d := range p.inbox.takeAll() {
		if err := p.plan(&d); err != nil {
			return err
		}
		p.o.Lanes.Wake()
	}
	return nil
}

// plan judges what was delivered, looks up what is not known, and plans it.
func (p *Partition) plan(d *delivery) error {
	if d.open {
		now := p.clock.millis()
		p.opened.Store(now)
		p.planning.Lock()
		defer p.planning.Unlock()
		p.planner.Open(now)
		return nil
	}
	for len(d.recs) > 0 {
		b, err := p.judgeSome(d)
		if err == nil {
			err = p.planBatch(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Partition) planBatch(b *planner.Batch) error {
	p.planning.Lock()
	defer p.planning.Unlock()
	if unknown := p.planner.Meet(b); !unknown.Empty() {
		p.planning.Unlock()
		refs := make([]timer.Ref, len(unknown.IDs))
		err := p.handle.LookupAll(unknown.IDs, refs)
		var timers []*timer.Timer
		var parked []bool
		if err == nil && len(unknown.Whole) > 0 {
			timers, parked, err = p.handle.GetAll(unknown.Whole)
		}
		p.planning.Lock()
		if err != nil {
			return err
		}
		unknown.Found(refs, timers, parked, p.clock.millis())
	}
	p.backlog.delivered(0, p.planner.Plan(b))
	return nil
}

// judgeSome turns records into requests, and takes them off the delivery: all of them,
// but for those behind as many that depend on what is pending as maxDepending says.
func (p *Partition) judgeSome(d *delivery) (*planner.Batch, error) {
	now, rules := p.clock.millis(), p.o.Rules.Current()
	b := planner.NewBatch(len(d.recs))
	if rules.Quota.Pending > 0 {
		b.Full = func(pending int64) *planner.Refusal { return plannersRefusal(rules.Full(pending)) }
	}
	n, bytes, depending := 0, int64(0), 0
	for limit := maxDepending(rules); n < len(d.recs) && depending < limit; n++ {
		rec := d.recs[n]
		if bytes += recordSize(rec); d.refusal != nil {
			b.Refuse(rec, d.refusal)
			continue
		}
		depends, err := p.judge(b, rec, now)
		if err != nil {
			return nil, err
		}
		if depends {
			depending++
		}
	}
	b.Position, b.Bytes = d.position, d.bytes
	if n < len(d.recs) {
		b.Position, b.Bytes = d.recs[n-1].Offset+1, bytes
	}
	d.recs, d.bytes = d.recs[n:], d.bytes-b.Bytes
	return b, nil
}

// maxDepending is how many requests of a batch may depend on what is pending. Such a
// request is small and holds the timer that it is about, which may be as large as the
// topic takes, from when it is looked up until it is committed; a step takes a batch
// whole.
func maxDepending(rules *intake.Rules) int {
	if rules.Limits.RecordBytes <= 0 {
		return 1
	}
	return max(1, maxBatchBytes/rules.Limits.RecordBytes)
}

// judge adds a record to a batch, as a request or to be refused. It reports whether what
// becomes of it depends on what is pending.
func (p *Partition) judge(b *planner.Batch, rec *kgo.Record, now int64) (depends bool, err error) {
	r, misplaced, refused := p.o.Rules.Judge(rec, now)
	switch {
	case misplaced && refused != nil && refused.Reason == waterclock.ReasonWrongPartition:
		p.o.Metrics.misplaced(rec.Topic) // the refusal says it
	case misplaced:
		p.misplaced(rec)
	}
	if refused != nil {
		b.Refuse(rec, plannersRefusal(refused))
		return false, nil
	}
	var value []byte
	if r.Schedule != nil {
		// A timer that waits in a wheel must not hold a whole fetched batch in
		// memory. The copy is the timer's bytes, which the changelog and the store
		// want anyway.
		if value, err = r.Schedule.Own(); err != nil {
			return false, err
		}
		r.ID = r.Schedule.ID
		p.o.Targets.Prefetch(r.Schedule.Target.Topic)
	}
	b.Add(rec, r, value)
	return r.Depends(), nil
}

// plannersRefusal is a refusal as the planner has it.
func plannersRefusal(r *intake.Refusal) *planner.Refusal {
	if r == nil {
		return nil
	}
	return &planner.Refusal{Reason: string(r.Reason), Detail: r.Detail}
}

// source names the record that a generation of this partition comes from: a
// request, or the changelog's where the timer was moved here.
func (p *Partition) source(generation int64) delaytopics.Source {
	generation = timer.Ref{Offset: generation}.Generation()
	if at, moved := timer.MovedAt(generation); moved {
		return delaytopics.Source{Topic: p.o.Topics.Changelog.Name, Partition: p.o.Partition, Offset: at}
	}
	return delaytopics.Source{Topic: p.o.Topics.Request.Name, Partition: p.o.Partition, Offset: generation}
}
