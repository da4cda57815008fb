package questions

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/query"
	"github.com/waterclock/waterclock/internal/wire"
)

// Watcher reports the outcomes of requests that are written while it watches. It may outlive the acquisition, so it holds
// nothing of it but the decisions.
type Watcher struct {
	q       *Questions
	decided *decisions
	closed  atomic.Bool
}

// Watch begins to watch. Call it before a request is written, and Close once the outcome is known. Errors are those of
// Get.
func (q *Questions) Watch() (*Watcher, error) {
	a, err := q.answering()
	if err != nil {
		return nil, err
	}
	d := a.decided
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched.Add(1) == 1 { // the first watcher: steps that ended before it are below this position
		d.position = a.Planners.Position()
		d.list, d.bytes = nil, 0
	}
	return &Watcher{q: q, decided: d}, nil
}

// Close stops watching. It may be called again.
func (w *Watcher) Close() {
	if w.closed.Swap(true) {
		return
	}
	d := w.decided
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched.Add(-1) == 0 {
		d.list, d.bytes = nil, 0
	}
}

// Decision waits until the decision about the request at an offset is committed. Errors wrap query.ErrMoved if this
// instance cannot know it any more, query.ErrForgotten if it does not remember it, or the error of ctx.
func (w *Watcher) Decision(ctx context.Context, offset int64) (query.Decision, error) {
	d := w.decided
	x, wait, err := d.find(offset)
	if wait != nil {
		defer d.forget(offset, wait)
		x, err = d.wait(ctx, wait)
	}
	if err != nil {
		return query.Decision{}, fmt.Errorf("decision of %v, offset %d: %w", w.q.o.Life.Requests(), offset, err)
	}
	q := query.Decision{Outcome: string(wire.EventTypeOf(x.outcome))}
	if x.why != nil {
		q.Reason, q.Detail = x.why.Reason, x.why.Detail
	}
	if x.left != nil {
		q.Pending = w.q.show(x.left, false)
	}
	return q, nil
}

// Decide reports the decisions of a committed step to the watchers.
func (q *Questions) Decide(step *planner.Step) {
	if a := q.current.Load(); a != nil && a.decided.watched.Load() > 0 {
		a.decided.add(step)
	}
}
