// Package memtable keeps the timers of one planner that are in memory: what committed steps have changed and the store
// does not have (a memtable), what of that a checkpoint is writing (an immutable memtable), and what fires soon (a
// cache by due time). All of it is one [Table].
//
// # The argument
//
// The picture to begin with was one arena of encoded records, each with a header; one index by ID; and one wheel of
// references into the arena, with the horizon as a bound that is checked when the wheel gives something out. Two
// things are different here.
//
// The wheel's slots are the arena. A reference takes at least 8 bytes of each timer and points into memory that has to
// be compacted, because neighbours end at different times. If the records themselves lie in the slots, the order of
// firing costs nothing, neighbours end together, and whole chunks become free without any compaction. A record is
// copied when a slot of a higher level is opened, a few times in its life. So a record takes its bytes, a header of 3
// bytes, what the store has of it if that differs, and a cell of the index; and no pointer, so that the garbage
// collector does not follow it. Objects lie in the same slots, as references of 20 bytes.
//
// And the horizon is a second wheel and not a bound. What lies above it is due some day, while the horizon does not
// rise if memory is full. In one wheel it would stand before timers that were let in above the horizon and have to
// fire; and each load would have to count again, slot by slot, what its step of the horizon passed. A second wheel of
// the same type, whose clock is the horizon, opens each slot once.
//
// # What it does not do
//
// It has no clock, starts no goroutine, takes no lock and bounds no memory (see [Table.Farthest] for how the caller
// does). A Table belongs to one goroutine at a time.
package memtable
