package planner

import "github.com/waterclock/waterclock/internal/timer"

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

// Item is what is known of a timer ID to which something happens, or will happen soon. A timer that only waits is a
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
	last    *Entry       // the latest entry that is not applied
	change  change       // how it differs from the store
	permit  any          // lets it fire although its target is unhealthy
	missed  int64        // Unix ms: the occurrence was due by then and was missed; see miss
	entries int32        // planned and not applied
	pins    int32        // batches that have met it and are not planned
	number  int32        // of its object
	unknown bool         // the store is being asked for ref
	near    bool         // soon
	// waiting: its firing was rolled back, or found no room behind requests (Behind), and it waits until its
	// entries are applied; or its target is unhealthy, and it waits until the store has it.
	waiting bool
	parking bool // on its way to the parked rows

	// For the holder of the segment that is out.
	at      int32    // number of its change in the segment
	segment *Segment // the last one with a change of it
}

// kept reports whether the item knows more than the store does, or is about to. It does if an entry of it is not
// applied (Apply ends that), if a batch has met it and is not planned (Plan ends that), or if the store does not have
// what was applied (EndFlush ends that, or a record or tombstone that takes over the change).
//
// The item is forgotten when this is no longer true and none of the following holds: it is about to fire (until it
// fires, is evicted, replaced, cancelled or encoded); it waits for its entries or to be parked (until Apply, EndFlush
// or Parked); it was missed, which the store does not know (until it fires, is skipped, parked again, replaced or
// cancelled).
func (it *Item) kept() bool { return it.entries > 0 || it.pins > 0 || it.change.stale() }
