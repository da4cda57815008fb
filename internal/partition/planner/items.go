package planner

import (
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/partition/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// grain makes slots of 64 ms. A timer that is due sooner is not worth encoding.
const grain = 6

// maxSpare is how many unused items are kept. A timer needs one until its step is committed, and one when it fires.
const maxSpare = 4096

// newItem makes an item of an ID that the planner knows nothing of.
func (k *known) newItem(id string, ref timer.Ref, t *timer.Timer) *Item {
	return k.item(k.table.AddObject(id), id, ref, t)
}

// item makes the item of a new object.
func (k *known) item(number int32, id string, ref timer.Ref, t *timer.Timer) *Item {
	if int(number) == len(k.items) {
		k.items = append(k.items, nil)
	}
	var it *Item
	if last := len(k.spare) - 1; last >= 0 {
		it, k.spare = k.spare[last], k.spare[:last]
	} else {
		it = new(Item)
	}
	k.items[number] = it
	it.number, it.id, it.ref, it.timer = number, id, ref, t
	return it
}

// find returns the item of an ID, nil if nothing is known of it. It turns a record or a tombstone into an item.
func (k *known) find(id []byte) *Item {
	at := k.table.Find(id)
	switch at.Kind() {
	case memtable.None:
		return nil
	case memtable.Object:
		return k.items[at.Number()]
	}
	it := k.decode(at, true)
	switch at.Kind() {
	case memtable.Soon:
		k.insert(it)
	case memtable.Later:
		k.postpone(it)
	}
	return it
}

// decode turns a record or a tombstone into an item that is neither soon nor later. With own set, the item has a copy
// of the bytes.
func (k *known) decode(at memtable.Ref, own bool) *Item {
	number, id, r := k.table.Decode(at, own)
	if at.Kind() == memtable.Tombstone {
		it := k.item(number, id, timer.Absent, nil)
		k.dirty.restore(it, r.State, r.Stored)
		return it
	}
	t := decoded(r.Bytes)
	t.Target.Topic = k.topics.own(t.Target.Topic)
	it := k.item(number, id, t.Ref(), t)
	k.dirty.restore(it, r.State, r.Stored)
	return it
}

// decoded returns the timer of a record.
func decoded(b []byte) *timer.Timer {
	t, err := timer.Decode(b)
	if err != nil {
		panic("planner: a record cannot be read: " + err.Error())
	}
	return t
}

// encode turns an item into a record or a tombstone if nothing happens to it: no entry, request or flush refers to the
// item, it waits only for its due time, and its bytes and its place say everything about it. value is the bytes of its
// timer, nil if they are not at hand.
func (k *known) encode(it *Item, value []byte) {
	t := it.timer
	switch {
	case it.entries > 0 || it.pins > 0:
		return
	case t == nil:
		k.bury(it)
		return
	case it.change.flushing != 0 || it.permit != nil || it.missed != 0 || !encodable(t):
		return
	}
	if kind, key := k.table.Place(it.number); kind == memtable.None || key.Due != t.Due {
		return
	}
	if value == nil {
		k.scratch = t.AppendTo(k.scratch[:0])
		value = k.scratch
	}
	r := memtable.Record{Bytes: value, Stored: timer.Absent}
	if it.change.at != 0 {
		r.State, r.Stored = memtable.Dirty, it.change.stored
	}
	if !k.table.Encode(it.number, r) {
		return
	}
	if it.change.at != 0 {
		k.clean(it)
	}
	if it.soon {
		k.left(it)
	}
	k.retire(it)
}

// encodable reports whether a timer of this kind and size may be a record.
func encodable(t *timer.Timer) bool { return t.Steering == nil && t.Size() <= memtable.MaxBytes }

// bury turns an item under whose ID nothing is pending into a tombstone, if the store still has something, or will when
// the flush under way has ended.
func (k *known) bury(it *Item) {
	c := &it.change
	if c.at == 0 || !k.table.Bury(it.number, c.stored) {
		return
	}
	if c.flushing != 0 { // EndFlush has nothing to do for it
		k.dirty.flushing[c.flushing-1] = nil
	}
	k.clean(it)
	k.retire(it)
}

// clean makes an item clean because a record or tombstone takes over its change.
func (k *known) clean(it *Item) {
	k.dirty.bytes -= it.dirtyBytes()
	k.dirty.drop(it)
}

// forget forgets an item, and its ID.
func (k *known) forget(it *Item) {
	k.table.Forget(it.number)
	k.retire(it)
}

// retire forgets an item that has no object any more, and keeps it for another ID. Nothing refers to it then: no entry
// that is not committed, no batch and no flush. A Parking may, but Parked also compares the timer.
func (k *known) retire(it *Item) {
	objects, numbers := k.table.Objects()
	if objects == 0 { // frees lists that were long
		k.items, k.spare = nil, nil
		return
	}
	k.items[it.number] = nil
	if len(k.items) > 2*numbers+maxSpare {
		k.items = slices.Clone(k.items[:numbers])
	}
	if len(k.spare) < maxSpare {
		*it = Item{}
		k.spare = append(k.spare, it)
	}
}

// topicNames has names of topics in memory of their own. Otherwise a caller that remembers a name would keep the chunk
// that a timer was encoded in.
type topicNames map[string]string

// maxTopics is how many names of topics a planner remembers. Then it forgets all of them.
const maxTopics = 1000

// own returns the name, in memory of its own.
func (t topicNames) own(name string) string {
	own, ok := t[name]
	if !ok {
		if len(t) >= maxTopics {
			clear(t)
		}
		own = strings.Clone(name)
		t[own] = own
	}
	return own
}

// own gives an item that was just decoded its own bytes, because it will wait. Otherwise it would keep a whole chunk in
// memory.
func (k *known) own(it *Item) { it.timer = k.owned(it, it.timer, it.timer.AppendTo(nil)) }

// owned decodes t anew from b, its bytes, and returns that. The item's ID, and its change if that is t, refer to b from
// then on, too.
func (k *known) owned(it *Item, t *timer.Timer, b []byte) *timer.Timer {
	own := decoded(b)
	own.Target.Topic = t.Target.Topic
	if it.change.after == t {
		it.change.after = own
	}
	it.id = memtable.IDIn(b, own.ID)
	k.table.SetID(it.number, it.id)
	return own
}

const (
	// itemMemory is about how much memory an item takes, with its place among the items and its ID.
	itemMemory = 270 // bytes
	// TimerMemory is about how much memory a timer takes besides its bytes.
	TimerMemory = itemMemory
	// EntryMemory is about how much memory an entry takes besides its timer.
	EntryMemory = 180 // bytes
)

// Held returns about how many bytes of memory a timer takes while it has an item.
func Held(t *timer.Timer) int64 { return int64(t.Size()) + TimerMemory }

// Item has the state of a timer ID to which something happens, or will happen soon. A timer that only waits is a
// record.
type Item struct {
	id string
	// ref is the planned place, Absent if nothing will be pending. A place identifies one version of a timer, so a
	// change, a late load or a late admission is recognised by it. Steering does not change due time and generation, so
	// the places of steered timers are made of the offset of the request that steered.
	//
	// A paused timer sorts above every instant. So no load reaches it, and it is forgotten when the store has it: it
	// takes no memory, and no scan steps over it. It is never due, so it is never parked. A triggered timer sorts below
	// every instant, so it is below the horizon and soon. It is due at the time of the trigger; after a restart the
	// first load finds it.
	ref     timer.Ref
	timer   *timer.Timer // in memory, if pending here
	last    *Entry       // the latest entry that is not committed; nil: none
	change  change       // how it differs from the store
	permit  any          // lets it fire although its target is unhealthy
	missed  int64        // Unix ms: the occurrence was due by then and was missed; see miss
	entries int32        // planned and not committed
	pins    int32        // batches with it that are prepared and not planned
	number  int32        // of its object
	unknown bool         // the store is being asked for ref
	soon    bool         // in the wheel of package memtable, below the horizon
	// waiting: its firing was rolled back, or found no room behind requests (Behind), and it waits until its
	// entries are committed; or its target is unhealthy, and it waits until the store has it.
	waiting bool
	parking bool // on its way to the parked rows

	// For the holder of the segment in flight.
	at      int32    // number of its change in the segment
	segment *Segment // the last one with a change of it
}

// kept reports whether the item knows more than the store does, or is about to. It does if an entry of it is not
// committed (Commit ends that), if a batch with it is prepared and not planned (Plan ends that), or if the store lacks
// a committed change (EndFlush ends that, or a record or tombstone that takes over the change).
//
// The item is forgotten when this is no longer true and none of the following holds: it is about to fire (until it
// fires, is evicted, replaced, cancelled or encoded); it waits for its entries or to be parked (until Commit, EndFlush
// or Parked); it was missed, which the store does not know (until it fires, is skipped, parked again, replaced or
// cancelled).
func (it *Item) kept() bool { return it.entries > 0 || it.pins > 0 || it.change.stale() }
