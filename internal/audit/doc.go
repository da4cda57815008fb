// Package audit reads the logs of a live cluster as any read_committed consumer can, and has package
// history judge them: what became of each request, and which promise was broken. It writes nothing to
// Kafka and asks no instance.
//
// Every rule about a timer needs only what concerns its ID. So the audit spills facts to a Pebble
// database, sorted by ID, and judges one ID after the other. Its memory does not depend on how much
// there is.
//
// # One cut through logs that move
//
//  1. Changelogs are read to their ends. What is pending then, and the positions, are one state: the cut.
//  2. Requests are read from the beginning of the span to their ends. Those beyond the cut's
//     positions are undecided.
//  3. Dead letters, events and targets are read to ends that are asked for now. So all that steps before
//     the cut have written is there, and perhaps more.
//  4. Changelogs are read on to ends that are asked for now. They name every ID that a step behind the
//     cut can have touched. Of those, both what was before and what came after is accepted.
//
// Ends of each stage are kept with the facts, so an audit that was interrupted goes on at the same cut.
package audit
