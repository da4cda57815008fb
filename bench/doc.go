// Package bench holds workloads that measure instances on a real cluster: throughput, lateness, processor time,
// memory, disk space, and the time that a start takes.
//
//	w := bench.DefaultLife()
//	reports, err := bench.Run(ctx, &w)
//
// A workload is a configuration that [Run] runs; the command line only binds flags. docs/BENCHMARKS.md is the manual.
//
// Absolute figures say more about a machine than about waterclock. So each run also measures a bare loop: the best
// that the machine can do without timers, with the same client and nothing around it.
//
//   - A pass-through consumes records, writes 1 or 3 records for each and commits positions, in transactions like the
//     service's. A firing writes at least 1:1. The life of a timer writes 1:3: its changelog record, its emission,
//     its tombstone. Several sizes of a transaction are tried, and the best counts.
//   - A loop of steps gets timers from memory at an even rate, and each step takes the due ones. The service's
//     lateness is compared with its lateness.
//   - A plain consumer reads a changelog, which a start without a directory cannot avoid.
//
// The service, the bare loop and the brokers that a run starts are separate processes, so the processor time of each
// is known. Compare processor time rather than speeds: it hardly depends on the other load of the machine.
//
// The input of a pass-through is in the log before the measurement begins, but timers are produced during the
// measurement. If all processes share a machine, that counts against waterclock.
//
// Every emission is checked as a plain read_committed consumer sees it, including those of bare loops. If one is
// lost, duplicated, early or altered, the run has no figures and ends with [ErrInexact]. Lateness by receipt compares
// the consumer's clock with the due time, so the bench and the instances should have the same clock.
//
// Every run is bounded by its number of timers and by [Common.Timeout].
package bench
