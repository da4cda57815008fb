// Package bench holds workloads that measure an instance on a real cluster: how
// fast, how late, how big, how soon ready. A workload is a configuration and a
// Run; the command line only binds flags.
//
// Absolute times say more about a machine than about waterclock. So each
// workload also runs, in the same run and with the same clients, what the
// machine can do at best without timers, and reports the ratio:
//
//   - [RunThroughput] next to a plain transactional pass-through, 1 record in, 1
//     out (what a firing needs at least) and 1 in, 3 out (what the life of a
//     timer writes: its changelog record, its emission, its tombstone);
//   - [RunLateness] next to a bare loop of the same transactions that is fed
//     from memory, at the same rate;
//   - [RunRestart] next to nothing: it tells how restarts and sizes depend on
//     how many timers are pending.
//
// The input of a pass-through is in the log before its clock starts, while the
// timers of whole lives are produced in the time that is measured: on a machine
// that all of them share, that counts against waterclock.
//
// Every emission is checked as a plain read_committed consumer sees it. A run in
// which one is lost, doubled, early or altered ends with [ErrInexact], whatever
// its figures. Lateness by receipt compares the consumer's clock with the due
// time, so the machine of the bench should have the clock of the instances.
//
// Every run is bounded: by its count of timers and by [Common.Timeout].
package bench
