package planner

import (
	"github.com/waterclock/waterclock/internal/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// LoadFrom returns where the next scan of the store begins: at the horizon. It returns false if memory is full, until
// Relieved.
func (p *Planner) LoadFrom() (from timer.Ref, ok bool) { return p.known.horizon, !p.known.full }

// Load takes in what a scan of the store found from one place to another, in order. The scan may
// have begun below the horizon.
func (p *Planner) Load(from, to timer.Ref, timers []*timer.Timer) {
	if from.Compare(p.known.horizon) > 0 {
		return // the horizon was lowered meanwhile; the next load begins there
	}
	for _, t := range timers {
		if t.Ref().Compare(p.known.horizon) < 0 || p.known.table.Find(t.ID) != 0 {
			continue
		}
		again := p.rescheduled(t)
		if again == t && encodable(t) {
			p.known.scratch = t.AppendTo(p.known.scratch[:0])
			if p.known.table.AddStored(p.known.scratch) {
				continue
			}
		}
		it := p.known.newItem(string(t.ID), t.Ref(), t)
		p.known.insert(it)
		if again != t {
			p.reschedule(it, again)
		}
	}
	if to.Compare(p.known.horizon) <= 0 {
		return
	}
	p.known.reach(to)
	p.known.full = p.known.held() > p.known.limit
	p.known.evict()
}

// reach raises the horizon. Timers below it that were later are soon now, and so are those that are due in the same
// millisecond.
func (k *known) reach(to timer.Ref) {
	k.table.Approach(to.Due, func(number int32) { k.insert(k.items[number]) })
	k.horizon = to
}

// evict forgets the farthest timers while those that are soon take more than the limit, up to a
// quarter at a time.
func (k *known) evict() {
	for k.held() > k.limit+k.limit/4 {
		n := k.table.In(memtable.Soon)
		if n < 4 {
			return
		}
		k.evictFrom(k.table.Farthest(n / 4))
		k.full = true
	}
}

// Resize changes how many bytes the timers that fire soon may take: see New.
func (p *Planner) Resize(bytes int64) {
	p.known.limit = bytes
	p.known.evict()
	p.Relieved()
}

// Lower has everything from a place on loaded again, because the store has timers there that a load passed over.
func (p *Planner) Lower(to timer.Ref) { p.known.evictFrom(key(to)) }

func (k *known) evictFrom(from memtable.Key) {
	at := timer.Ref{Due: from.Due, Offset: from.Seq}
	k.table.Evict(from, func(number int32) {
		it := k.items[number]
		k.left(it)
		if it.ref.Compare(at) < 0 { // it was to have its turn later than it is due
			at = it.ref
		}
		if it.kept() || it.missed != 0 {
			k.postpone(it)
			k.encode(it)
		} else {
			k.forget(it)
		}
	})
	// Never up: what was admitted, or has waited, may lie above the horizon, and
	// the rows between that and k were not loaded.
	if at.Compare(k.horizon) < 0 {
		k.horizon = at
	}
}

// Relieved returns true once each time full memory has room again: then there is something to load.
func (p *Planner) Relieved() bool {
	if !p.known.full || p.known.held() > p.known.limit/2 {
		return false
	}
	p.known.full = false
	return true
}
