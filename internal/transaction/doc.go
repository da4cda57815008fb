// Package transaction turns what partitions have planned into Kafka transactions.
//
// A [Lane] is a loop of steps, one of a few ([Lanes]) around the partitions that a
// process owns. A step is one transaction: changelog records, emissions, dead
// letters and the fence, all or nothing. The lane sends what it is given and
// does not know what the records mean.
//
// # The step
//
//  1. Seal: every source adds what it has ready (a [Share]).
//  2. Begin, on one of a few transactional clients: the next transaction of one
//     transactional ID would wait inside the broker, in 20 ms steps, until the
//     markers of its last one are written. So it is one that has rested, and of
//     those the one that was used last (Lane.order).
//  3. Announce all partitions of the step in one AddPartitionsToTxn. Otherwise
//     brokers add them one by one and refuse each other with
//     CONCURRENT_TRANSACTIONS. An announce that names an unknown or forbidden
//     topic is refused whole, with the culprits named: a check before anything
//     is written.
//  4. TxnOffsetCommit for every contributing partition, moved or not, with the
//     step's name in the metadata. This is the fence. Its answer is checked.
//  5. Produce, flush; every promise must be good.
//  6. All tokens alive, and no share's Fence against it? Then
//     EndTxn(commit).
//
// # Why nothing is committed twice, or by a former owner
//
// The broker checks membership at the offset commit, never ownership: it takes
// an offset commit for any partition from any current member. So before each
// send every share's token is asked whether its lease holds (see package
// membership). An EndTxn(commit) after a refused offset commit would succeed;
// it is therefore never sent: any failure before step 6 leads to an abort, and
// an abort is certain, because nobody else would ever commit that transaction.
//
// A successor fetches the partition's offset "stable", which waits for the end
// of a transaction that has an accepted offset commit; hence the offset commit
// comes before the first produce. A former owner is thus either stopped before
// it writes anything, or waited for.
//
// An EndTxn whose answer is lost, or is an error, says nothing. The lane then
// resolves, by committing again and never by an abort (commitAgain has why): the
// same EndTxn is sent until the transaction's coordinator says that it is committed,
// or that it is over. If it is over and the coordinator does not say how it ended, a
// new client with the same transactional ID calls InitProducerID, which waits for
// the end, and a read_committed fetch of a record that the step wrote to its
// partition's changelog, or checkpoints, shows it or passes over it. So what is
// decided here is what every later reader of that log finds. Until that is known
// nothing of the step's partitions goes on. If no token is alive there is nothing to
// decide: all its entries are dropped, and the new owner reads the truth from the
// log.
//
// # Coordinators that wake up
//
// A broker that was unresponsive (paused, swapped out, cut off) while others took over
// what it led does not know that when it wakes. Until it hears of it, it cannot
// write anything, for writes need the others; but it answers. A group
// coordinator then shows committed offsets from before, stable ones too. Hence
// two rules. How a step ended is never read from the group's offsets. And a new
// owner believes an offset only of a broker that has answered a heartbeat of its
// generation: the log that told the broker of that generation holds, before it,
// every offset commit that a former owner could have had accepted.
//
// A leader that wakes up shows a log without its end: what it does not have yet
// is not taken for aborted, it is waited for.
//
// A transactional ID is retired (never begun again) after a resolve, an abort, a
// fencing or a long wait: a marker of its next transaction must not be able to
// close what an earlier one left behind.
//
// # Who holds up a step
//
// Every wait of a lane's loop is bounded by a named constant. What is not taken in
// time is named: a target, by Health, whose emissions stay out of the next step; or
// one of our own partitions, whose share leaves the lane and is tried apart (quarantine).
package transaction
