// Package repartition makes what is pending follow its request topic, when that is not
// the one any more that the changelog was written for: it was given more
// partitions, so that the requests for an ID lie elsewhere now; or it was recreated;
// or the changelog was copied to another cluster or another name.
//
// It works on the logs alone, while no instance runs, and writes one transaction:
// everything is as before or everything is done, whenever it is killed, and what
// it finds done it does not do again.
//
// # What it writes
//
// A pending timer is state, not a request, and is moved as such: a record in the
// changelog partition where its ID belongs, a tombstone where it was. So whatever
// the request log holds that nobody has read yet comes after it, as it was written
// after it: a cancel there cancels, a replacement replaces. Its generation is the
// place of that changelog record (timer.Moved), which no request has and no other
// record; it fires as it would have, but waterclock-source and waterclock-event
// name that place.
//
// Requests that lie in the old partitions and were not taken in are taken in here,
// by the rules of the service and without firing: first those whose ID leaves the
// partition, on top of what is pending there; then the timers move; then the
// others, on top of what has come. So of two requests for one ID the one on its
// old partition counts as the earlier. New partitions, and those of a topic that
// was recreated, are left to the service, from their start.
//
// A timer stays where it is if its ID did not belong there before: its producer
// has another partitioner, and nobody knows where that will send a cancel. If an ID
// is pending at its new place already, since a request for it was taken in there in
// the moments before the growth was noticed, that one is the later, and the old one
// is replaced by it.
//
// A changelog that was lost is written again from local views, where those have seen
// the step that the group's committed offset names.
//
// # Why nobody writes beside it
//
//   - The group must have no members, at the start and right before the commit.
//   - All transactions of the group that are open at the start are ended. A former
//     owner that wakes up later begins a step with an offset commit that the group
//     refuses, since it is no member.
//   - An instance that starts meanwhile first waits for stable offsets, and the
//     transaction holds an offset commit for every partition: it waits for the end,
//     or brings it about, and then nothing is committed.
//   - Each record's offset in the changelog is known before it is written. If one
//     gets another, somebody else has written there, and nothing is committed.
//   - A claim ends what is written to each partition. An owner that goes on in spite
//     of all that finds it behind its own records, and stops (package ownership).
package repartition
