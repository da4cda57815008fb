// Package ownership is how a process comes to own a partition, knows that it still does,
// and ends: what request partitions and those of fixed-delay topics have in common.
//
// Each has a log that only its owner writes to, the changelog, or the checkpoints of a
// fixed-delay topic. A [Follower] folds such a log, and claims nothing: it may go on
// forever. [Life.Acquire] makes this process the owner, going on from where a follower
// stands. A [Life] runs one acquisition after another. It holds a room for each concern: [Steps]
// (what may be sealed, and the end of the log by which owners of different groups are held apart),
// [Input] (the log that is read) and [Records] (what steps write).
//
// # The order of an acquisition
//
// In this order, and the order is the argument; docs/DESIGN.md, "Acquiring a partition",
// has why:
//
//  1. The group's committed offset, stable: the end of any step of a former owner whose
//     offset commit was accepted.
//  2. The log up to its end as of now, read_committed.
//  3. A claim directly behind that; what came between has it aborted, and 2 goes on.
//  4. The log up to the claim: all before it is decided.
//
// What a follower has folded before is a part of 2, whenever that was, as long as nothing
// that it has yet to see may be gone from a compacted log: see [Follower].
//
// # The kind's duties
//
// A kind of partition holds a Life, and
//
//  1. has [Life.Run] serve it: [Steps.Join], [Life.Acquire], [Life.Own], its own loop,
//     [Steps.Leave];
//  2. calls [Life.Look] often while it is the owner, and ends with what [Life.Failed] tells;
//  3. seals by [Steps.Seal], which says when nothing is to be sealed, with [Steps.Fence] for
//     the records in the log, and tells the end of each share by [Steps.Ended], last of all;
//  4. tells its [Input] what it reads, and has [Records] make what its steps write.
package ownership
