package partition

import (
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/planner"
)

// handover is how the lane gives committed steps to the goroutine that keeps the store, in order. The lane puts a step
// here before another share may be sealed. So once no share is out and idle holds, all that is committed is applied.
type handover struct {
	mu       sync.Mutex // guards what follows
	changed  *sync.Cond // a step was applied
	jobs     []*job
	applying bool // the one that next returned last
}

func newHandover() *handover {
	h := new(handover)
	h.changed = sync.NewCond(&h.mu)
	return h
}

func (h *handover) put(j *job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs = append(h.jobs, j)
}

// next takes the first step out, nil if there is none. applied ends it.
func (h *handover) next() *job {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.jobs) == 0 {
		return nil
	}
	j := h.jobs[0]
	h.jobs[0], h.jobs, h.applying = nil, h.jobs[1:], true
	return j
}

// applied notes that the step that next returned is applied. It reports whether the lane was held up until now.
func (h *handover) applied() (wasFull bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.applying = false
	h.changed.Broadcast()
	return len(h.jobs) >= maxUnfolded-1
}

// clear forgets the steps that nobody can apply any more: the store is lost to this life.
func (h *handover) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs, h.applying = nil, false
	h.changed.Broadcast()
}

// full reports whether no more steps are to be sealed for now.
func (h *handover) full() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.jobs) >= maxUnfolded
}

// awaitIdle waits until all steps are applied, or until a moment.
func (h *handover) awaitIdle(until time.Time) {
	deadline := time.AfterFunc(time.Until(until), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.changed.Broadcast()
	})
	defer deadline.Stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	for (len(h.jobs) > 0 || h.applying) && time.Now().Before(until) {
		h.changed.Wait()
	}
}

// job is a committed step that is to be folded into the delta.
type job struct {
	step       *planner.Step
	sealed     int64 // when it was sealed, Unix ms
	committed  int64 // when its commit was answered; not before it was sealed, whatever the clock says
	position   int64 // of the changelog, behind the step
	checkpoint []byte
}
