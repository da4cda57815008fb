package partition

import (
	"math"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/wheel"
)

// fire plans what is due and returns how long to sleep.
func (w *worker) fire() time.Duration {
	defer w.showNext()
	for w.open {
		due, ok := w.wheel.Next()
		if !ok {
			break
		}
		if d := w.p.clock.until(due); d > 0 {
			w.relieve()
			return d
		}
		if !w.p.roomToFire() {
			w.mu.Lock()
			w.starved = true
			w.mu.Unlock()
			if !w.p.roomToFire() {
				break // settled steps poke the starved
			}
		}
		w.fireSome()
	}
	w.relieve()
	return idle
}

// never is later than every due time.
const never = math.MaxInt64

func (w *worker) showNext() {
	due, ok := w.wheel.Next()
	if !ok {
		due = never
	}
	w.next.Store(due)
}

// firings are entries for what a worker finds due, in two chunks: those that join
// the sequence at once, and those that do so behind a batch.
type firings struct {
	slab         []entry
	n            int // entries so far
	free, behind chunk
	after        *intake.Batch[*entry]
}

type chunk struct {
	entries []*entry
	bytes   int64
}

func (c *chunk) add(e *entry, bytes int64) {
	c.entries, c.bytes = append(c.entries, e), c.bytes+bytes
}

// next returns a new entry. Most of the time few timers are due, and an entry keeps
// its whole slab in memory until it is folded: so a slab holds as many entries
// as there are already.
func (f *firings) next() *entry {
	if len(f.slab) == 0 {
		f.slab = make([]entry, max(1, f.n))
	}
	e := &f.slab[0]
	f.slab = f.slab[1:]
	f.n++
	return e
}

// fireSome plans up to maxFirings firings.
func (w *worker) fireSome() {
	var f firings
	var sick parking
	w.wheel.Pop(w.p.clock.millis(), maxFirings, func(s *wheel.Entry[*item]) bool {
		it := s.Value
		w.left(it)
		if to, ok := w.p.sick(it); ok {
			w.park(it, to, &sick)
		} else {
			w.fireOne(it, &f)
		}
		return true
	})
	w.p.park(sick)
	grew := false
	if len(f.free.entries) > 0 {
		grew = w.p.tracker.Fire(nil, f.free.entries, f.free.bytes)
	}
	if len(f.behind.entries) > 0 {
		grew = w.p.tracker.Fire(f.after, f.behind.entries, f.behind.bytes) || grew
	}
	if grew {
		w.p.o.Lane.Wake()
	}
}

// fireOne plans the firing of an item that the wheel gave out.
func (w *worker) fireOne(it *item, f *firings) {
	t := it.timer
	e := f.next()
	e.Entry, e.worker, e.item, e.permit = t.Fire(), w, it, it.permit
	e.follow()
	it.permit = nil
	it.timer, it.ref = nil, timer.Absent
	it.unsettled++
	bytes := held(t) + entryMemory
	if it.batch != nil && !w.p.tracker.Joined(it.batch) {
		// A later batch joins behind an earlier one, and w planned them in
		// order, so the last one seen to be open serves all.
		f.behind.add(e, bytes)
		f.after = later(f.after, it.batch)
	} else {
		f.free.add(e, bytes)
	}
}

// later returns the batch that joins later.
func later(a, b *intake.Batch[*entry]) *intake.Batch[*entry] {
	if a == nil || b.Position() > a.Position() {
		return b
	}
	return a
}
