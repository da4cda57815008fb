// Package statestore keeps the pending timers of the partitions that a process
// owns on local disk, in one Pebble database. It is a view of committed
// changelogs and may be thrown away at any time: what it holds is the fold of a
// partition's changelog up to a position that lies in the same batch. It knows
// nothing of Kafka; whoever uses it reads the changelog and says where it is.
//
// # What it promises
//
//   - At any crash point, and after kill -9, the rows of a partition are the
//     fold of its changelog up to the stored position: never rows without
//     their position, never a position without its rows.
//   - One owner: who acquired a partition last may change it, everybody before is
//     refused with [ErrNotOwner].
//   - A pending timer has one row, by due time or parked; it moves between the
//     two in one batch, which moves no position.
//   - A scan never steps over the tombstones of what has fired, wherever the
//     caller lets it begin, and nothing reads all timers when a store opens.
//
// It does not promise that a returned Apply survives a crash: the write-ahead
// log is off, what was lost is read again from the changelog. Memory does not
// grow with the number of timers.
//
// # Duties of the caller
//
//  1. [Open] the directory, [Store.BindCluster] to the cluster that is served.
//  2. [Partition.Acquire], look at [Handle.Meta]: wipe if the position, the
//     changelog's UUID, the mark or the in-sync time are not acceptable.
//  3. [Handle.Replay] the changelog's tail, [Replay.Flush] now and then and at
//     the end, [Handle.Live] when the end is met.
//  4. [Handle.Apply] committed steps in the order of the changelog, as many at a
//     time as it likes, and say with [Handle.Unsaved] since when some wait.
//  5. [Handle.Park] what cannot be delivered now, so that it is not in the way of
//     scans; when it is acquired ask for [Handle.Parked], for [Handle.Unpark] is the way back.
//
// # Bytes
//
// All integers are big-endian; s64 is a signed integer with its highest bit
// inverted, so that bytes order as numbers do. A key begins with its partition,
// so that a partition is one span:
//
//	| topic UUID (16) | partition u32 | kind (1) | ...
//
//	... 'c'                                checkpoint, opaque to the store
//	... 'd' | due s64 | offset s64         timer, as timer.AppendTo writes it
//	... 'i' | ID (1 to 512)                due s64 | offset s64 and, of a parked
//	                                       timer, number u32 of its target
//	... 'm'                                meta, below
//	... 'p' | number u32 | due s64 | offset s64
//	                                       parked timer, as timer.AppendTo writes it
//	... 't' | number u32                   target with parked timers:
//	                                       parked i64 | low: due s64, offset s64 |
//	                                       name (1 to 1024)
//
//	| 4 (format) | position i64 | changelog UUID (16) | pending i64 |
//	| in sync i64 (Unix ms, least i64: never) | low: due s64, offset s64 |
//	| parked i64 | partitions u32 | misplaced i64 |
//	| named u8 | epoch u32 | read i64 | keeps i64 (ms) |
//
// The value lies in the row by due time, so that firing reads in order. low is
// at or before the first row by due time: scans start there.
//
// A parked timer has its row under its target instead: a number, from 1, given
// when the first timer is parked for a name, which lies in the target's row
// until nothing is parked for it. Pending counts the parked ones. What named, epoch, read and
// keeps mean is the caller's: see [Mark]. Formats 1 to 3 end at low, parked and misplaced; they
// are read, and have no name.
//
// The fold knows nothing of parking: whatever the changelog says of a parked timer
// deletes its parked row, and a put makes a row by due time. So that a step need not
// know where its timers lie, Apply looks up their ID rows, in a partition with parked
// timers alone.
//
// Beside the database (directory db) lie LOCK, held while a process has the store
// open, STORE, which says whose directory it is, and tables, where tables are built
// before they are ingested; what lies in there at a start is rubbish.
//
//	waterclock store
//	format 1
//	store 5f0c... (32 hex digits, random)
//	cluster ID or -
//
// # Why a crash leaves a prefix
//
// Without a log a batch lies in a memtable until that is flushed. Memtables are
// flushed oldest first, a flush takes a prefix of their queue, a batch is never
// split over two, and a flush becomes valid with one synced edit of the
// manifest. So a crash cuts the order of commits at a batch's boundary.
//
// Tables (a big replay) and excises (a wipe) do not pass through the memtables.
// Pebble orders one with a memtable only if they overlap, and then makes every
// writer of the process wait for the flush. So a partition that has rows which
// may lie in memory is flushed first, outside Pebble's commit pipeline; then the
// table or the excise becomes valid with its own edit of the manifest, behind
// everything the partition wrote before, and nothing is written to the partition
// meanwhile because its lock is held. Rows of other partitions may be in memory
// then and be lost although they were written before: each partition is a prefix
// of its own, and there is no promise across partitions. Should the flush be
// forgotten, order still holds: every batch and every table of a partition
// contains its meta row, hence they overlap.
//
// Before the first table that a replay writes to an empty partition comes a meta row that
// says position 0 and no timers, which is the fold of no records: see anchorLocked.
package statestore
