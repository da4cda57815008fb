// Package planner decides about the timers of one request partition, or of one of the
// sub-partitions that it has: see [Take]. It is pure:
// it has no clock, starts no goroutine, reads no store and knows nothing of Kafka.
// Plain values go in: requests, rows of the store, "now", what became of a
// transaction. Plain values come out: entries to be committed, IDs to be looked up,
// what to load, what to park, when something falls due.
//
// # What it knows, and why it is right
//
// The planner plans on the planned state: what the store will hold once everything
// planned is committed and stored. It keeps an item for each ID whose planned state
// may differ from the store (the overlay), and for each pending timer below its
// horizon (the wheel). For any other ID the store is the truth.
//
// An ID to which something happens has an item. One that only waits is packed: a record of its
// bytes in a wheel of bytes, which says also whether the store has it (pack.go). A record is
// kept while it lies in the wheel, or the store lacks it; no entry and no batch knows it. A
// timer that is steered, larger than 4 KiB, has a permit or was missed is not packed. One that is
// gone, and that the store still has, is its ID and the place of what the store has, until a
// checkpoint has deleted that.
//
// An item is kept while one of these holds, and is forgotten with the last:
//
//   - an entry of it is not folded: ended by [Planner.Fold];
//   - the store has not heard of what was folded: ended by [Planner.Thaw], or packed, or gone;
//   - a batch has met it and is not planned: ended by [Planner.Plan];
//   - it is in the wheel: ended when it fires, is evicted, replaced or cancelled, or packed;
//   - it waits for its entries, or to be parked: ended by Fold, Thaw or [Planner.Parked];
//   - it was missed, which the store cannot tell: ended when it fires, is let go or parked again,
//     replaced or cancelled. What was missed is so by the clock as it stands: what comes back
//     before it is due, since that was set back, was not. See [Planner.Crowded].
//
// The horizon is a place in the order of firing (due time, offset): every pending
// timer below it is in the wheel, waits in the overlay, or is parked. It goes up by
// loads and down by evictions, behind which loads go back. An ID with an item is
// never taken from a load, and nothing that the store has learned is forgotten between a
// scan of it and the [Planner.Load] of what it found. Hence no stale row gets into the
// wheel, no row is missed, and a firing needs no look-up.
//
// # What is steered
//
// A request may pause a timer, resume or trigger it, and may be under a condition. What
// it leaves depends on what it finds, so of such an ID the timer is looked up and not
// its place alone, and the request is decided again if a firing before it is rolled back.
//
// A place in the order of firing stands for one version of a timer: what changes is told
// by it, a load or an admission that is late is known by it. Steering leaves due time and
// generation as they are, so a steered timer has a place apart, made of the offset of the
// request that did it:
//
//   - What is paused lies above every instant. No load reaches it, so it is in no wheel
//     but that of the overlay beyond the horizon, and forgotten when the store has it. It
//     costs no memory and no scan steps over it, however many there are, or however long
//     past due; in the store it is a row like another, which checkpoints, replays, the
//     number of pending and of misplaced timers and the lower bound of scans know as such.
//   - What is triggered lies below every instant: it is below the horizon, hence in the
//     wheel, where it is due when the trigger asked for it. After a restart the first load
//     finds it.
//
// Both come back by an entry like any other: a resume plans the timer at the place of its
// schedule, a triggered firing leaves the timer there, or where it is paused. Hence what
// is said of loads, evictions and parkings holds for them, and a paused timer is never
// parked, for it is not due; one that was parked has its row moved when it is paused.
//
// What is triggered is a firing of its own, not the request's: it can wait for its target
// and be rolled back, and what it has committed is that the timer is triggered. So one
// trigger fires once, whatever becomes of the steps in between.
//
// # The sequence
//
// What is planned forms one sequence, of which every step takes a prefix. Requests
// are planned in the order of their log, and a step takes those below one bound, so a position
// never passes a request that is not settled. A firing stands before all requests that wait, unless an earlier
// entry of its ID is among them: then it stands behind them. So entries of one ID are
// in the order in which they were planned, and nothing that falls due waits for the
// requests of others. An aborted step leaves the sequence as it was.
//
// # What is asked
//
// Who asks what is pending is told of what is committed, though all else here is about
// what is planned: an entry may still be rolled back, a step aborted. Of an ID that is
//
//   - what the last step has left that is committed and has a change of the ID, as long as
//     that is not folded ([Planner.Committed] looks through these steps, of which there
//     are few);
//   - else what the delta has, should it be frozen: the store may not have it yet;
//   - else what the store has. It is asked without the lock, so it may have learned of
//     later steps meanwhile, never of fewer: what was forgotten here it had by then. It is
//     one state or a later one, and both were committed while the question was open.
//
// Many at one time need more, for what is scanned changes meanwhile, and the changes are
// in no order here. An [Overlay] is a copy of what the store may lack, and is kept while
// somebody asks: each step that is committed adds its changes to a list, which is taken
// over, under the lock, before a question is answered. Invariant: the overlay has every
// ID that a step has changed which is committed and was not in the store when the overlay
// last looked, with what it has left. So an ID that it does not have is in a view of the
// store, of any moment since, as the last step has left it: no step behind that has
// changed it. The overlay laid over a view that is older than the list that was taken is
// the state that all committed steps have led to, whatever is folded, frozen, thawed,
// loaded or parked in between: none of that changes what an ID stands for.
//
//   - It begins as a copy of the delta and the steps that are not folded. The items of the delta are
//     read bit by bit, the lock not held in between; packed records are noted when it begins,
//     and read later, for their bytes do not change; the bytes of what is gone are copied at
//     once. What changes meanwhile comes by a
//     step, in the list, behind the copy; what is thawed meanwhile and is missed is in
//     the store, hence in a view that is made afterwards.
//   - It forgets what the store had before the view was made. It must not go by what the
//     store has now.
//   - It ends when nobody takes the list any more, which has a limit.
//
// # The caller's duties
//
// All calls of one planner are made one at a time, under the caller's lock; none blocks. Take,
// Commit and Return are calls of all planners of a partition.
//
//  1. [Planner.Meet] a batch of requests, look up what it says is unknown, tell with
//     [Lookup.Found], then [Planner.Plan] the batch. Batches are met and planned one
//     after the other, in the order of the log.
//  2. [Planner.Fire] what is due, [Take] a prefix of all planners, [Planner.RollBack] the
//     firings in it that must not be emitted now, and make records of what is left.
//  3. When the step has ended, [Commit] or [Return] it.
//  4. Once committed, [Planner.Fold] the segments in order. Now and then
//     [Planner.Freeze] what they changed, write it to the store, and [Planner.Thaw].
//  5. Scan the store from where [Planner.LoadFrom] says and [Planner.Load] the rows.
//     Between a scan and its Load there is no Thaw and no Parked, and no row is parked or
//     comes back.
//  6. Park the rows of what Fire gives to be parked, unless they are gone, and tell with
//     [Planner.Parked], before any of them comes back. [Planner.Admit] what may pass, once
//     its rows are back, and while the planner is not [Planner.Crowded]; none of that while a
//     checkpoint is written.
//  7. Answer with an [Overlay]: [Overlay.Begin] and [Overlay.Copy] if it is lapsed, then
//     [Overlay.Look], make a view of the store, then [Overlay.Take].
package planner
