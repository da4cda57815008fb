// Package statestore keeps the pending timers of the partitions that a process owns on local disk, in one Pebble
// database.
//
//	store, err := statestore.Open(options)
//	handle := store.Partition(id).Acquire()      // all earlier handles get ErrNotOwner
//	replay, err := handle.Replay(changelog, now) // Put, Delete, Flush, Close
//	err = handle.Live(now, confirmed)
//	err = handle.Apply(&batch)                   // committed steps, in order
//
// It is a view of committed changelogs and can be deleted at any time: it holds the fold of a partition's changelog up
// to a position that is stored in the same batch. It knows nothing of Kafka; the caller reads the changelog and passes
// the position.
//
// # What it promises
//
//   - After a crash at any point, and after kill -9, the rows of a partition are the fold of its changelog up to the
//     stored position: never rows without their position, never a position without its rows.
//   - One owner: only the last one to acquire a partition may change it. All others get [ErrNotOwner].
//   - A pending timer has one row, by due time or parked. It moves between the two in one batch, which moves no
//     position.
//   - A scan never steps over the tombstones of fired timers, wherever the caller starts it, and opening a store
//     does not read all timers.
//
// It does not promise that an Apply survives a crash after it has returned: there is no write-ahead log, and lost
// changes are read again from the changelog. Memory does not grow with the number of timers.
//
// # Duties of the caller
//
//  1. [Open] the directory, and [Store.BindCluster] to the cluster that is served.
//  2. [Partition.Acquire] each partition. Look at [Handle.Meta], and [Handle.Wipe] if the position, the
//     changelog's UUID, the mark or the in-sync time are not acceptable.
//  3. [Handle.Replay] the changelog's tail, [Replay.Flush] now and then and at the end, and call [Handle.Live] when
//     the end is reached.
//  4. [Handle.Apply] committed steps in the order of the changelog, as many at a time as you like, and tell
//     [Handle.Unsaved] since when some wait.
//  5. [Handle.Park] timers that cannot be delivered now, so that scans do not meet them. After an acquisition ask for
//     [Handle.Parked], because only [Handle.Unpark] brings them back.
//
// # Bytes
//
// All integers are big-endian; s64 is a signed integer with its highest bit inverted, so that bytes order as numbers
// do. A key begins with its partition, so that a partition is one span:
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
// The timer itself is in the row by due time, so that firing reads in order. low is at or before the first row by
// due time; scans start there.
//
// A parked timer has its row under its target's number instead. A target gets a number, from 1, when the first timer
// is parked for its name. The target's row maps the number to the name until nothing is parked for it. Pending
// includes parked timers. The caller decides what named, epoch, read and keeps mean: see [Mark]. Formats 1 to 3 end
// at low, parked and misplaced. They can be read, and have no name.
//
// The changelog knows nothing of parking. Any change of a parked timer deletes its parked row, and a put makes a row
// by due time. Callers of Apply need not know which timers are parked: in a partition with parked timers Apply looks
// up their ID rows.
//
// The directory holds the database (db); LOCK, which is locked while a process has the store open; STORE, which says
// whose directory it is; and tables, in which tables are built before they are ingested. Open empties it.
//
//	waterclock store
//	format 1
//	store 5f0c... (32 hex digits, random)
//	cluster ID or -
//
// # Why a crash leaves a prefix
//
// Without a log a batch is in one of Pebble's memtables until that is flushed. Memtables are flushed oldest first, a
// flush takes a prefix of their queue, no batch is split over two, and a flush becomes valid with one synced edit
// of the manifest. So a crash cuts the sequence of commits between two batches.
//
// Tables (a large replay or checkpoint) and excises (a wipe) bypass the memtables. Pebble orders one with a memtable
// only if they overlap, and then makes every writer of the process wait for the flush. So if a partition may have rows
// in memory, it is flushed first, outside Pebble's commit pipeline. Then the table or the excise becomes valid with its
// own edit of the manifest, behind all writes of the partition. Its lock is held until then, so there are no later
// ones. Rows of other partitions that were written before may be in memory then, and be lost: each partition is a
// prefix of its own, and there is no promise across partitions. Even without that flush the order would hold: every
// batch and every table of a partition contains its meta row, so they overlap.
//
// Before its first table a replay of an empty partition writes a meta row with position 0 and no timers, which is the
// fold of no records: see anchorLocked.
//
// # Where to look
//
//   - Formats: keys.go, meta.go, target.go, and identity.go for the directory.
//   - The store: store.go, options.go (and Pebble's settings), events.go (what Pebble reports), compactions.go
//     (when it may merge). damage.go throws damaged tables away, upkeep.go flushes and sweeps.
//   - A partition and its owner: partition.go. Handle.check rejects an owner that was replaced.
//   - Changes: apply.go and replay.go decide whether they become a batch (batch.go) or a table (table.go). apply.go
//     also counts their effect on the partition's state. park.go moves timers to their targets and back.
//   - Reads: lookup.go (of IDs; filter.go spares some), scan.go (of rows in order, also the loop of all scans; sweep.go
//     keeps them short), view.go (of parked timers too, and of several orders at one moment).
//   - In-sync times: insync.go says why they are not simply now, and computes them.
//   - Tools: partitions.go, verify.go, dump.go.
package statestore
