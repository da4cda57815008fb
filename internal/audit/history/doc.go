// Package history judges what clients of waterclock have seen. It is the one verifier that the benchmarks, the tests of
// whole instances, the simulation and waterclock audit share.
//
// A [History] is what was asked for (requests, in the order of their log), what came (emissions, as a plain
// read_committed consumer receives them), and what else was seen. The verdict follows from the history alone: the
// package knows nothing of the service's code. Package observe turns records of Kafka into facts of a history.
//
//   - [Check] judges a history, by a rule for each invariant of docs/internals/DESIGN.md. [Judge] says
//     what became of each request, too.
//   - [Book] is for timers by the million, of which it keeps 16 bytes each. It recognises emissions that
//     are exactly as they must be, and has Check judge each other one.
//
// # What it cannot see
//
//   - When a firing was decided. An emission says when its step was sealed, not which requests were planned
//     before it. So without events a cancel that came too late and a firing that came too soon look alike,
//     unless a claim or a long time lies between them.
//   - Whether an occurrence of a cron expression is on the right day: that is package calendar's.
//   - What a request log lost before anybody read it.
//   - A clock that is wrong, if it is the only one: early means early by the owner's clock.
//   - Which partition murmur2 gives an emission, and the order of emissions of one step.
//   - What became of a request whose timer was moved between partitions: the moved timer does not name it.
//   - Two bugs that cancel each other out within one step: nobody can.
package history
