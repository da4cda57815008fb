package statestore

import "errors"

var (
	// ErrInUse says that another process, or another Store of this one, has
	// the directory open.
	ErrInUse = errors.New("data directory is in use by another process")

	// ErrNewerFormat says that a later version of waterclock wrote what is
	// there: the directory (from Open) or one partition, which may be wiped.
	ErrNewerFormat = errors.New("written by a newer version of waterclock")

	// ErrForeignCluster says that the directory belongs to another Kafka cluster.
	ErrForeignCluster = errors.New("data directory belongs to another cluster")

	// ErrForeignDirectory says that the directory holds something else than a store.
	ErrForeignDirectory = errors.New("directory is not a waterclock store")

	// ErrCorrupt says that stored bytes make no sense. Wiping the partition
	// cures it.
	ErrCorrupt = errors.New("store is corrupt")

	// ErrNotOwner refuses whoever has lost a partition to a later Handle, or has
	// released it.
	ErrNotOwner = errors.New("partition was acquired by somebody else")

	// ErrPosition refuses a position before the one that is stored: the same
	// records would be folded twice.
	ErrPosition = errors.New("position lies before the stored one")

	// ErrForeignChangelog refuses to go on folding with another changelog
	// topic's records. Wiping the partition cures it.
	ErrForeignChangelog = errors.New("store was folded from another changelog topic")

	// ErrReplayFull says that too much was put into a replay without a Flush.
	ErrReplayFull = errors.New("replay holds too much, flush it")

	// ErrReplayOver refuses a replay that a later one or a wipe has ended.
	ErrReplayOver = errors.New("replay was ended by a later one or a wipe")

	// ErrID refuses an ID that is empty or longer than 512 bytes.
	ErrID = errors.New("timer ID must have 1 to 512 bytes")

	// ErrTarget refuses the name of a target that is empty or longer than 1,024
	// bytes.
	ErrTarget = errors.New("name of a target must have 1 to 1024 bytes")

	// ErrReadOnly refuses changes of a store that was opened to be read.
	ErrReadOnly = errors.New("store is open for reading only")

	// ErrEnded is returned by every call once the store cannot go on. OnFatal was called with the cause,
	// so callers need not log it again.
	ErrEnded = errors.New("store cannot go on")
	// ErrClosed is returned by everything after Close.
	ErrClosed = errors.New("store is closed")
)
