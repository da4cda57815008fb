package api

import (
	"context"
	"net/http"

	"github.com/waterclock/waterclock/internal/api/access"
)

const (
	// logReads is how many calls read logs at a time: each has a consumer of its own, and what it
	// has fetched in memory. More wait.
	logReads = 8
	// logReadsEach is how many of them are one caller's.
	logReadsEach = 4
)

// turns are logs of which so many are read at a time.
type turns struct {
	Logs
	free *access.Pool
}

func newTurns(l Logs) turns {
	return turns{l, access.NewPool(logReads, logReadsEach, readTimeout)}
}

// Read implements Logs.
func (t turns) Read(ctx context.Context, topic string, spans map[int32][2]int64, fn func(*Record) error) error {
	turn := t.free.Take(ctx, 1, nil)
	if turn == nil {
		return problem(http.StatusServiceUnavailable, access.ReasonOverloaded, "%d calls read logs on this instance, %d of them one caller's, and no more do at a time: ask again", logReads, logReadsEach)
	}
	defer turn.Release()
	return t.Logs.Read(ctx, topic, spans, fn)
}
