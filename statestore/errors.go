package statestore

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

var (
	// ErrInUse says that another process, or another Store of this one, has the directory open.
	ErrInUse = errors.New("data directory is in use by another process")

	// ErrNewerFormat says that a later version of waterclock wrote the directory (from Open), or a partition,
	// which may be wiped.
	ErrNewerFormat = errors.New("written by a newer version of waterclock")

	// ErrForeignCluster says that the directory belongs to another Kafka cluster.
	ErrForeignCluster = errors.New("data directory belongs to another cluster")

	// ErrForeignDirectory says that the directory holds something other than a store.
	ErrForeignDirectory = errors.New("directory is not a waterclock store")

	// ErrCorrupt says that stored bytes make no sense. Wiping the partition cures it.
	ErrCorrupt = errors.New("store is corrupt")

	// ErrNotOwner says that a Handle was released, or a later one has acquired the partition.
	ErrNotOwner = errors.New("partition was acquired by another owner")

	// ErrPosition rejects a position before the stored one: the same records would be folded twice.
	ErrPosition = errors.New("position lies before the stored one")

	// ErrForeignChangelog says that the partition was folded from another changelog topic. Wiping it cures that.
	ErrForeignChangelog = errors.New("store was folded from another changelog topic")

	// ErrReplayFull says that too much was put into a replay without a Flush.
	ErrReplayFull = errors.New("replay is full, flush it")

	// ErrReplayOver says that a later replay, or a wipe, has ended this one.
	ErrReplayOver = errors.New("replay was ended by a later one or a wipe")

	// ErrID rejects an ID that is empty or longer than 512 bytes.
	ErrID = errors.New("timer ID must have 1 to 512 bytes")

	// ErrTarget rejects the name of a target that is empty or longer than 1,024 bytes.
	ErrTarget = errors.New("name of a target must have 1 to 1024 bytes")

	// ErrReadOnly rejects a change of a store that was opened for reading.
	ErrReadOnly = errors.New("store is read-only")

	// ErrEnded is returned by every call once the store cannot go on. OnFatal was called with the cause,
	// so callers need not log it again.
	ErrEnded = errors.New("store has failed")
	// ErrClosed is returned by everything after Close.
	ErrClosed = errors.New("store is closed")
)

// IsCorrupt reports whether err is about stored bytes that make no sense. Wiping the partition in which
// it was met cures it.
func IsCorrupt(err error) bool {
	return errors.Is(err, ErrCorrupt) || pebble.IsCorruptionError(err)
}

// corrupt makes Pebble's corruption errors wrap ErrCorrupt.
func corrupt(err error) error {
	if !pebble.IsCorruptionError(err) || errors.Is(err, ErrCorrupt) {
		return err
	}
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		return &tableError{info, err}
	}
	return fmt.Errorf("%w: %w", err, ErrCorrupt)
}

// tableError is damage in a table.
type tableError struct {
	info *pebble.DataCorruptionInfo
	err  error // Pebble's, whose text repeats the details
}

func (t *tableError) Error() string {
	return fmt.Sprintf("table %s is damaged: %v", t.info.Path, t.info.Details)
}

func (t *tableError) Unwrap() []error { return []error{t.err, ErrCorrupt} }
