// Package interleavings shows on a real broker that the interleavings that broke
// earlier drafts do not break the engine. Each test is named after what happens.
// All check as a plain read_committed consumer that nothing is lost, duplicated or
// early.
package interleavings
