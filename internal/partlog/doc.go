// Package partlog reads one partition of a Kafka topic from an offset,
// read_committed, and knows how far it has looked.
//
// A consumer that polls shows records. What it does not show is that it has
// looked past something that is no record: a control marker, an aborted batch
// (also one whose marker lies beyond the last stable offset), a batch that
// compaction emptied. A log that ends in such things never shows its reader
// that the end is reached. This package therefore sends its own Fetch requests
// and reports a position: every committed record below it has been returned,
// or was below the offset that the Reader started from.
//
// It serves a few uses: replaying a changelog, finding the read_committed end
// of a log, and gates ("has planning passed offset n"). It promises order, no
// gap and no repeat within one Reader. It does not assign partitions, commits
// nothing, never resets a position by itself, and does not prefetch.
//
// Errors that pass (no leader, a leader elsewhere, a broken connection) are
// waited out inside, with back-off, for as long as the caller's context lives.
// Errors that do not are returned: *OutOfRangeError and *TopicGoneError, a
// refused authorisation, bytes that do not decode.
package partlog
