// Package delaytopics is the life of one owned partition of a fixed-delay topic: each of
// its records appears on a target so long after its own timestamp, in the order of the
// log, once.
//
// Where the delay is the same for all, the log itself is the queue: what is due next
// stands at its front. So there is no changelog of records and no local store. All that
// is kept is how far the partition is passed on: one checkpoint, in a compacted topic
// that only owners write to.
//
// # How it goes
//
// Intake hands records over in the order of the log. A record is due its delay after
// its timestamp, or when the one before it is due if that is later: what is behind waits
// for what is before. Intake is paused while the newest record read is not due soon, or
// enough is queued. A seal takes what is due from the front of the queue and makes a
// share of it: emissions (a dead letter in the place of a record that cannot be passed
// on), one checkpoint record, and the fence, which is an offset commit for the
// partition. The front of the queue is dropped when the step is committed, and not
// before; nothing else is planned, so a step that is aborted, a clock that was set back
// and a target that fails need nothing to be undone: the next seal begins at the front
// again.
//
// A record whose target is unhealthy stands at the front until it is not, and what is behind
// it in the same partition with it: passing it over would need a store. Other partitions
// go on; nothing of this one is in their steps meanwhile.
//
// # Acquiring a partition
//
// By package ownership, in this order, and the order is the argument:
//
//  1. Fetch the group's committed offset, stable: it waits for the end of any step of a
//     former owner whose offset commit was accepted.
//  2. Read the checkpoints' end, read_committed, up to the high watermark as of now. Who
//     wrote last says which group is served.
//  3. Write a claim, directly behind what was read (see ownership.Steps), in a step that
//     repeats the committed offset. Somebody else's record between the two has it
//     aborted, and 2 comes again.
//  4. Read up to the claim, read_committed: all before it is decided now.
//  5. Read records from the position of the last checkpoint before the claim.
//
// # Why each record appears once
//
// Position and emissions are one transaction, so the emissions of a committed checkpoint
// are exactly the records below its position that were not below the last one's. What
// remains is that two checkpoints never cover the same record: each owner begins at the
// last committed one (5), which no other owner can move afterwards (fences), and goes on
// from what it has committed itself.
//
//   - kill -9 before the offset commit is accepted: the transaction has at most
//     announced partitions. The claim's step or the read of 4 may have to wait for its
//     end, which the successor brings about (hanging.End). Nothing was emitted.
//   - kill -9 between the offset commit and EndTxn: step 1 is UNSTABLE until the
//     transaction is ended, aborted. The position is the one before, and so is what was
//     emitted.
//   - kill -9 after EndTxn was received: committed. Step 1 waits for the markers of
//     __consumer_offsets, 4 for those of the checkpoints.
//   - paused past the session, then continued: the successor has acquired the partition.
//     The paused owner's next offset commit is refused, or its lease is broken, or its
//     producer was fenced by whoever ended its transaction.
//   - moved in order (rebalance): nothing is sealed once the partition is revoked, the
//     step under way may end; then the token dies. The queue is forgotten: it holds
//     nothing that the log does not.
//   - a step is aborted: nothing of it was dropped from the queue. It is sealed again,
//     with a new timestamp and name.
//   - the outcome of a commit is unknown: the lane commits again until the transaction
//     is over, and asks the coordinator how it ended, or reads the checkpoint record
//     back. That record is the last checkpoint of its partition as long as the share is
//     out, so compaction leaves it.
//     Until the outcome is known nothing more is sealed of the partition.
//   - the group's offsets are deleted: the offset is a fence, never a position. The last
//     checkpoint decides.
//   - two groups: the fence between them is the log of checkpoints. A step is committed
//     only if no claim of somebody else can stand before its checkpoint record; a claim
//     behind it is followed by a read that waits for the step's end (4). So in log order
//     the one that claimed last goes on, from where the other ended, and the other
//     commits nothing more: it looks at the log (doubt), finds the claim and fails.
//   - the checkpoints are lost while an offset is committed: the partition refuses to
//     run until an operator says that the offset may be believed
//     (--accept-lost-changelog); another group may have gone on since it was committed.
//   - checkpoints and offsets are lost: nothing tells that from the first start. The
//     topic is passed on from its start.
//   - the topic is recreated: the checkpoint names its UUID. What is in the new one
//     was passed on by nobody, so it is read from its start.
//   - records fell off the log before they were due: counted, said loudly, and on from
//     the log's start.
//
// Never early: a seal reads the clock and takes what is due by it.
//
// # Goroutines
//
// Run acquires the partition, sees to the clock and resumes intake; the reader's goroutine
// calls Deliver; the lane's calls Seal and Done. mu guards what they share.
package delaytopics
