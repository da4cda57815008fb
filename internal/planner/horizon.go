package planner

import (
	"github.com/waterclock/waterclock/internal/memtable"
	"github.com/waterclock/waterclock/internal/timer"
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
		if t.Ref().Compare(p.horizon) < 0 || p.table.Find(t.ID) != 0 {
			continue
		}
		again := p.rescheduled(t)
		if again == t && encodable(t) {
			p.scratch = t.AppendTo(p.scratch[:0])
			if p.table.AddStored(p.scratch) {
				continue
			}
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

// reach raises the horizon: what was later until now is soon, and so is what is
// due in the same millisecond.
func (p *Planner) reach(to timer.Ref) {
	p.table.Approach(to.Due, func(number int32) { p.insert(p.items[number]) })
	p.horizon = to
}

// evict forgets the farthest timers while those that are soon take more than the limit, up to a
// quarter at a time.
func (p *Planner) evict() {
	for p.held() > p.limit+p.limit/4 {
		n := p.table.In(memtable.Soon)
		if n < 4 {
			return
		}
		p.evictFrom(p.table.Farthest(n / 4))
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

func (p *Planner) evictFrom(k memtable.Key) {
	at := timer.Ref{Due: k.Due, Offset: k.Seq}
	p.table.Evict(k, func(number int32) {
		it := p.items[number]
		p.left(it)
		if it.ref.Compare(at) < 0 { // it was to have its turn later than it is due
			at = it.ref
		}
		if it.kept() || it.missed != 0 {
			p.postpone(it)
			p.encode(it)
		} else {
			p.forget(it)
		}
	})
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
