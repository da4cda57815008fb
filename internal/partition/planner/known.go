package planner

import (
	"math"

	"github.com/waterclock/waterclock/internal/partition/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// known has everything that is in memory about timers, by ID: items, for IDs to which something happens, and the
// records and tombstones of the table. If it has nothing about an ID, the store is right about the ID.
type known struct {
	table *memtable.Table
	items []*Item // by the number of their objects; nil: the number is free
	spare []*Item // empty items, to be used again
	dirty dirty

	// horizon is a place in the order of firing. Invariant: every pending timer below it is
	// soon, or waits, or is parked; a later record lies at or above it, and the store lacks that
	// record. Loads raise the horizon. Evictions lower it, and then loads begin there again.
	// Timers that were admitted, or have waited, may be soon above it. A load passes over them.
	//
	// No stale row is loaded, and no row is missed, for two reasons. Load does not take an ID that is in memory. And
	// between a scan and its Load the planner does not forget IDs, because nothing is flushed or parked then: see the
	// caller's duties.
	horizon  timer.Ref
	limit    int64 // of bytes, see New
	bytes    int64 // of soon items
	missed   int64 // bytes of the items whose missed is set: see Crowded
	latest   int64 // no item's missed is later than this; see notAhead
	full     bool  // nothing more is to be loaded; Relieved ends that
	remained int64 // bytes of soon timers that the last eviction left; MaxInt64: a load came later
	evicted  int64 // bytes that the last eviction has freed
	retried  bool  // a load was asked for because they fit again, and no timer has fallen due since

	scratch []byte
	topics  topicNames
}

func (k *known) held() int64 { return k.bytes + k.table.Stats().SoonBytes }

// set makes t the planned state of an item.
func (k *known) set(it *Item, t *timer.Timer) {
	k.become(it, t)
	switch {
	case t == nil:
	case it.ref.Compare(k.horizon) < 0:
		k.insert(it)
	default:
		k.postpone(it)
	}
}

// become makes t the planned state of an item that is neither soon nor later. A missed occurrence of the same timer
// stays missed: a pause, a resume or a trigger does not change that.
func (k *known) become(it *Item, t *timer.Timer) {
	missed, same := it.missed, it.timer != nil && t != nil && it.timer.Offset == t.Offset
	k.drop(it)
	if it.ref, it.timer = t.Ref(), t; same {
		k.miss(it, missed)
	}
}

// miss notes that an occurrence was missed if it is due by an instant; 0 for none. That makes a difference only to
// timers with catch-up none, which do not fire a missed occurrence. The item stays in memory until that is decided,
// because the store does not know it.
func (k *known) miss(it *Item, by int64) {
	if it.missed != 0 {
		it.missed = 0
		k.missed -= Held(it.timer)
	}
	t := it.timer
	// For a paused timer the resume decides.
	if by != 0 && t.Recurrence != nil && t.Recurrence.CatchUp == timer.CatchUpNone && t.Due <= by && !t.IsPaused() {
		it.missed = by
		k.missed += Held(t)
		k.latest = max(k.latest, by)
	}
}

// drop takes an item's pending timer out of memory.
func (k *known) drop(it *Item) {
	k.table.Remove(it.number)
	if it.soon {
		k.left(it)
	}
	k.miss(it, 0)
	it.timer, it.permit, it.waiting, it.parking = nil, nil, false, false
}

// insert makes an item soon that is neither soon nor later.
func (k *known) insert(it *Item) {
	k.table.Put(it.number, memtable.Soon, timer.Ref{Due: it.timer.FiresAt(), Offset: it.ref.Offset})
	k.dirty.bytes -= it.dirtyBytes()
	it.soon = true
	k.dirty.bytes += it.dirtyBytes()
	k.bytes += Held(it.timer)
}

// left notes that an item is no longer soon.
func (k *known) left(it *Item) {
	k.dirty.bytes -= it.dirtyBytes()
	it.soon = false
	k.dirty.bytes += it.dirtyBytes()
	k.bytes -= Held(it.timer)
}

// postpone makes an item later that is neither soon nor later.
func (k *known) postpone(it *Item) { k.table.Put(it.number, memtable.Later, it.ref) }

// release looks at an item that the planner may no longer need. If it waited for its entries, it goes back to the wheel
// and is looked at when due. If the store knows all of it and it does not fire soon, it is forgotten. If it only waits
// to be due, it is encoded. value is the same as for encode.
func (k *known) release(it *Item, value []byte) {
	if it.waiting && it.entries == 0 {
		it.waiting = false
		k.insert(it)
	}
	if !it.kept() && !it.soon && !it.parking && it.missed == 0 {
		k.drop(it)
		k.forget(it)
		return
	}
	k.encode(it, value)
}

// notAhead corrects the marks of missed occurrences after a clock that was ahead has been set back. Occurrences after
// now were not missed, so they are neither skipped nor kept in memory for that.
func (k *known) notAhead(now, ahead int64) {
	if k.latest <= now+ahead {
		return
	}
	if k.latest = 0; k.missed == 0 {
		return
	}
	var all []*Item // collected before one of them is forgotten
	for _, it := range k.items {
		if it != nil && it.missed != 0 {
			all = append(all, it)
		}
	}
	for _, it := range all {
		if k.miss(it, min(it.missed, now)); it.missed == 0 {
			k.release(it, nil) // it may have been kept only for that
		}
	}
}

// Load adds the timers that a scan of the store has found between two places, in order. The scan may have begun below
// the horizon.
func (p *Planner) Load(from, to timer.Ref, timers []*timer.Timer) {
	if from.Compare(p.known.horizon) > 0 {
		return // the horizon was lowered during the scan; the next load begins there
	}
	for _, t := range timers {
		if t.Ref().Compare(p.known.horizon) < 0 || p.known.table.Find(t.ID) != 0 {
			continue
		}
		if encodable(t) && p.recurrences.follow(t) == t {
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
			k.encode(it, nil)
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
// After an eviction, half of the timers that it left must be gone, too. Otherwise a large timer that was evicted, and
// leaves much room, would be loaded and evicted in turns. The remaining timers are due before it, and once they are
// gone it is loaded. If everything that was evicted fits again, Relieved does not wait for that, but only once until a
// timer falls due, because the limits of several partitions may grow and shrink in turns.
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
