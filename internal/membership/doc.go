// Package membership owns the group client: who is a member, which partitions
// it holds, and whether it still holds them at this very moment. It fetches
// nothing.
//
// # The lease
//
// The broker's fence is the offset commit in a step, and that checks
// membership, never ownership: any current member may commit for any partition.
// So what makes a step safe is that the *same membership* under which a
// partition was acquired still lasts. Each [Token] carries that lease.
//
//   - A dynamic member that misses a join is removed by the broker, and comes
//     back with a new member ID. So the same member ID suffices. kgo takes the
//     new ID silently when its JoinGroup hung through a generation: without
//     OnPartitionsLost, without OnPartitionsRevoked before the next SyncGroup,
//     and with the old step's offset commit accepted by the broker. The lease
//     is therefore compared at each send, with what kgo would send now.
//   - A static member keeps its ID through a restart and, if the rebalance
//     timeout is shorter than the session, through a missed generation. It must
//     have joined every generation: our wrapper of the balancer sees each join.
//
// A broken lease, by a new member ID, a gap, or the group's refusal of a step,
// means that everything held is lost. All tokens die, the client is closed and
// a new one joins as a new member.
//
// # Unresponsive brokers
//
// kgo repeats requests to a coordinator that is away for 30 s and says nothing
// meanwhile, while the group drops a member after the session timeout. When a
// broker last answered the member is therefore noted beside it; what is older
// than that timeout shows as [Group.Unresponsive]. It decides nothing about steps: the
// broker's fence holds whatever a member thinks of itself. Answers to readers have no such
// fence, and are given when [Token.Certain] has asked the group.
//
// # Death of a token
//
// Err is asked before each send of a step, and by whoever acts for a partition.
// Once it returned an error it does so forever.
package membership
