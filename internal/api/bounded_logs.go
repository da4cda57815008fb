package api

import (
	"context"
	"net/http"
	"time"

	"github.com/waterclock/waterclock/internal/api/access"
)

const (
	// logReads is how many calls read logs at a time. Each has its own consumer, and keeps fetched records
	// in memory. Further calls wait.
	logReads = 8
	// logReadsEach is how many of them one caller may have.
	logReadsEach = 4
)

// boundedLogs are Logs that only a bounded number of calls read at a time. Errors of the logs are
// *logError.
type boundedLogs struct {
	Logs
	free *access.Pool
}

func newBoundedLogs(l Logs) boundedLogs {
	return boundedLogs{l, access.NewPool(logReads, logReadsEach, readTimeout)}
}

// logError says that a log cannot be read now.
type logError struct{ error }

func (l *logError) Unwrap() error { return l.error }

// Bounds implements Logs.
func (b boundedLogs) Bounds(ctx context.Context, topic string) (map[int32][2]int64, error) {
	bounds, err := b.Logs.Bounds(ctx, topic)
	if err != nil {
		return nil, &logError{err}
	}
	return bounds, nil
}

// Since implements Logs.
func (b boundedLogs) Since(ctx context.Context, topic string, at time.Time) (map[int32]int64, error) {
	offsets, err := b.Logs.Since(ctx, topic, at)
	if err != nil {
		return nil, &logError{err}
	}
	return offsets, nil
}

// Read implements Logs. An error of fn is returned as it is.
func (b boundedLogs) Read(ctx context.Context, topic string, spans map[int32][2]int64, fn func(*Record) error) error {
	turn := b.free.Acquire(ctx, 1)
	if turn == nil {
		return problem(http.StatusServiceUnavailable, access.ReasonOverloaded,
			"%d calls read logs on this instance, %d of them one caller's, and no more do at a time: ask again",
			logReads, logReadsEach)
	}
	defer turn.Release()
	var stopped error
	err := b.Logs.Read(ctx, topic, spans, func(r *Record) error {
		r.Time = instantOf(r.Time.UnixMilli()) // it is the producer's, perhaps one that JSON does not have
		stopped = fn(r)
		return stopped
	})
	if err != nil && stopped == nil {
		return &logError{err}
	}
	return err
}
