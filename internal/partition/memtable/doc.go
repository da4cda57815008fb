// Package memtable keeps the timers of one planner that are in memory: changes of committed steps that the store does
// not have (a memtable), those of them that a checkpoint is writing (an immutable memtable), and timers that fire soon
// (a cache by due time). All of it is one [Table]:
//
//	t := memtable.New(now, grain)
//	t.AddStored(row)       // a timer that was loaded from the store
//	r := t.At(t.Find(id))  // its record
//	at := t.Pop(now)       // the next due timer, in the order of firing
//	t.Flush(write)         // the changes, for a checkpoint; t.Flushed() once it is stored
//
// # The argument
//
// The obvious design is one arena of encoded records, each with a header; one index by ID; and one wheel of references
// into the arena, with the horizon as a bound that is checked when the wheel gives something out. Two things are
// different here.
//
// First, the wheel's slots are the arena. A reference takes at least 8 bytes of each timer and points into memory that
// has to be compacted, because neighbours end at different times. If the records themselves lie in the slots, the order
// of firing costs nothing, neighbours end together, and whole chunks become free without any compaction. A record is
// copied when a slot of a higher level is opened, a few times in its life. So a record takes its bytes, a header of 3
// bytes, its place in the store if that differs, and a cell of the index. It has no pointer, so the garbage collector
// does not follow it. Objects lie in the same slots, as references of 20 bytes.
//
// Second, the horizon is a second wheel and not a bound. While memory is full the horizon does not rise, although
// timers above it fall due. In one wheel they would stand before timers that were admitted above the horizon and have
// to fire. And each load would have to count again, slot by slot, the records that its step of the horizon passed. A
// second wheel of the same type, whose clock is the horizon, opens each slot once.
//
// Records above the horizon differ from the store and have to be written, and a checkpoint forgets all of them. So
// these later records are in two layers, as tombstones are: one takes new records; a checkpoint writes the other one
// and forgets it as a whole. The type layer has the argument.
//
// # Limits
//
// It has no clock, starts no goroutine, takes no lock and bounds no memory (see [Table.Farthest] for how the caller
// does). A Table belongs to one goroutine at a time.
package memtable
