// Package history judges the records that clients of waterclock have seen. It is the one verifier that the benchmarks,
// the tests of whole instances, the simulation and waterclock audit share.
//
//	violations, fates := history.Judge(history.History{Requests: …, Emissions: …, Scope: …})
//
// A [History] has the requests in the order of their log, the emissions as a plain read_committed consumer receives
// them, and everything else that was seen. The verdict follows from the history alone: the package knows nothing of the
// service's code. Package observe turns records of Kafka into facts of a history.
//
//   - [Check] judges a history, by a rule for each invariant of docs/internals/DESIGN.md. [Judge] also returns the fate
//     of each request. Rules about what only tests ask instances are in test/witness.
//   - [Book] is for timers by the million: it keeps 16 bytes of each. It recognises emissions that are exactly right,
//     and has Check judge every other one.
//
// # What it cannot see
//
//   - When a firing was decided. An emission says when its step was sealed, not which requests were planned before it.
//     So without events, a cancel that came too late and a firing that came too soon look alike, unless a claim or a
//     long time lies between them.
//   - Whether an occurrence of a cron expression is on the right day: that is package calendar's business.
//   - Requests that the log lost before they were read.
//   - A clock that is wrong, if it is the only one: early means early by the owner's clock.
//   - Which partition murmur2 gives an emission, and the order of emissions of one step.
//   - The fate of a request whose timer was moved between partitions: the moved timer does not name it.
//   - Two bugs that cancel each other out within one step. No verifier can.
package history
