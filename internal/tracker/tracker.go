// Package tracker says up to where the requests of one log are planned, though several
// workers plan them side by side and none waits for another: offsets with gaps in, one
// contiguous position out. It is pure.
//
// Runs of requests are handed out in the order of the log, each to one worker, as a record's ID
// says. A worker plans what it was handed in that order. So of each worker the first request that
// it has yet to plan says it all: below the least of these, over all workers, everything is planned.
// The bound of a step is no higher (package planner), so no gap ever gets into a position that is
// stored, whatever the order in which the workers come to an end.
package tracker

// Tracker knows what workers have yet to plan. Make one with [New].
type Tracker struct {
	end     int64   // every request below was handed out
	waiting [][]Run // by worker, in the order of the log
}

// Run is a run of requests for one worker, from the one at First to the one just before Behind.
// Those of others may lie between. Invariant: First < Behind; the zero value is no run.
type Run struct{ First, Behind int64 }

// New returns a tracker of so many workers, who have planned what lies below a position.
func New(workers int, position int64) *Tracker {
	return &Tracker{end: position, waiting: make([][]Run, workers)}
}

// Hand notes that a piece of the log is handed out: to each worker its run, before any of them may plan
// some of it. What is handed out later lies behind all of it.
func (t *Tracker) Hand(byWorker []Run) {
	for w, r := range byWorker {
		if r != (Run{}) {
			t.waiting[w] = append(t.waiting[w], r)
			t.end = max(t.end, r.Behind)
		}
	}
}

// Pass notes that there is no request below a position but those that were handed out.
func (t *Tracker) Pass(position int64) { t.end = max(t.end, position) }

// Planned notes that a worker has planned all that it was handed below a position.
func (t *Tracker) Planned(worker int, position int64) {
	w := t.waiting[worker]
	for len(w) > 0 && w[0].Behind <= position {
		w = w[1:]
	}
	if len(w) > 0 {
		w[0].First = max(w[0].First, position)
	} else {
		w = nil // not to hold on to what was long once
	}
	t.waiting[worker] = w
}

// Bound is the position below which everything is planned that was handed out. It never goes back.
func (t *Tracker) Bound() int64 {
	bound := t.end
	for _, w := range t.waiting {
		if len(w) > 0 {
			bound = min(bound, w[0].First)
		}
	}
	return bound
}
