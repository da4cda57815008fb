package questions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

const (
	// maxDecisions is how many decisions are remembered. maxDecisionBytes bounds the timers that they left pending and
	// the details of those that were rejected. All of it counts in the partition's account of memory for questions, and
	// takes half of that at most: there may be many partitions. The oldest are forgotten first.
	maxDecisions     = 8192
	maxDecisionBytes = 8 << 20
	// decidedMemory is the memory that a decision takes besides that.
	decidedMemory = 64
)

// decisions are the outcomes of requests, remembered while there is a watcher. A caller begins to watch before it
// writes a request, because the request may be decided before the acknowledgement tells its offset. watched is read
// after each commit. A request that is written after Watch is committed later still, so its step finds the watcher.
//
// A decision is reported once the planner knows that it is committed. So a caller that has heard of it, and then asks
// the pending timer, gets an answer from that state or a later one.
type decisions struct {
	watched atomic.Int32 // watchers
	gone    chan struct{}
	call    func() // tells the lanes that a caller waits for the decision about a planned request

	mu       sync.Mutex // guards the following fields; its holder may take locks of planners
	ended    bool       // gone is closed
	position int64      // just behind the last decided request
	planned  int64      // requests below are planned, as far as there were watchers
	list     []decided  // by offset
	bytes    int64      // of memory that they hold; counted is the part that is in held
	counted  int64
	held     *held
	waiting  map[int64][]chan decided
}

// decided is the outcome of the request at an offset.
type decided struct {
	offset  int64
	outcome timer.Outcome
	why     *timer.Refusal
	left    *timer.Timer
}

func newDecisions(h *held, call func()) *decisions {
	return &decisions{gone: make(chan struct{}), call: call, waiting: make(map[int64][]chan decided), held: h}
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
	if !known { // there is no request at that offset
		return x, query.ErrForgotten
	}
	return x, nil
}

// find returns the decision, or a channel that will carry it.
func (d *decisions) find(offset int64) (x decided, wait chan decided, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, found := slices.BinarySearchFunc(d.list, offset,
		func(x decided, at int64) int { return cmp.Compare(x.offset, at) })
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
	if offset < d.planned {
		d.call()
	}
	return x, wait, nil
}

// plannedTo notes that all requests below an offset are planned. A caller may begin to wait before or after that.
func (d *decisions) plannedTo(bound int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for offset := range d.waiting {
		if d.planned <= offset && offset < bound {
			d.call()
			break
		}
	}
	d.planned = max(d.planned, bound)
}

// forget removes a channel on which nothing waits any more.
func (d *decisions) forget(offset int64, wait chan decided) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.DeleteFunc(d.waiting[offset], func(w chan decided) bool { return w == wait })
	if d.waiting[offset] = all; len(all) == 0 {
		delete(d.waiting, offset)
	}
}

// add takes the decisions of a committed step, and reports them to the callers that wait. It returns how many these
// are.
func (d *decisions) add(step *planner.Step) (calls int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched.Load() == 0 { // the last watcher has left since, and the next one begins with an empty list
		return 0
	}
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
				calls++
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
	return calls
}

// trim forgets the oldest decisions.
func (d *decisions) trim() {
	n := 0
	for ; len(d.list)-n > maxDecisions || d.bytes > d.limit() && len(d.list)-n > 1; n++ {
		d.bytes -= d.list[n].bytes()
		d.list[n] = decided{} // its slot is freed when the list grows
	}
	d.list = d.list[n:]
	d.account()
}

// limit is how many bytes the decisions may hold now.
func (d *decisions) limit() int64 { return min(maxDecisionBytes, d.held.limit()/2) }

// account counts the memory that the decisions hold.
func (d *decisions) account() {
	d.held.give(d.counted - d.bytes)
	d.counted = d.bytes
}

// clear forgets all decisions.
func (d *decisions) clear() {
	d.list, d.bytes = nil, 0
	d.account()
}

func (d *decided) bytes() int64 {
	n := int64(decidedMemory)
	if d.why != nil {
		n += int64(len(d.why.Reason) + len(d.why.Detail))
	}
	if d.left != nil {
		n += planner.Held(d.left)
	}
	return n
}

// end tells all watchers that nothing more is decided here.
func (d *decisions) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	close(d.gone)
}

// Watcher reports the outcomes of requests that are written while it watches. It may outlive the acquisition, so it
// holds nothing of it but the decisions.
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
		d.clear()
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
		d.clear()
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
		q.Pending = w.q.show(x.left, "")
	}
	return q, nil
}

// Planned notes that all requests below an offset are planned.
func (q *Questions) Planned(bound int64) {
	if a := q.current.Load(); a != nil && a.decided.watched.Load() > 0 {
		a.decided.plannedTo(bound)
	}
}

// Decide reports the decisions of a committed step to the watchers. It returns how many callers waited for them.
func (q *Questions) Decide(step *planner.Step) (calls int) {
	if a := q.current.Load(); a != nil && a.decided.watched.Load() > 0 {
		calls = a.decided.add(step)
	}
	return calls
}
