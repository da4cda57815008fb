// Package tracker computes up to which position the requests of one log are planned, while several workers (the
// sub-partitions of package partition) plan them side by side and none waits for another:
//
//	t := tracker.New(workers, position)
//	t.Hand(worker, first, behind) // requests from first on, all below behind, go to a worker
//	t.Planned(worker, position)   // it has planned its requests below a position
//	bound := t.Bound()            // everything below is planned
//
// Offsets with gaps go in, and one contiguous position comes out: the bound.
//
// Requests are handed out in the order of the log, each to the worker of its ID. A worker plans its requests in
// that order. So, for one worker, everything below its first unplanned request is planned. The minimum over all
// workers is the bound.
//
// A step takes no request at or above the bound (package planner). So a stored position never has a gap below
// it, in whatever order the workers finish. The bound only rises: by Planned and, while no worker has unplanned
// requests, by Reach.
package tracker

import "sync"

// Tracker knows the unplanned requests of each worker. It is safe for concurrent use. Make one with [New].
type Tracker struct {
	mu      sync.Mutex // guards the following fields
	end     int64      // every request below it was handed out
	waiting [][]run    // by worker, in the order of the log: handed out and not planned
}

// run is a part of the log that was handed to one worker: its requests in [first, behind). Requests of other
// workers may lie between them. Invariant: first < behind.
type run struct{ first, behind int64 }

// New returns a tracker for a number of workers. Everything below position is planned.
func New(workers int, position int64) *Tracker {
	return &Tracker{end: position, waiting: make([][]run, workers)}
}

// Hand notes that a worker gets its requests from first on, up to behind. Reach follows, when that is noted of every
// worker, and then the workers get them. Otherwise a request could count as planned before its worker has seen it.
func (t *Tracker) Hand(worker int, first, behind int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[worker] = append(t.waiting[worker], run{first, behind})
}

// Reach notes that the log below next is handed out. An offset in no run is a marker or an aborted record.
func (t *Tracker) Reach(next int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = max(t.end, next)
}

// Planned notes that a worker has planned everything below a position that it was handed.
func (t *Tracker) Planned(worker int, position int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.waiting[worker]
	for len(w) > 0 && w[0].behind <= position {
		w = w[1:]
	}
	if len(w) > 0 {
		w[0].first = max(w[0].first, position)
	} else {
		w = nil // frees a list that may have been long
	}
	t.waiting[worker] = w
}

// Bound returns the position below which every request is planned. It never decreases.
func (t *Tracker) Bound() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	bound := t.end
	for _, w := range t.waiting {
		if len(w) > 0 {
			bound = min(bound, w[0].first)
		}
	}
	return bound
}
