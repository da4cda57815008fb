// Package topics knows the topics that the service itself writes: their names, settings and permissions, and how to
// create and verify them. Package wire has the bytes of their records.
//
//	set, problems, err := topics.Ensure(ctx, adm, "timers", topics.Options{Create: true})
//
//	<request topic>.waterclock.changelog     pending timers, and how far
//	                                         requests are processed; compacted
//	<request topic>.waterclock.dead-letters  rejected requests and emissions
//	<request topic>.waterclock.events        what happens to timers; optional
//
// and of a fixed-delay topic, whose records are passed on a fixed time after their timestamps:
//
//	<topic>.waterclock.checkpoints           how far it is passed on; compacted
//	<topic>.waterclock.dead-letters          records that could not be passed on
//
// Each of these has the partition count of its request or fixed-delay topic, and partition n of one
// belongs to partition n of the other. A group has one topic with a single partition:
//
//	<group>.waterclock.calendars             calendars by name; compacted
//
// The package holds no state and starts no goroutine.
package topics
