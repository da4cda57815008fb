package partlog

import (
	"errors"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// Log names one partition of one incarnation of a topic.
type Log struct {
	Topic string
	// ID is the topic's UUID. If a topic of that name has another ID, it was
	// recreated, and this one is reported as gone. With a zero ID, the first
	// look-up by name determines the ID.
	ID        [16]byte
	Partition int32
}

// String returns "topic/partition".
func (t Log) String() string { return fmt.Sprintf("%s/%d", t.Topic, t.Partition) }

// partition names the log without its incarnation.
func (t Log) partition() timer.TopicPartition {
	return timer.TopicPartition{Topic: t.Topic, Partition: t.Partition}
}

// Errors that a Reader returns wrap these where callers branch on them.
var (
	// ErrOutOfRange says that the position is below the log's start (its
	// records are lost to retention or DeleteRecords) or beyond its end (the
	// log was truncated or is another one). It is always an *OutOfRangeError.
	ErrOutOfRange = errors.New("position is not in the log")

	// ErrTopicGone says that the topic, or this incarnation of it, does not
	// exist, and has not for Limits.GoneAfter. It is always a
	// *TopicGoneError.
	ErrTopicGone = errors.New("topic is gone")
)

// OutOfRangeError has the bounds of the log. The Reader's position has not moved.
type OutOfRangeError struct {
	Log      Log
	Position int64 // the offset that was asked for
	LogStart int64 // the first offset of the log
	End      int64 // the high watermark
}

func (e *OutOfRangeError) Error() string {
	return fmt.Sprintf("read %v at %d: %v, which holds [%d, %d)", e.Log, e.Position, ErrOutOfRange, e.LogStart, e.End)
}

// Is reports whether target is ErrOutOfRange.
func (e *OutOfRangeError) Is(target error) bool { return target == ErrOutOfRange }

// TopicGoneError says how the brokers denied the topic.
type TopicGoneError struct {
	Log Log
	// Found is the UUID of the topic that has the name now, zero if there is none.
	Found [16]byte
	Cause error
}

func (e *TopicGoneError) Error() string {
	if e.Found != ([16]byte{}) {
		return fmt.Sprintf("find %v: %v: the name stands for topic ID %x now, not %x", e.Log, ErrTopicGone, e.Found, e.Log.ID)
	}
	return fmt.Sprintf("find %v: %v: %v", e.Log, ErrTopicGone, e.Cause)
}

// Is reports whether target is ErrTopicGone.
func (e *TopicGoneError) Is(target error) bool { return target == ErrTopicGone }

// Unwrap returns what the broker said.
func (e *TopicGoneError) Unwrap() error { return e.Cause }

// Limits bound one Reader.
type Limits struct {
	// MaxBytes bounds what one fetch asks for, in bytes, from 1. A single
	// batch that is larger is returned nevertheless (KIP-74).
	MaxBytes int32
	// GoneAfter is how long the brokers must have denied knowing the topic
	// before it counts as gone: a broker that has just started, or is behind
	// in its metadata, denies topics that exist.
	GoneAfter time.Duration
	// BackoffMin and BackoffMax bound the wait before an attempt is repeated;
	// it doubles from the first to the second.
	BackoffMin, BackoffMax time.Duration
}

// DefaultLimits returns the limits of a new Reader.
func DefaultLimits() Limits {
	return Limits{
		MaxBytes:   4 << 20,
		GoneAfter:  10 * time.Second,
		BackoffMin: 20 * time.Millisecond,
		BackoffMax: time.Second,
	}
}
