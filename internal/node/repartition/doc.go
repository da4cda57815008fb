// Package repartition moves pending timers after their request topic has changed:
//
//	report, err := repartition.Run(ctx, repartition.Options{…}) // while no instance runs
//
// The topic has more partitions, so requests for an ID go to another one now; or it was recreated; or the changelog was
// copied to another cluster or to another name.
//
// It works on the logs alone, while no instance runs, and writes one transaction. So whenever it is killed, either
// nothing has changed or everything is done. A second run repeats nothing.
//
// # What it writes
//
// A pending timer is state, not a request, and is moved as state: a record in the changelog partition where its ID
// belongs now, and a tombstone where it was. So unread requests come after the move, just as they were written after
// the timer: a cancel cancels, a replacement replaces. The timer's new generation is the place of that changelog record
// (timer.MovedBy), which no request and no other record has. It fires as it would have, but waterclock-source and
// waterclock-event name that place.
//
// Unprocessed requests in the old partitions are processed here, by the rules of the service and without firing. First
// come those whose ID leaves the partition; they apply to the timers that are pending there. Then the timers move. Then
// come the other requests; they apply to the moved timers. So if two requests for one ID lie on two partitions, the one
// on the old partition counts as the earlier one. New partitions, and those of a topic that was recreated, are left to
// the service, from their start.
//
// A timer stays in its partition if its ID did not belong there before: its producer has another partitioner, and it is
// not known where a cancel would go. An ID may be pending at its new place already, because a request for it was
// processed there just before the growth was noticed. That request is the later one, so it replaces the old timer.
//
// A changelog that was lost is written again from local views, if they have seen the step that the group's committed
// offset names.
//
// # Why no other process writes
//
//   - The group must have no members, at the start and right before the commit.
//   - All transactions of the group that are open at the start are ended. A former owner that wakes up later begins a
//     step with an offset commit, which the group refuses because the owner is no longer a member.
//   - An instance that starts during the move first waits for stable offsets. The transaction has an offset commit
//     for every partition, so the instance waits for its end, or ends it, and then nothing is committed.
//   - The offset of each record in the changelog is known before it is written. If a record gets another offset,
//     another process has written there, and nothing is committed.
//   - The last thing written to each partition is a claim. An owner that goes on in spite of all this finds the claim
//     behind its own records, and stops (package ownership).
package repartition
