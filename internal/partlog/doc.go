// Package partlog reads one partition of a Kafka topic from an offset,
// read_committed, and knows how far it has looked.
//
// A consumer that polls returns records. It does not tell that it has read past
// something that is no record: a control marker, an aborted batch (also one whose
// marker lies beyond the last stable offset), or a batch that compaction emptied.
// If a log ends in those, a consumer never learns that it has reached the end. So
// this package sends its own Fetch requests and reports a position: every
// committed record below it has been returned, or was below the offset that the
// Reader started from.
//
// Three things need that: a replay of a changelog, a search for the
// read_committed end of a log, and a catch-up barrier ("has planning passed
// offset n?"). A Reader returns records in order, without gaps and without
// repeats. It does not assign partitions, commits nothing, never resets a
// position by itself, and does not prefetch.
//
// A call waits out errors that pass (no leader, a leader elsewhere, a broken
// connection), with back-off, until its context ends. It returns the others:
// *OutOfRangeError and ErrTopicGone, a refused authorisation, bytes that do
// not decode.
package partlog
