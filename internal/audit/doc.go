// Package audit reads the logs of a live cluster as any read_committed consumer can, and has package history judge
// them: the fate of each request, and the broken promises.
//
//	report, err := audit.Run(ctx, audit.Options{Topics: topics, Dir: dir, …})
//	if err == nil && !report.AddsUp() {
//		// report.Broken counts violations by rule, report.Topics has the fates
//	}
//
// It writes nothing to Kafka and asks no instance.
//
// Every rule about a timer needs only the facts of its ID. So the audit spills facts to a Pebble database, sorted by
// ID, and judges one ID after the other. Its memory does not depend on the number of records.
//
// # One cut through logs that move
//
//  1. Changelogs are read to their ends. The timers that are pending then, and the positions, are one state: the cut.
//  2. Requests are read from the beginning of the span to their ends. Those beyond the cut's positions are undecided.
//  3. Dead letters, events and targets are read to ends that are looked up now. So they include everything that steps
//     before the cut have written, and perhaps more.
//  4. Changelogs are read on to ends that are looked up now. They name every ID that a step behind the cut can have
//     touched. For those IDs, the states before and after are both accepted.
//
// The ends of each stage are kept with the facts, so an interrupted audit goes on at the same cut.
package audit
