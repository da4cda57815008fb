// Package partition is the life of one owned request partition: taken, live,
// drained, gone. It binds the pieces: requests from intake, the planner, the
// local store, the lane that commits. How it is acquired, and known to be ours, is
// package ownership's.
//
// # Who runs what
//
//   - The partition's own goroutine (Run) acquires the partition, and from then on
//     folds committed steps, sees to every write to the store and does every scan
//     of it. A checkpoint is written by a goroutine beside it, see checkpoints.
//   - One goroutine for each sub-partition (sub.planAll) judges requests, looks up what is
//     not known, and plans; also firings for the next step, while one is out that is full of them.
//   - The lane's goroutine plans what is due, seals, commits, and tells the outcome.
//
// They meet at the planners, under locks that are held over no I/O: see plans.
//
// # The gate
//
// Nothing fires until every request that was in the log when the partition was
// acquired has been planned: a cancel in the log beats a firing that fell due
// while nobody ran. The word to open comes through the inbox of each sub-partition, behind
// the last of those requests.
package partition
