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
// for the seal fields, which are the lane's, and the diff, which is Run's.
type item struct {
	id        string
	ref       timer.Ref    // planned state
	timer     *timer.Timer // in memory if pending here
	unsettled int          // entries planned and not folded into the delta yet
	stale     bool         // the store has yet to hear of the last settled one
	near      bool         // in the wheel of what falls due soon
	batch     *intake.Batch[*entry]
	slot      wheel.Entry[*item]
	last      *entry          // the latest one not settled, for un-planning
	permit    *emitter.Permit // to fire although its target is sick
	parking   bool            // on its way to the parked rows

	sealed int64 // number of the seal that net belongs to
	net    int   // index among that seal's nets

	diff diff // Run's
}

// kept reports whether the item knows more than the store does.
func (it *item) kept() bool { return it.unsettled > 0 || it.stale }

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
	settled []settled
	stored  []*item
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
	// beyond holds pending items that are in the overlay and above the horizon.
	beyond *wheel.Wheel[*item]
	// waiting holds items whose firing was un-planned, until no entry of theirs is
	// unsettled, or whose target is sick, until the store has them.
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
		items: make(map[string]*item), wheel: wheel.New[*item](p.clock.millis()), beyond: wheel.New[*item](p.clock.millis()), waiting: make(map[*item]struct{}),
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
		case m.settled != nil:
			w.settled(m.settled)
		case m.stored != nil:
			w.stored(m.stored)
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

// change makes t the planned state of an item, by an entry that is not settled.
func (w *worker) change(it *item, t *timer.Timer) {
	w.drop(it)
	it.unsettled++
	it.ref, it.timer = t.Ref(), t
	if t == nil {
		return
	}
	if it.ref.Compare(w.horizon) < 0 {
		w.insert(it)
	} else {
		w.postpone(it)
	}
}

// drop takes an item's pending timer out of memory.
func (w *worker) drop(it *item) {
	switch {
	case it.near:
		w.wheel.Remove(&it.slot)
		w.left(it)
	default:
		w.beyond.Remove(&it.slot)
	}
	delete(w.waiting, it)
	it.timer, it.permit, it.parking = nil, nil, false
}

// insert puts an item that is in no wheel among those that fall due soon.
func (w *worker) insert(it *item) {
	it.slot.Key = wheel.Key{Due: it.ref.Due, Seq: it.ref.Offset}
	w.wheel.Insert(&it.slot)
	it.near = true
	w.bytes += held(it.timer)
}

// left notes that the wheel has given an item out.
func (w *worker) left(it *item) {
	it.near = false
	w.bytes -= held(it.timer)
}

// postpone puts an item that is in no wheel beyond the horizon.
func (w *worker) postpone(it *item) {
	it.slot.Key = wheel.Key{Due: it.ref.Due, Seq: it.ref.Offset}
	w.beyond.Insert(&it.slot)
}

// settled takes note of committed entries.
func (w *worker) settled(all []settled) {
	for _, s := range all {
		it := s.item
		it.stale = s.stale
		if it.unsettled--; it.unsettled > 0 {
			continue
		}
		it.last = nil
		w.again(it)
		w.forget(it)
	}
	w.evict() // what waited may be much
}

// stored takes note that the store has what was last settled of these items.
func (w *worker) stored(items []*item) {
	for _, it := range items {
		if it.stale = false; it.unsettled > 0 {
			continue
		}
		w.again(it)
		w.forget(it)
	}
	w.evict()
}

// again puts what waited back into the wheel: it is looked at when due, and
// parked if its target is sick.
func (w *worker) again(it *item) {
	if _, waits := w.waiting[it]; waits {
		delete(w.waiting, it)
		w.insert(it)
	}
}

// forget lets go of an item that the store knows as well, unless it is to fire soon.
func (w *worker) forget(it *item) {
	if !it.kept() && !it.near {
		w.drop(it)
		delete(w.items, it.id)
	}
}
