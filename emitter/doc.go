// Package emitter commits the steps of partitions in Kafka transactions:
//
//	lanes := emitter.NewLanes(emitter.Options{...})
//	lanes.Add(source)     // it seals its share of each step
//	err := lanes.Run(ctx) // until ctx ends; lanes.Wake says that a source has something ready
//
// A [Lane] is a loop of steps. A few of them ([Lanes]) serve all partitions that a process owns. A step is one
// transaction: changelog records, emissions, dead letters, events and offset commits, all or nothing. The lane does not
// interpret the records.
//
// # The step
//
//  1. Seal: every source adds its ready records (a [Share]).
//  2. Begin, on one of a few transactional clients. The next transaction of a transactional ID waits inside the broker,
//     in steps of 20 ms, until the markers of the last one are written. So the lane picks a client that has rested, and
//     among those the one that was used last (pool.order).
//  3. Announce all partitions of the step in one AddPartitionsToTxn. Otherwise brokers add them one by one and reject
//     each other with CONCURRENT_TRANSACTIONS. An announce that names an unknown or forbidden topic is refused as a
//     whole and names the culprits, before anything is written.
//  4. TxnOffsetCommit for every contributing partition, moved or not, with the step's name in the metadata. Its answer
//     is checked. It fences former owners.
//  5. Produce and flush. Every promise must succeed.
//  6. EndTxn(commit), if all tokens are alive and every share's Check passes.
//
// # Why nothing is committed twice, or by a former owner
//
// The broker checks membership at the offset commit, never ownership: it accepts an offset commit for any partition
// from any current member. So when a step begins, and again directly before TxnOffsetCommit and EndTxn, every share's
// token is asked whether its lease holds (see package membership). An EndTxn(commit) after a refused offset commit
// would succeed, so it is never sent. Any failure before step 6 leads to an abort. An abort is certain, because no
// other client would ever commit that transaction.
//
// A successor fetches the partition's offset "stable", which waits for the end of a transaction with an accepted offset
// commit. That is why the offset commit comes before the first produce. So a former owner is either stopped before it
// writes anything, or waited for.
//
// If the answer to EndTxn is lost, or is an error, the step is in doubt. Its outcome is determined by committing again,
// never by an abort (commitAgain says why). The same EndTxn is sent until the transaction's coordinator says that the
// transaction is committed, or that it is over. If it is over and the coordinator does not say how it ended, a new
// client with the same transactional ID calls InitProducerID, which waits for the end. Then a read_committed fetch of a
// record that the step wrote to its partition's changelog, or checkpoints, shows the record or passes over it. So the
// decision is the one that every later reader of that log finds. Until then the step's partitions stand still. If no
// token is alive there is nothing to decide: all entries of the step are dropped, and the new owner reads the truth
// from the log.
//
// # Coordinators that wake up
//
// Others may take over while a broker is unresponsive (paused, swapped out, cut off). When it wakes it does not know
// that. It cannot write anything, because writes need the others, but it answers. A group coordinator then shows old
// committed offsets, even stable ones. Hence two rules. First, how a step ended is never read from the group's offsets.
// Second, a new owner believes an offset only if the broker has answered a heartbeat of the owner's generation. In the
// log from which the broker knows that generation, every accepted offset commit of a former owner stands before it.
//
// A leader that wakes up shows a log without its end. A record that it does not have yet does not count as aborted; it
// is waited for.
//
// A transactional ID is retired (never used again) after a resolve, an abort, a fencing or a long wait: a marker of its
// next transaction must not be able to close an earlier one that is still open.
//
// # Delays
//
// Every wait of a lane's loop is bounded by a named constant. A partition that does not take its records in time is
// identified. If it is a target, a breaker keeps its emissions out of the next step (targets.Health). If it is one of
// the service's own, its share leaves the lane and is tried separately (quarantine).
package emitter
