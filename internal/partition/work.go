package partition

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// work measures how long the planner of a sub-partition is at work. Its own goroutine plans requests while a lane plans
// firings, and one of them may wait for the other. What overlaps counts once.
type work struct {
	busy  prometheus.Counter
	share float64 // of this planner in busy

	mu      sync.Mutex // guards what follows
	running int
	since   time.Time // when running rose from 0
}

func (w *work) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running++; w.running == 1 {
		w.since = time.Now()
	}
}

func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running--; w.running == 0 {
		w.busy.Add(time.Since(w.since).Seconds() * w.share)
	}
}
