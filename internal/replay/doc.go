// Package replay reads a changelog partition and folds it into a store: timers, the last
// checkpoint, and who wrote last.
package replay
