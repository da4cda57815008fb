package planner

import (
	"github.com/waterclock/waterclock/internal/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// known is what is in memory of timers, by ID: items, of IDs to which something happens, and the records and tombstones
// of the table. What is not in it is in the store as it is, or nowhere.
type known struct {
	table *memtable.Table
	items []*Item // by the number of their objects; nil: the number is free
	spare []*Item // to be used again: empty
	delta delta

	// horizon is a place in the order of firing. Invariant: every pending timer below it is
	// soon, or waits, or is parked; a record that is later lies at or above it, and the store
	// lacks that. Loads raise the horizon. Evictions lower it, and then loads begin there again.
	// What was admitted, or has waited, may be soon above it: a load passes over that.
	//
	// No stale row is loaded, and no row is missed, because of two things. Load does
	// not take an ID of which something is known. And between a scan and the Load of what it
	// found nothing is forgotten that the store has learned meanwhile: see the caller's duties.
	horizon timer.Ref
	limit   int64 // of bytes, see New
	bytes   int64 // held by the items that are soon
	missed  int64 // bytes, of the items whose missed is set: see Crowded
	latest  int64 // no item was missed by later, see notAhead
	full    bool  // load no more; ended by Relieved

	scratch []byte
	topics  map[string]string // see topic
}

func (k *known) held() int64 { return k.bytes + k.table.SoonBytes() }

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

// become makes t the planned state of an item that is neither soon nor later. What was missed of the same timer
// stays missed: a pause, a resume or a trigger does not undo that.
func (k *known) become(it *Item, t *timer.Timer) {
	missed, same := it.missed, it.timer != nil && t != nil && it.timer.Offset == t.Offset
	k.drop(it)
	if it.ref, it.timer = t.Ref(), t; same {
		k.miss(it, missed)
	}
}

// miss notes that what is due by an instant was missed, 0 for none, if that makes a difference to the item's
// timer: with catch-up none that occurrence does not fire. An item that is noted is in memory
// until that is decided, for the store does not know it.
func (k *known) miss(it *Item, by int64) {
	k.unmiss(it)
	t := it.timer
	if by != 0 && t.Recurrence != nil && t.Recurrence.CatchUp == timer.CatchUpNone && t.Due <= by && !t.IsPaused() { // else a resume decides
		it.missed = by
		k.missed += Held(t)
		k.latest = max(k.latest, by)
	}
}

func (k *known) unmiss(it *Item) {
	if it.missed != 0 {
		it.missed = 0
		k.missed -= Held(it.timer)
	}
}

// drop takes an item's pending timer out of memory.
func (k *known) drop(it *Item) {
	k.table.Remove(it.number)
	if it.near {
		k.left(it)
	}
	k.unmiss(it)
	it.timer, it.permit, it.waiting, it.parking = nil, nil, false, false
}

// insert has an item that is neither soon nor later be soon.
func (k *known) insert(it *Item) {
	k.table.Put(it.number, memtable.Soon, memtable.Key{Due: it.timer.FiresAt(), Seq: it.ref.Offset})
	k.delta.bytes -= it.deltaBytes()
	it.near = true
	k.delta.bytes += it.deltaBytes()
	k.bytes += Held(it.timer)
}

// left notes that an item was taken out of what is soon.
func (k *known) left(it *Item) {
	k.delta.bytes -= it.deltaBytes()
	it.near = false
	k.delta.bytes += it.deltaBytes()
	k.bytes -= Held(it.timer)
}

// postpone has an item that is neither soon nor later be later.
func (k *known) postpone(it *Item) { k.table.Put(it.number, memtable.Later, key(it.ref)) }

// release looks at an item that the planner may no longer need. If it waited for its entries, it goes back to the wheel
// and is looked at when due. If the store knows all of it and it does not fire soon, it is forgotten. If it only waits
// to be due, it is encoded.
func (k *known) release(it *Item) {
	if it.waiting && it.entries == 0 {
		it.waiting = false
		k.insert(it)
	}
	if !it.kept() && !it.near && !it.parking && it.missed == 0 {
		k.drop(it)
		k.forget(it)
		return
	}
	k.encode(it)
}

// notAhead clears marks of occurrences that were missed by a clock that was ahead and has been set back: what comes now
// was not missed, and is neither skipped nor kept for that.
func (k *known) notAhead(now, ahead int64) {
	if k.latest <= now+ahead {
		return
	}
	if k.latest = 0; k.missed == 0 {
		return
	}
	var all []*Item // before one of them is forgotten
	for _, it := range k.items {
		if it != nil && it.missed != 0 {
			all = append(all, it)
		}
	}
	for _, it := range all {
		if k.miss(it, min(it.missed, now)); it.missed == 0 {
			k.release(it) // it may have been kept for that
		}
	}
}
