package planner

import (
	"math"

	"github.com/waterclock/waterclock/internal/timer"
)

// Load adds the timers that a scan of the store has found between two places, in order. The scan may have begun below
// the horizon.
func (p *Planner) Load(from, to timer.Ref, timers []*timer.Timer) {
	if from.Compare(p.known.horizon) > 0 {
		return // the horizon was lowered meanwhile; the next load begins there
	}
	for _, t := range timers {
		if t.Ref().Compare(p.known.horizon) < 0 || p.known.table.Find(t.ID) != 0 {
			continue
		}
		if encodable(t) && p.recurrences.again(t) == t {
			p.known.scratch = t.AppendTo(p.known.scratch[:0])
			if p.known.table.AddStored(p.known.scratch) {
				continue
			}
		}
		it := p.known.newItem(string(t.ID), t.Ref(), t)
		p.known.insert(it)
		p.again(it)
	}
	if to.Compare(p.known.horizon) <= 0 {
		return
	}
	p.known.reach(to)
	p.known.full, p.known.remained = p.known.held() > p.known.limit, math.MaxInt64
	p.known.evict()
}

// reach raises the horizon. Timers below it that were later are soon now, and so are those that are due in the same
// millisecond.
func (k *known) reach(to timer.Ref) {
	k.table.Approach(to.Due, func(number int32) { k.insert(k.items[number]) })
	k.horizon = to
}

// evict forgets the farthest timers while soon timers take more memory than the limit, up to a quarter at a time.
func (k *known) evict() {
	for k.held() > k.limit+k.limit/4 {
		n := k.table.Stats().Soon
		if n < 4 {
			return
		}
		held := k.held()
		k.evictFrom(k.table.Farthest(n / 4))
		k.full, k.remained, k.evicted = true, k.held(), held-k.held()
	}
}

// Resize changes how many bytes soon timers may take: see New.
func (p *Planner) Resize(bytes int64) {
	p.known.limit = bytes
	p.known.evict()
	p.Relieved()
}

// Lower makes loads begin again at a place, because the store has timers there that a load has passed over.
func (p *Planner) Lower(to timer.Ref) { p.known.evictFrom(to) }

func (k *known) evictFrom(from timer.Ref) {
	at := from
	k.table.Evict(from, func(number int32) {
		it := k.items[number]
		k.left(it)
		if it.ref.Compare(at) < 0 { // its turn was later than its due time
			at = it.ref
		}
		if it.kept() || it.missed != 0 {
			k.postpone(it)
			k.encode(it)
		} else {
			k.forget(it)
		}
	})
	// Never up: timers that were admitted, or have waited, may lie above the horizon, and the rows between the horizon
	// and at were not loaded.
	if at.Compare(k.horizon) < 0 {
		k.horizon = at
	}
}

// Relieved reports, once each time, that full memory has room again: half of the limit is free. Then the caller loads.
// After an eviction half of what it left must be gone, too. Otherwise a large timer that was evicted, and leaves much
// room, would be loaded and evicted in turns. What is left is due before it, and once that is gone it is loaded. If all
// that was evicted fits again, Relieved does not wait for that, but only once until a timer falls due, because the
// limits of several partitions may grow and shrink in turns.
func (p *Planner) Relieved() bool {
	k := &p.known
	if !k.full || k.held() > k.limit/2 {
		return false
	}
	if k.held() > k.remained/2 {
		if k.retried || k.held()+k.evicted > k.limit {
			return false
		}
		k.retried = true
	}
	k.full = false
	return true
}
