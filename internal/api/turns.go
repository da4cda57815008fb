package api

import (
	"context"
	"net/http"

	"github.com/waterclock/waterclock/internal/api/access"
)

// logReads is how many calls read logs at a time: each has a consumer of its own, and what it
// has fetched in memory. More wait.
const logReads = 8

// turns are logs of which so many are read at a time.
type turns struct {
	Logs
	taken chan struct{} // capacity logReads
}

func newTurns(l Logs) turns { return turns{l, make(chan struct{}, logReads)} }

// Read implements Logs.
func (t turns) Read(ctx context.Context, topic string, spans map[int32][2]int64, fn func(*Record) error) error {
	select {
	case t.taken <- struct{}{}:
		defer func() { <-t.taken }()
		return t.Logs.Read(ctx, topic, spans, fn)
	case <-ctx.Done():
		return problem(http.StatusServiceUnavailable, access.ReasonOverloaded, "%d calls read logs on this instance, and no more do at a time: ask again", logReads)
	}
}
