package planner

import (
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/wheel"
)

const (
	// itemMemory is about what an ID takes that has an item: this, its place among the
	// items, the ID.
	itemMemory = 270 // bytes
	// TimerMemory is about what a timer in memory takes beside its bytes.
	TimerMemory = itemMemory
	// EntryMemory is about what an entry takes beside its timer.
	EntryMemory = 180 // bytes
)

// Held is about how many bytes of memory a timer takes while there is an item of it.
func Held(t *timer.Timer) int64 { return int64(t.Size()) + TimerMemory }

// Item is what is known of one timer ID to which something happens, or will soon. What only
// waits is packed.
type Item struct {
	id      string
	sum     uint64       // of the ID
	ref     timer.Ref    // planned state
	timer   *timer.Timer // in memory, if pending here
	slot    wheel.Entry[*Item]
	last    *Entry // the latest one not folded
	change  change // what the delta knows
	permit  any    // to fire although its target is unhealthy
	missed  int64  // the occurrence was due by then and missed: it was held, Unix ms; see miss
	entries int32  // planned and not folded
	pins    int32  // batches that have met it and are not planned
	number  int32  // see ids
	unknown bool   // the store is being asked for ref
	near    bool   // in the wheel of what falls due soon
	parking bool   // on its way to the parked rows
	retired bool   // its change is packed, or gone: an overlay that copies takes it from here

	// Of who holds the segment that is out.
	at      int32    // which of its changes
	segment *Segment // the last one with a change of it
}

// kept reports whether the item knows more than the store does, or will.
func (it *Item) kept() bool { return it.entries > 0 || it.pins > 0 || it.change.stale() }
