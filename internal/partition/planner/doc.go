// Package planner decides what happens to the timers of one request partition, or of one of its sub-partitions (see
// [Take]):
//
//	p := planner.New(position, now, memory)
//	p.Prepare(batch) // of requests; look up its unknown IDs in the store, and p.Resolve(batch, …) them
//	p.Plan(batch)
//	p.Fire(now, room, behind, hold)
//	step := planner.Take(planners, limit, false, bound) // written in one transaction
//	p.Commit()                                          // or planner.Return(planners) if it was aborted
//
// It is pure: it has no clock, starts no goroutine, reads no store and knows nothing of Kafka. Plain values go in:
// requests, rows of the store, "now", the outcome of a transaction. Plain values come out: entries to be committed, IDs
// to be looked up, rows to be loaded or parked, and the time of the next firing.
//
// The transcripts in testdata show how it behaves. TestTranscripts says in which order to read them.
//
// # The idea
//
// The planner plans on the planned state: the contents of the store once everything planned is committed and stored. If
// it knows nothing of an ID, the store is right. It knows
//
//   - every ID to which something happens: there is an [Item] of it;
//   - every pending timer below the horizon, a place in the order of firing up to which the store is loaded: a firing
//     needs no look-up;
//   - every entry that is planned and not committed: these are in the sequence, and each step takes a prefix of it;
//   - every change of committed steps that the store does not have: it is dirty or being flushed.
//
// A timer that only waits to be due is a record, which means encoded bytes, and not an item: see package memtable.
// Questions are answered from the committed state, not from the planned one: see [Unflushed] and [Planner.Committed].
// Invariants stand at the types and fields that they bind.
//
// # Cancel against firing
//
// Whichever is planned first wins. [Planner.Fire] takes a timer off the wheel and plans its firing; a cancel that is
// planned later finds only the state that the firing left. [Planner.Plan] takes a cancelled timer off the wheel. Both
// run under the planner's lock. The rest follows:
//
//   - After an acquisition nothing fires before [Planner.Open]. The caller opens once every request that was in the log
//     has been planned (package partition, catch-up barrier). So a cancel in the log wins.
//   - The entries of an aborted step go back ([Return]): the firing keeps its place, and has still won.
//   - A firing that must not be emitted now, because its target is unhealthy or the clock was set back, is rolled back
//     ([Planner.RollBack]). The requests behind it are decided again, and a cancel among them wins.
//   - A firing that is refused for good, or is too late ([Entry.Expire]), has no emission. A cancel behind it has lost.
//   - If the partition is lost the planner is discarded. The next owner reads the requests that are not settled again,
//     and the first case applies.
//
// For a recurring timer all of this holds for each occurrence: one may fire although the cancel behind it ends the
// rest.
//
// A move is decided like a cancel. If it is planned behind a firing, it finds the state that the firing left: nothing,
// or the next occurrence of a recurrence, which it moves. If it is planned first, or the firing is rolled back, it
// moves this occurrence.
//
// # The caller's duties
//
// All calls of one planner are made one at a time, under the caller's lock. None of them blocks. Take and Return
// are calls of all planners of a partition, and all of them commit a step together.
//
//  1. [Planner.Prepare] a [Batch] of requests, look up the unknown IDs, [Planner.Resolve] it, then [Planner.Plan] it.
//     All that is done for one batch after the other, in the order of the log.
//  2. [Planner.Fire] due timers, [Take] a prefix of all planners, [Planner.RollBack] the firings in it that must not
//     be emitted now, and make records of the rest.
//  3. When the step has ended, [Planner.Commit] it, or [Return] it.
//  4. From time to time [Planner.BeginFlush], write the changes that it returns to the store, and [Planner.EndFlush].
//  5. Scan the store from [Stats.Horizon] on, and [Planner.Load] the rows. Between a scan and its Load
//     there is no EndFlush and no Parked, and no row is parked or comes back.
//  6. Park the rows that Fire returns, unless they are gone, and call [Planner.Parked] before any of them comes back.
//     When rows have come back, [Planner.Admit] their timers, unless the planner is [Stats.Crowded]. Do none of that
//     during a flush.
//  7. To answer a question about many IDs, read [Stats.Flushes], make a view of the store, and [Unflushed.Collect] the
//     changes that the view lacks, unless Flushes has changed.
package planner
