// Package ownership is how a process comes to own a partition, knows that it still owns it, and gives it up:
//
//	l := ownership.New(options, metrics)
//	l.Run(ctx, func(ctx context.Context) error { // as often as the partition has to be acquired again
//		source := l.Steps.Join(kind) // the lanes may ask it for shares of their steps
//		defer source.Leave()
//		claimed, err := l.Acquire(ctx, follower, begin)
//		l.Own(claimed)
//		… // serve until l.Failed
//	})
//
// It is the common part of request partitions and partitions of fixed-delay topics.
//
// Each has a log that only its owner writes to: the changelog, or the checkpoints of a fixed-delay topic. A [Follower]
// folds such a log. It claims nothing, and may follow forever. [Life.Acquire] makes this process the owner, from a
// follower's position. A [Life] runs one acquisition after another. It has a part for each concern: [Steps] (the right
// to seal, and the end of the log, which keeps owners of different groups apart), [Input] (the log that is read) and
// [Records] (the records of steps).
//
// # The order of an acquisition
//
// The order is the argument (docs/internals/DESIGN.md, "Acquiring a partition"):
//
//  1. Fetch the group's committed offset, stable. This waits for the end of any step of a former owner whose offset
//     commit was accepted.
//  2. Fold the log up to its end as of now, read_committed.
//  3. Write a claim directly behind that. If a record came between, the claim is aborted, and 2 continues.
//  4. Fold the log up to the claim. Everything before it is decided.
//
// The follower of a standby does 1 and 2 at the same time. The step that 1 waits for may then stand behind the end that
// 2 has looked up. If so, the claim does not stand directly behind the folded part, is aborted, and 2 continues. If the
// claim may stand behind records of another group, 4 folds them. Either way 3 comes after 1: a step whose offset commit
// was accepted has its records before the claim, and 4 waits for its end.
//
// The request log's end is looked up during 4, when the claim is committed. So it is behind every request that was in
// the log when the partition was acquired.
//
// Records that a follower has folded before count for 2, however long ago that was, as long as the records that it has
// yet to read cannot be gone from a compacted log: see [Follower].
//
// # The kind's duties
//
// A kind of partition holds a Life, and
//
//  1. has [Life.Run] serve it: [Steps.Join], [Life.Acquire], [Life.Own], its own loop, [Source.Leave];
//  2. calls [Life.Look] often while it is the owner, and ends when [Life.Failed] says so;
//  3. seals when its [Source] asks it, and no sooner; the records for the changelog come first in a share;
//  4. tells its [Input] the records that it reads, and has its [Records] make those of its steps.
package ownership
