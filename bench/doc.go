// Package bench holds workloads that measure instances on a real cluster: how fast,
// how late, how dear in processor time, how big, how soon ready. A workload is a
// configuration that [Run] runs; the command line only binds flags. docs/BENCHMARKS.md
// is the manual.
//
// Absolute figures say more about a machine than about waterclock. So each workload
// also runs, in the same run, a bare loop: what the machine can do at best without
// timers, written with the same client and nothing around it.
//
//   - A pass-through consumes records, writes 1 or 3 for each and commits positions,
//     in the transactions that the service needs: 1:1 is what a firing writes at
//     least, 1:3 what the life of a timer does (its changelog record, its emission,
//     its tombstone). It runs with several sizes of a transaction, and the best
//     counts.
//   - A loop of steps is fed from memory at an even rate, and each of its steps takes
//     what is due: lateness is compared with its lateness.
//   - A plain consumer reads a changelog: what a start without a directory must do.
//
// The service, the bare loop and the brokers that a run starts are processes of their
// own, so the processor time of each is known. Go by it: it hardly depends on what else
// runs on the machine.
//
// The input of a pass-through is in the log before its clock starts, while timers
// are produced in the time that is measured: on a machine that all of them share,
// that counts against waterclock.
//
// Every emission is checked as a plain read_committed consumer sees it, those of
// bare loops too. A run in which one is lost, duplicated, early, altered, or came in
// spite of its cancel has no figures and ends with [ErrInexact]. Lateness by receipt
// compares the consumer's clock with the due time, so the machine of the bench
// should have the clock of the instances.
//
// Every run is bounded: by its count of timers and by [Common.Timeout].
package bench
