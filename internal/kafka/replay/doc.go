// Package replay reads a changelog partition and folds it into a store: timers, the last checkpoint, and the last
// writer.
package replay
