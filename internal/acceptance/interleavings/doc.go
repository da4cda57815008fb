// Package interleavings shows on a real broker that the interleavings of
// DESIGN.md, section 5, that broke earlier drafts do not break the engine. Each
// test is named after its number there. All check as a plain read_committed
// consumer that nothing is lost, doubled or early.
package interleavings
