// Package partition is the life of one owned request partition, from its acquisition until it is given up. It connects
// requests from intake, the planners, the local store and the lane that commits. Package ownership acquires the
// partition and knows whether it is still ours.
//
// # Which goroutine owns what
//
// Each goroutine that owns state has one struct. The structs are made for one acquisition, and each starts and stops
// itself:
//
//   - receiver takes what intake delivers, and runs one goroutine for each sub-partition (subPartition.planAll). That
//     goroutine validates requests, looks up unknown IDs, and plans. While a step is out that is full of firings, it also
//     plans firings for the next step.
//   - lane is what the lane's goroutine calls. It plans due firings, seals the step, and takes the outcome.
//   - keeper is the goroutine of Run. It folds committed steps, makes every write to the store, and does every scan
//     of it. Another goroutine writes each checkpoint: see checkpoints.
//   - Package questions answers on the goroutines of its callers.
//
// They meet at the planners, under locks that are never held during I/O: see subPartitions. What one hands to another
// goes through a queue: inbox (to the sub-partitions), handover (committed steps, to the keeper), parkInbox (timers to
// be parked, to the keeper).
//
// # The catch-up barrier
//
// No timer fires until every request that was in the log at the acquisition has been planned. So a cancel in the log
// beats a firing that fell due while no instance ran. The message that opens the barrier goes through the inbox of each
// sub-partition, behind the last of those requests.
package partition
