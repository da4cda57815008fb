// Package delaytopics runs one owned partition of a fixed-delay topic: each of its records appears on a target
// exactly once, a fixed time after its own timestamp, in the order of the log.
//
//	p := delaytopics.New(options)
//	go p.Run(ctx) // acquires the partition and serves it until ctx or its lease ends
//
// If the delay is the same for all records, the log itself is the queue: the next due record is at its front. So
// there is no changelog of records and no local store. The only state is the position up to which records were passed
// on: one checkpoint, in a compacted topic that only owners write to.
//
// # How it works
//
// Intake delivers records in the order of the log. A record is due one delay after its timestamp, or when the record
// before it is due, if that is later: no record overtakes another. Intake pauses while the newest record read is not
// due soon, or while the queue is full. A seal takes the due records from the front of the queue and makes a share of
// them: emissions (for a record that cannot be passed on, a dead letter), one checkpoint record, and the fence, which
// is an offset commit for the partition. The records leave the queue when the step is committed, and not before.
// Nothing else is planned. So an aborted step, a clock that was set back and a failing target need no undoing: the
// next seal begins at the front again.
//
// A record whose target is unhealthy stays at the front until the target recovers, and the records behind it in the
// same partition wait too. Passing it over would need a store. Other partitions go on, because this one adds nothing
// to their steps until then.
//
// # Acquiring a partition
//
// Package ownership does this in the following order, which the argument depends on:
//
//  1. Fetch the group's committed offset, stable. This waits for the end of any step of a former owner whose offset
//     commit was accepted.
//  2. Read the checkpoints up to the high watermark as of now, read_committed. The last writer shows which group is
//     served.
//  3. Write a claim directly after the last record read (see ownership.Steps), in a step that repeats the committed
//     offset. If another writer's record stands between, the step is aborted, and 2 follows again.
//  4. Read up to the claim, read_committed. Everything before it is decided now.
//  5. Read records from the position of the last checkpoint before the claim.
//
// # Why each record appears once
//
// Position and emissions are one transaction. So the emissions of a committed checkpoint are exactly those of the
// records below its position that were not below the previous checkpoint's. It remains to show that no two
// checkpoints cover the same record: each owner begins at the last committed one (5), which no other owner can move
// afterwards (fences), and continues from its own commits.
//
//   - kill -9 before the offset commit is accepted: the transaction has announced partitions, and no more. The
//     claim's step, or the read of 4, may have to wait for its end, which the successor brings about (repair.End).
//     Nothing was emitted.
//   - kill -9 between the offset commit and EndTxn: step 1 is UNSTABLE until the transaction is ended. It is aborted,
//     so the position and the emissions are those from before.
//   - kill -9 after EndTxn was received: committed. Step 1 waits for the markers in __consumer_offsets, step 4 for
//     those in the checkpoints.
//   - Paused past the session, then continued: the successor has acquired the partition. The paused owner's next
//     offset commit is rejected, or its lease is broken, or its producer was fenced when its transaction was ended.
//   - Moved by a rebalance: once the partition is revoked nothing more is sealed, and the step in flight may end.
//     Then the lease ends. The queue is dropped, because all of it is in the log.
//   - A step is aborted: none of its records has left the queue. They are sealed again, with a new timestamp and
//     name.
//   - The outcome of a commit is unknown: the lane retries the commit until the transaction is over. Then it asks the
//     coordinator how the transaction ended, or reads the checkpoint record back. That record is the last checkpoint
//     of its partition as long as the share is in flight, so compaction keeps it. Until the outcome is known, nothing
//     more of the partition is sealed.
//   - The group's offsets are deleted: the offset is a fence and never a position. The last checkpoint decides.
//   - Two groups: the log of checkpoints is the fence between them. A step is committed only if no foreign claim can
//     stand before its checkpoint record. If a claim stands after that record, its writer reads up to the claim, and
//     so waits for the end of the step (4). So, in log order, the last to claim continues where the other ended. The
//     other commits nothing more: it checks the log, finds the claim and fails.
//   - The checkpoints are lost but an offset is committed: the partition refuses to run until an operator confirms
//     the offset (--accept-lost-changelog). Another group may have gone on since it was committed.
//   - The last checkpoints are lost: the offset is of a later step than the last remaining checkpoint, and is beyond
//     it. The partition refuses in the same way. Without the offset the loss cannot be detected, and records are
//     passed on again.
//   - Checkpoints and offsets are lost: this cannot be distinguished from the first start. The topic is passed on
//     from its start.
//   - The topic is recreated: the checkpoint names its UUID. No record of the new topic was passed on, so it is read
//     from its start.
//   - Records fell off the log before they were due: they are counted, an error is logged, and reading continues at
//     the log's start.
//
// Never early: a seal reads the clock and takes only records that are due by it.
//
// # Goroutines
//
// Run acquires the partition, watches the clock and resumes intake. The reader's goroutine calls Deliver. The lanes
// call Seal and a share's Done. relay.mu guards their shared state.
package delaytopics
