// Package history judges what clients of waterclock have seen. It is the one verifier
// that the benchmarks, the test rig and the acceptance tests share.
//
// A history is what was asked for (requests, in the order of their log) and what came
// (emissions, as a plain read_committed consumer receives them). The verdict follows from
// the history alone: the package reads the headers that users read, and knows nothing of
// the service's code.
//
//   - [Emissions] and [Once] judge records that a test has kept.
//   - [Book] judges timers by the million, of which it keeps 16 bytes each.
package history
