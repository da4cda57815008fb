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

// fireSome plans up to maxFirings firings.
func (w *worker) fireSome() {
	now := w.p.clock.millis()
	var (
		free, behind           []*entry
		freeBytes, behindBytes int64
		after                  *intake.Batch[*entry]
	)
	slab := make([]entry, min(maxFirings, w.wheel.Len()))
	n := 0
	var sick parking
	w.wheel.Pop(now, len(slab), func(s *wheel.Entry[*item]) bool {
		it := s.Value
		t := it.timer
		w.bytes -= int64(t.Size())
		if to, ok := w.p.sick(it); ok {
			w.park(it, to, &sick)
			return true
		}
		e := &slab[n]
		n++
		e.Entry, e.worker, e.item, e.permit = t.Fire(), w, it, it.permit
		e.follow()
		it.permit = nil
		it.timer, it.ref = nil, timer.Absent
		it.unapplied++
		if it.batch != nil && !w.p.tracker.Joined(it.batch) {
			// A later batch joins behind an earlier one, and w planned them in
			// order, so the last one seen to be open serves all.
			behind, behindBytes = append(behind, e), behindBytes+int64(t.Size())
			after = later(after, it.batch)
		} else {
			free, freeBytes = append(free, e), freeBytes+int64(t.Size())
		}
		return true
	})
	w.p.park(sick)
	grew := false
	if len(free) > 0 {
		grew = w.p.tracker.Fire(nil, free, freeBytes)
	}
	if len(behind) > 0 {
		grew = w.p.tracker.Fire(after, behind, behindBytes) || grew
	}
	if grew {
		w.p.o.Lane.Wake()
	}
}

// later returns the batch that joins later.
func later(a, b *intake.Batch[*entry]) *intake.Batch[*entry] {
	if a == nil || b.Position() > a.Position() {
		return b
	}
	return a
}
