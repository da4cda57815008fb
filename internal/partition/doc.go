// Package partition is the life of one owned request partition: taken, live,
// drained, gone. It binds the pieces: requests from intake, the planner, the
// local store, the lane that commits. How it is acquired, and known to be ours, is
// package ownership's.
//
// # Who runs what
//
// One struct for each goroutine that owns state. They are made for one acquisition, and each starts and stops itself:
//
//   - requests takes what intake delivers, and runs one goroutine for each sub-partition (subPartition.planAll). That
//     validates requests, looks up what is not known, and plans; also firings for the next step, while one is out
//     that is full of them.
//   - lane is what the lane's goroutine calls: it plans what is due, seals it, and takes the outcome.
//   - keeper is the goroutine of Run: it folds committed steps, sees to every write to the store and does every
//     scan of it. A checkpoint is written by a goroutine beside it, see checkpoints.
//   - Questions answers on the goroutines of its callers.
//
// They meet at the planners, under locks that are held over no I/O: see subPartitions. What one hands to another goes through
// a queue: inbox (to the subs), handover (committed steps, to the keeper), parkInbox (timers to be parked, to the keeper).
//
// # The catch-up barrier
//
// Nothing fires until every request that was in the log when the partition was
// acquired has been planned: a cancel in the log beats a firing that fell due
// while nobody ran. The word to open comes through the inbox of each sub-partition, behind
// the last of those requests.
package partition
