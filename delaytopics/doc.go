// Package delaytopics knows the topics that a delay service is made of: their
// names and settings, how to create and verify them, and the bytes of every
// record that the service writes to its own topics.
//
//	<request topic>.waterclock.changelog     what is pending, and how far
//	                                         requests are taken in; compacted
//	<request topic>.waterclock.dead-letters  what was rejected
//	<request topic>.waterclock.events        what becomes of timers, if wanted
//
// and of a fixed-delay topic, whose records are passed on so long after their
// timestamps:
//
//	<topic>.waterclock.checkpoints           how far it is passed on; compacted
//	<topic>.waterclock.dead-letters          what could not be passed on
//
// Each has the partition count of its request or fixed-delay topic, and partition n of
// one belongs to partition n of the other.
//
// The package promises that what it encodes it decodes, in this and in every
// later version, that a decoder answers bytes of a later version with
// ErrNewerFormat and any other bytes with ErrCorrupt, and never panics. It holds
// no state and starts no goroutine. It does not know who owns a partition, when
// a timer is due, or how records are sent.
//
// It is for the service alone: the public client is the root package.
package delaytopics
