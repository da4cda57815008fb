package partition

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/query"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// maxDecisions is how many decisions are remembered, the newest ones, and
	// maxDecisionBytes how many bytes the timers hold that they left.
	maxDecisions     = 8192
	maxDecisionBytes = 8 << 20
)

// decisions are what became of requests, remembered while somebody watches. Who writes a
// request watches from before: it may be decided before the write is acknowledged, which
// tells the offset. That is why a step looks at watched behind its commit: a request that
// is written once somebody watches is committed later still, and its step finds it so.
//
// A decision is told when the planner knows that it is committed: whoever has heard of it
// and asks what is pending is answered from there on.
type decisions struct {
	watched atomic.Int32 // watchers
	gone    chan struct{}

	mu       sync.Mutex // guards what follows; locks of subs are taken behind it
	ended    bool       // gone is closed
	position int64      // just behind the last request that is decided
	list     []decided  // by offset
	bytes    int64      // of their timers
	waiting  map[int64][]chan decided
}

// decided is what became of the request at an offset.
type decided struct {
	offset  int64
	outcome timer.Outcome
	why     *planner.Refusal
	left    *timer.Timer
}

func newDecisions() *decisions {
	return &decisions{gone: make(chan struct{}), waiting: make(map[int64][]chan decided)}
}

// Watcher tells what becomes of requests that are written while there is one.
type Watcher struct {
	a      *answers
	closed atomic.Bool
}

// Watch begins to watch. It comes before a request is written, and Close when all is
// known. Errors are those of Get.
func (q *Questions) Watch() (*Watcher, error) {
	a, err := q.answering()
	if err != nil {
		return nil, err
	}
	d := a.decided
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched.Add(1) == 1 { // first: a step that does not see it is in the position
		d.position = a.subs.position()
		d.list, d.bytes = nil, 0
	}
	return &Watcher{a: a}, nil
}

// Close ends it. It may be called again.
func (w *Watcher) Close() {
	if w.closed.Swap(true) {
		return
	}
	d := w.a.decided
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched.Add(-1) == 0 {
		d.list, d.bytes = nil, 0
	}
}

// Decision waits until the request at an offset is decided, and that is committed. Errors
// wrap query.ErrMoved if that is not to be known here any more, query.ErrForgotten if it
// is not known, or the error of ctx.
func (w *Watcher) Decision(ctx context.Context, offset int64) (query.Decision, error) {
	d := w.a.decided
	x, wait, err := d.find(offset)
	if wait != nil {
		defer d.forget(offset, wait)
		x, err = d.wait(ctx, wait)
	}
	if err != nil {
		return query.Decision{}, fmt.Errorf("decision of %v, offset %d: %w", w.a.life.Requests(), offset, err)
	}
	q := query.Decision{Outcome: string(eventTypes[x.outcome])}
	if x.why != nil {
		q.Reason, q.Detail = x.why.Reason, x.why.Detail
	}
	if x.left != nil {
		q.Pending = w.a.show(x.left, false)
	}
	return q, nil
}

func (d *decisions) wait(ctx context.Context, told chan decided) (x decided, err error) {
	known := true
	select {
	case x, known = <-told:
	case <-d.gone:
		select { // it may have been in the last step
		case x, known = <-told:
		default:
			return x, query.ErrMoved
		}
	case <-ctx.Done():
		return x, ctx.Err()
	}
	if !known { // no request of its own stands there
		return x, query.ErrForgotten
	}
	return x, nil
}

// find returns the decision, or where it will be told.
func (d *decisions) find(offset int64) (x decided, wait chan decided, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, found := slices.BinarySearchFunc(d.list, offset, func(x decided, at int64) int { return cmp.Compare(x.offset, at) })
	switch {
	case found:
		return d.list[i], nil, nil
	case offset < d.position:
		return x, nil, query.ErrForgotten
	case d.ended:
		return x, nil, query.ErrMoved
	}
	wait = make(chan decided, 1)
	d.waiting[offset] = append(d.waiting[offset], wait)
	return x, wait, nil
}

// forget takes out one who does not wait any more.
func (d *decisions) forget(offset int64, wait chan decided) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.DeleteFunc(d.waiting[offset], func(w chan decided) bool { return w == wait })
	if d.waiting[offset] = all; len(all) == 0 {
		delete(d.waiting, offset)
	}
}

// decide has those told who wait for requests of a step that is committed.
func (q *Questions) decide(step *planner.Step) {
	if a := q.now.Load(); a != nil && a.decided.watched.Load() > 0 {
		a.decided.add(step)
	}
}

func (d *decisions) add(step *planner.Step) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if step.Requests().Entries > 0 {
		before := len(d.list)
		for e := range step.Entries() {
			if e.Firing() {
				continue
			}
			x := decided{offset: e.Request, outcome: e.Result(), why: e.Refusal, left: e.After}
			d.list = append(d.list, x)
			d.bytes += x.bytes()
			for _, wait := range d.waiting[x.offset] {
				wait <- x
			}
			delete(d.waiting, x.offset)
		}
		slices.SortFunc(d.list[before:], func(a, b decided) int { return cmp.Compare(a.offset, b.offset) })
	}
	d.position = max(d.position, step.Position)
	d.trim()
	for offset, all := range d.waiting {
		if offset < d.position {
			for _, wait := range all {
				close(wait)
			}
			delete(d.waiting, offset)
		}
	}
}

// trim forgets the oldest.
func (d *decisions) trim() {
	n := 0
	for ; len(d.list)-n > maxDecisions || d.bytes > maxDecisionBytes && len(d.list)-n > 1; n++ {
		d.bytes -= d.list[n].bytes()
		d.list[n] = decided{} // its place goes when the list grows
	}
	d.list = d.list[n:]
}

func (x *decided) bytes() int64 {
	if x.left == nil {
		return 0
	}
	return planner.Held(x.left)
}

// end has all told who wait that nothing more is decided here.
func (d *decisions) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	close(d.gone)
}
