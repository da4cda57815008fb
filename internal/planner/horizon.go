package planner

import (
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/wheel"
)

// LoadFrom returns where the next scan of the store is to begin: at the horizon. false: memory
// is full, until Relieved.
func (p *Planner) LoadFrom() (from timer.Ref, ok bool) { return p.horizon, !p.full }

// Load takes in what a scan of the store found from one place to another, in order. The scan may
// have begun below the horizon.
func (p *Planner) Load(from, to timer.Ref, timers []*timer.Timer) {
	if from.Compare(p.horizon) > 0 {
		return // the horizon was lowered meanwhile; the next load begins there
	}
	for _, t := range timers {
		if t.Ref().Compare(p.horizon) < 0 || p.knows(t.ID) {
			continue
		}
		again := p.rescheduled(t)
		if again == t && p.packStored(t) {
			continue
		}
		it := p.newItem(string(t.ID), t.Ref(), t)
		p.insert(it)
		if again != t {
			p.reschedule(it, again)
		}
	}
	if to.Compare(p.horizon) <= 0 {
		return
	}
	p.reach(to)
	p.full = p.held() > p.limit
	p.evict()
}

// reach raises the horizon, over what was beyond it until now; and takes along what is
// due in the same millisecond.
func (p *Planner) reach(to timer.Ref) {
	p.beyond.Pop(to.Due, p.beyond.Len(), func(s *wheel.Entry[*Item]) bool {
		p.insert(s.Value)
		return true
	})
	for _, ok := p.packedBeyond.First(to.Due); ok; _, ok = p.packedBeyond.First(to.Due) {
		p.nearer(p.packedBeyond.Pop())
	}
	p.horizon = to
}

// evict forgets the farthest timers of a wheel that holds more than its limit, up to a
// quarter at a time.
func (p *Planner) evict() {
	for p.held() > p.limit+p.limit/4 {
		items, packed := p.wheel.Len(), p.packed.Len()
		if items+packed < 4 {
			return
		}
		// What is farther of the two is what both are to lose: of neither more than a quarter.
		k, ok := p.wheel.Farthest(max(1, items/4))
		if packed > 0 {
			if at := p.packed.Farthest(max(1, packed/4)); !ok || k.Compare(at) < 0 {
				k = at
			}
		}
		p.evictFrom(k)
		p.full = true
	}
}

// Resize changes how many bytes of timers the wheel keeps: see New.
func (p *Planner) Resize(bytes int64) {
	p.limit = bytes
	p.evict()
	p.Relieved()
}

// Lower has what is pending from a place on loaded again: the store has timers there
// that a load passed over.
func (p *Planner) Lower(to timer.Ref) { p.evictFrom(key(to)) }

func (p *Planner) evictFrom(k wheel.Key) {
	at := timer.Ref{Due: k.Due, Offset: k.Seq}
	p.packedBeyond.Lower(k.Due)
	p.wheel.EvictFrom(k, func(s *wheel.Entry[*Item]) {
		it := s.Value
		p.left(it)
		if it.ref.Compare(at) < 0 { // it was to have its turn later than it is due
			at = it.ref
		}
		if it.kept() || it.missed != 0 {
			p.postpone(it)
			p.pack(it)
		} else {
			p.forget(it)
		}
	})
	p.packed.EvictFrom(k, p.farther)
	// Never up: what was admitted, or has waited, may lie above the horizon, and
	// the rows between that and k were not loaded.
	if at.Compare(p.horizon) < 0 {
		p.horizon = at
	}
}

// Relieved reports, once, that memory which was full has become free again: there is
// something to load.
func (p *Planner) Relieved() bool {
	if !p.full || p.held() > p.limit/2 {
		return false
	}
	p.full = false
	return true
}
