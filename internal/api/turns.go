package api

import (
	"context"
	"net/http"

	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/internal/api/access"
)

// logReads is how many calls read logs at a time: each has a consumer of its own, and what it
// has fetched in memory. More wait.
const logReads = 8

// turns are logs of which so many are read at a time.
type turns struct {
	Logs
	free *semaphore.Weighted
}

func newTurns(l Logs) turns { return turns{l, semaphore.NewWeighted(logReads)} }

// Read implements Logs.
func (t turns) Read(ctx context.Context, topic string, spans map[int32][2]int64, fn func(*Record) error) error {
	if t.free.Acquire(ctx, 1) != nil {
		return problem(http.StatusServiceUnavailable, access.ReasonOverloaded, "%d calls read logs on this instance, and no more do at a time: ask again", logReads)
	}
	defer t.free.Release(1)
	return t.Logs.Read(ctx, topic, spans, fn)
}
