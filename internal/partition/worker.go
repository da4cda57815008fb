package partition

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/wheel"
)

const (
	// maxFirings is how many firings a worker hands over at a time.
	maxFirings = 512
	// idle is how long a worker sleeps when nothing is due.
	idle = time.Hour
	// timerMemory is about what a timer in memory takes beside its bytes: the
	// item, the timer, its place among the items, the ID and the topic's name.
	timerMemory = 400
	// entryMemory is about what an entry takes beside its timer.
	entryMemory = 150
)

// held is about how much memory a timer takes while a worker knows it.
func held(t *timer.Timer) int64 { return int64(t.Size()) + timerMemory }

// item is what a worker knows of one timer ID. Only its worker touches it, but
// for the seal fields, which are the lane's.
type item struct {
	id        string
	ref       timer.Ref    // planned state
	timer     *timer.Timer // in memory if pending here
	unapplied int          // entries planned and not applied yet
	batch     *intake.Batch[*entry]
	slot      wheel.Entry[*item]
	last      *entry          // the latest one not applied, for un-planning
	permit    *emitter.Permit // to fire although its target is sick
	parking   bool            // on its way to the parked rows

	sealed int64 // number of the seal that net belongs to
	net    int   // index among that seal's nets
}

// entry is a planned decision and what the partition needs to carry it out.
type entry struct {
	timer.Entry
	worker *worker
	item   *item  // nil for a refused request
	value  []byte // the bytes of After
	// dead is the dead letter of a refused request.
	dead *kgo.Record
	// refusal is set once the target refused the emission for good.
	refusal *refusal
	// permit lets the emission pass although its target is sick.
	permit *emitter.Permit
	// next is the entry of the same ID that was planned on this one.
	next *entry
	// suspect: the target refused a batch that held the emission.
	suspect bool
}

// message is what a worker is told; one field is set.
type message struct {
	part    *part
	load    *load
	applied []*item
	open    bool // the gate
	unplan  []*entry
	parked  []*item
	granted []*timer.Timer  // unparked
	permit  *emitter.Permit // of granted
	lower   *timer.Ref      // the store has timers from there on that a load passed over
}

// part is a worker's share of a batch of requests.
type part struct {
	batch *intake.Batch[*entry]
	recs  []*kgo.Record
	bytes int64
	// refusal of the one record, which stands for a batch that is too large.
	refusal *intake.Refusal
}

// load is what a scan of the store found between two places.
type load struct {
	from, to timer.Ref
	timers   []*timer.Timer
}

// worker plans for one sub-partition. mu guards the fields below it, which
// others touch; the rest is its goroutine's own.
type worker struct {
	p     *Partition
	index int
	wake  chan struct{}

	items map[string]*item
	wheel *wheel.Wheel[*item]
	// beyond holds pending items that are in the overlay and not in the wheel.
	beyond map[*item]struct{}
	// waiting holds items whose firing was un-planned, or whose target is sick,
	// until no entry of theirs is unapplied.
	waiting map[*item]struct{}
	horizon timer.Ref
	open    bool  // the gate
	bytes   int64 // held by the timers in the wheel

	next atomic.Int64 // earliest due time in the wheel, for all to see

	mu      sync.Mutex
	inbox   []message
	lowered timer.Ref // lowest place an eviction went back to since the last load
	full    bool      // holds its share of memory: load no more
	loading bool      // a load is in the inbox: one at a time, so that memory is bounded
	starved bool      // due firings wait for room in the queue
}

// highest is above every place that a horizon is lowered to.
var highest = timer.Ref{Due: math.MaxInt64, Offset: math.MaxInt64}

func newWorker(p *Partition, index int) *worker {
	w := &worker{
		p: p, index: index, wake: make(chan struct{}, 1),
		items: make(map[string]*item), wheel: wheel.New[*item](p.clock.millis()), beyond: make(map[*item]struct{}), waiting: make(map[*item]struct{}),
		horizon: lowest, lowered: highest,
	}
	w.next.Store(never)
	return w
}

func (w *worker) post(m message) {
	w.mu.Lock()
	w.inbox = append(w.inbox, m)
	w.mu.Unlock()
	w.poke()
}

func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) run(ctx context.Context) {
	sleep := time.NewTimer(idle)
	defer sleep.Stop()
	for {
		if err := w.read(); err != nil {
			w.p.fail(err)
			return
		}
		sleep.Reset(w.fire())
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-sleep.C:
		}
	}
}

// read takes in the inbox.
func (w *worker) read() error {
	w.mu.Lock()
	inbox := w.inbox
	w.inbox = nil
	w.mu.Unlock()
	for i := range inbox {
		m := &inbox[i]
		switch {
		case m.part != nil:
			if err := w.plan(m.part); err != nil {
				return err
			}
			w.fire() // a long inbox must not hold back what is due
		case m.load != nil:
			w.takeIn(m.load)
			w.setLoading(false)
			w.p.kick()
		case m.applied != nil:
			w.forget(m.applied)
		case m.unplan != nil:
			w.unplan(m.unplan)
		case m.parked != nil:
			w.parked(m.parked)
		case m.granted != nil:
			w.grant(m.granted, m.permit)
		case m.lower != nil:
			w.evictFrom(wheel.Key{Due: m.lower.Due, Seq: m.lower.Offset})
		case m.open:
			w.open = true
		}
	}
	return nil
}

// change makes t the planned state of an item, by an entry that is not applied.
func (w *worker) change(it *item, t *timer.Timer) {
	w.drop(it)
	it.unapplied++
	it.ref, it.timer = t.Ref(), t
	if t == nil {
		return
	}
	if it.ref.Compare(w.horizon) < 0 {
		w.insert(it)
	} else {
		w.beyond[it] = struct{}{}
	}
}

// drop takes an item's pending timer out of memory.
func (w *worker) drop(it *item) {
	if it.slot.InWheel() {
		w.wheel.Remove(&it.slot)
		w.bytes -= held(it.timer)
	}
	delete(w.beyond, it)
	delete(w.waiting, it)
	it.timer, it.permit, it.parking = nil, nil, false
}

func (w *worker) insert(it *item) {
	it.slot.Key = wheel.Key{Due: it.ref.Due, Seq: it.ref.Offset}
	w.wheel.Insert(&it.slot)
	w.bytes += held(it.timer)
}

// forget takes note of applied entries: the store has them now.
func (w *worker) forget(items []*item) {
	for _, it := range items {
		if it.unapplied--; it.unapplied > 0 {
			continue
		}
		it.last = nil
		if _, waits := w.waiting[it]; waits {
			delete(w.waiting, it)
			w.insert(it) // looked at again when due, and parked if its target is sick
		}
		if !it.slot.InWheel() {
			w.drop(it)
			delete(w.items, it.id)
		}
	}
	w.evict() // what waited may be much
}

// takeIn puts the rows of a load into the wheel. The package comment says why
// an ID with an item is passed over.
func (w *worker) takeIn(l *load) {
	if l.from.Compare(w.horizon) > 0 {
		return // the horizon was lowered meanwhile; the next load begins there
	}
	for _, t := range l.timers {
		if t.Ref().Compare(w.horizon) < 0 || w.items[string(t.ID)] != nil {
			continue
		}
		it := &item{id: string(t.ID), ref: t.Ref(), timer: t}
		it.slot.Value = it
		w.items[it.id] = it
		w.insert(it)
	}
	if l.to.Compare(w.horizon) <= 0 {
		return
	}
	for it := range w.beyond {
		if it.ref.Compare(l.to) < 0 {
			delete(w.beyond, it)
			w.insert(it)
		}
	}
	w.horizon = l.to
	w.setFull(w.bytes > w.p.o.WheelBytes)
	w.evict()
}

func (w *worker) setFull(full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = full
}

// loadState returns where an eviction wants the next load to begin, once, and
// whether loads must wait.
func (w *worker) loadState() (lowered timer.Ref, wait bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lowered, w.lowered = w.lowered, highest
	return lowered, w.full || w.loading
}

func (w *worker) setLoading(loading bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loading = loading
}

// evict forgets the farthest timers of a wheel that holds more than its share,
// a quarter at a time.
func (w *worker) evict() {
	for limit := w.p.o.WheelBytes; w.bytes > limit+limit/4; {
		k, ok := w.wheel.Farthest(w.wheel.Len() / 4)
		if !ok {
			return
		}
		w.evictFrom(k)
	}
}

func (w *worker) evictFrom(k wheel.Key) {
	w.wheel.EvictFrom(k, func(s *wheel.Entry[*item]) {
		it := s.Value
		w.bytes -= held(it.timer)
		if it.unapplied > 0 {
			w.beyond[it] = struct{}{}
		} else {
			delete(w.items, it.id)
		}
	})
	// Never up: what was granted, or has waited, may lie above the horizon, and
	// the rows between that and k were not loaded.
	if at := (timer.Ref{Due: k.Due, Offset: k.Seq}); at.Compare(w.horizon) < 0 {
		w.horizon = at
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = true
	if w.horizon.Compare(w.lowered) < 0 {
		w.lowered = w.horizon
	}
}

// relieve asks for a load when memory has become free again.
func (w *worker) relieve() {
	w.mu.Lock()
	was := w.full
	w.full = w.bytes > w.p.o.WheelBytes/2 && was
	freed := was && !w.full
	w.mu.Unlock()
	if freed {
		w.p.kick()
	}
}
