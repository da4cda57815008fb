// Package tracker says up to where the requests of one log are planned, while several workers (the
// sub-partitions of package partition) plan them side by side and none waits for another. Offsets with
// gaps go in, one contiguous position comes out: the bound. It is pure; the caller holds a lock.
//
// Requests are handed out in the order of the log, each to the worker of its ID, and a worker plans
// what it was handed in that order. So everything below a worker's first request that it has yet to plan
// is planned, as far as that worker goes. The least of these over all workers is the bound.
//
// A step takes no request at the bound or above (package planner). So a position that is stored never has
// a gap below it, in whatever order the workers finish. The bound only rises: with Planned and, while no worker
// has anything left to plan, with Hand and Pass.
package tracker

// Tracker knows what workers have yet to plan. Make one with [New].
type Tracker struct {
	end     int64   // every request below it was handed out
	waiting [][]Run // by worker, in the order of the log: handed out and not planned
}

// Run is a part of the log that one worker was handed: its requests from First up to, but without,
// Behind. Requests of other workers may lie between them. Invariant: First < Behind. The zero value is
// no run.
type Run struct{ First, Behind int64 }

// New returns a tracker for a number of workers. Everything below position is planned.
func New(workers int, position int64) *Tracker {
	return &Tracker{end: position, waiting: make([][]Run, workers)}
}

// Hand notes that the next piece of the log is handed out, to each worker its run. Call it before any
// worker gets its requests: otherwise one could be taken for planned that another has yet to see.
func (t *Tracker) Hand(byWorker []Run) {
	for w, r := range byWorker {
		if r != (Run{}) {
			t.waiting[w] = append(t.waiting[w], r)
			t.end = max(t.end, r.Behind)
		}
	}
}

// Pass notes that all requests below a position were handed out: what else is there are markers, or records
// that were aborted.
func (t *Tracker) Pass(position int64) { t.end = max(t.end, position) }

// Planned notes that a worker has planned everything below a position that it was handed.
func (t *Tracker) Planned(worker int, position int64) {
	w := t.waiting[worker]
	for len(w) > 0 && w[0].Behind <= position {
		w = w[1:]
	}
	if len(w) > 0 {
		w[0].First = max(w[0].First, position)
	} else {
		w = nil // it may have been long
	}
	t.waiting[worker] = w
}

// Bound is the position below which every request is planned. It never goes back.
func (t *Tracker) Bound() int64 {
	bound := t.end
	for _, w := range t.waiting {
		if len(w) > 0 {
			bound = min(bound, w[0].First)
		}
	}
	return bound
}
