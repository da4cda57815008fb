// Package membership owns the group client: it knows whether the process is a member, which partitions it holds, and
// whether it still holds them at this very moment:
//
//	g, err := membership.New(membership.Options{…}, handler)
//	err = g.Run(ctx)  // calls handler.Assigned(token) and handler.Revoked(tokens)
//	err = token.Err() // nil while the lease on the partition holds
//
// It fetches nothing.
//
// # The lease
//
// The broker fences former owners by the offset commit in a step. It checks membership but never ownership: any current
// member may commit for any partition. A step is therefore safe only if the *same membership* under which its partition
// was acquired still lasts. Each [Token] carries that lease.
//
//   - A dynamic member that misses a join is removed by the broker and comes back with a new member ID. So it is enough
//     that the member ID is the same. If kgo's JoinGroup hung through a generation, kgo adopts the new ID silently:
//     without OnPartitionsLost, without OnPartitionsRevoked before the next SyncGroup, and with the old step's offset
//     commit accepted by the broker. The lease is therefore compared at each send with the identity that kgo would send
//     now.
//   - A static member keeps its ID through a restart and, if the rebalance timeout is shorter than the session timeout,
//     through a missed generation. It must have joined every generation: our wrapper of the balancer sees each join.
//
// A lease breaks by a new member ID, by a gap in the generations, or if the group refuses
// a step. Then everything held is lost. All tokens die, the client is closed and a new one
// joins as a new member.
//
// # Unresponsive brokers
//
// If a coordinator does not answer, kgo repeats requests to it for 30 s without saying so, while the group drops a
// member after the session timeout. The package therefore records when a broker last answered the member. If that is
// longer ago than the session timeout, [Group.Unresponsive] says so. It decides nothing about steps: the broker fences
// a member whatever that member knows of itself. Answers to readers are not fenced. They are given only after
// [Token.Certain] has asked the group.
//
// # Death of a token
//
// Err is called before each send of a step, and by everything that acts for a partition.
// Once it has returned an error it does so forever.
package membership
