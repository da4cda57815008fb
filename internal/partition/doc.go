// Package partition is the life of one owned request partition, from its acquisition until it is given up:
//
//	p := partition.New(partition.Options{…})
//	go p.Run(ctx)                          // acquires it and serves it until ctx ends or the token dies
//	timer, err := p.Questions.Get(ctx, id) // answered if this process certainly owns it
//	p.Drain()                              // when the group revokes it
//
// It connects requests from intake, the planners, the local store and the lane that commits. Package ownership acquires
// the partition and knows whether it is still ours.
//
// # Goroutines and their state
//
// Each goroutine that owns state has one struct, made anew for each acquisition (see served):
//
//   - receiver (the field requests of served) takes requests from intake, and runs one goroutine for each sub-partition
//     (subPartition.planAll). That goroutine validates requests, looks up unknown IDs, and plans. If a step leaves due
//     timers behind, it also plans their firings while that step is in flight.
//   - lane is this partition's emitter.Source. It plans due firings, seals the step, and takes the outcome. A committed
//     step is applied to the planners in the same call, so nothing is ever committed and not applied.
//   - keeper is the goroutine of Partition.Run. It parks timers, and loads timers from the store. Another goroutine
//     writes each checkpoint (see checkpoints), and one counts timers by due time (see forecast).
//   - Package questions answers on the goroutines of its callers.
//
// They share the planners, whose locks subPartitions describes. Everything else that one hands to another goes through
// a queue: inbox (to the sub-partitions), subPartition.toPark (timers to be parked, to the keeper), checkpoints.asked
// (callers that wait for a checkpoint, to the keeper).
//
// # The catch-up barrier
//
// No timer fires until every request that was in the log at the acquisition has been planned. So a cancel in the log
// wins against a firing that fell due while no instance ran. The barrier opens by way of the inbox of each
// sub-partition, behind the last of those requests.
package partition
