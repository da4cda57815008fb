package partlog

import (
	"errors"
	"fmt"
	"time"
)

// Log names one partition of one incarnation of a topic.
type Log struct {
	Topic string
	// ID is the topic's UUID. If a topic of that name has another ID, it was recreated, and this one is reported as
	// gone. With a zero ID, the first look-up by name determines the ID.
	ID        [16]byte
	Partition int32
}

// String returns "topic/partition".
func (l Log) String() string { return fmt.Sprintf("%s/%d", l.Topic, l.Partition) }

// Errors that a Reader returns wrap these where callers branch on them.
var (
	// ErrOutOfRange says that the position is below the log's start (its records are lost to retention or
	// DeleteRecords) or beyond its end (the log was truncated or is another one). It is always an *OutOfRangeError.
	ErrOutOfRange = errors.New("position is not in the log")

	// ErrTopicGone says that the topic, or this incarnation of it, has not existed for goneAfter.
	ErrTopicGone = errors.New("topic is gone")
)

// OutOfRangeError has the bounds of the log. The Reader's position has not moved.
type OutOfRangeError struct {
	Log      Log
	Position int64 // the offset that was asked for
	LogStart int64 // the first offset of the log
	End      int64 // the high watermark
}

func (o *OutOfRangeError) Error() string {
	return fmt.Sprintf("read %v at %d: %v, which holds [%d, %d)", o.Log, o.Position, ErrOutOfRange, o.LogStart, o.End)
}

// Is reports whether target is ErrOutOfRange.
func (o *OutOfRangeError) Is(target error) bool { return target == ErrOutOfRange }

const (
	// MaxBytes bounds one fetch of a new Reader, in bytes. A single batch that is larger is still returned (KIP-74).
	MaxBytes = 4 << 20
	// goneAfter is how long the brokers must have denied knowing the topic before it counts as gone, see SetGoneAfter:
	// a broker that has just started, or is behind in its metadata, denies topics that exist.
	goneAfter = 10 * time.Second
	// backoffMin and backoffMax bound the wait before a retry; it doubles from the first to the second.
	backoffMin, backoffMax = 20 * time.Millisecond, time.Second
	// CutAfter is how long a log must look as if it had lost its end until that counts: see the package comment.
	CutAfter = 5 * time.Second
)
