package partition

import (
	"sync"
	"time"
)

// maxUnapplied is how many committed steps may wait to be applied. At the limit the partition seals nothing.
const maxUnapplied = 8

// handover takes committed steps from the lane to the keeper, in order. The lane puts a step here before another share
// may be sealed. So once no share is out and awaitIdle has returned in time, everything that is committed is applied.
type handover struct {
	mu       sync.Mutex // guards what follows
	changed  *sync.Cond // a step was applied
	steps    []*sealedStep
	applying bool // the step that next returned last is not applied yet
}

func newHandover() *handover {
	h := new(handover)
	h.changed = sync.NewCond(&h.mu)
	return h
}

func (h *handover) put(s *sealedStep) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, s)
}

// next takes the first step out; nil if there is none. The caller applies it and calls applied.
func (h *handover) next() *sealedStep {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.steps) == 0 {
		return nil
	}
	s := h.steps[0]
	h.steps[0], h.steps, h.applying = nil, h.steps[1:], true
	return s
}

// applied notes that the step that next returned is applied. It reports whether the lane was held up until now.
func (h *handover) applied() (wasFull bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.applying = false
	h.changed.Broadcast()
	return len(h.steps) >= maxUnapplied-1
}

// clear drops the steps that cannot be applied any more, at the end of an acquisition.
func (h *handover) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps, h.applying = nil, false
	h.changed.Broadcast()
}

// full reports whether nothing may be sealed for now.
func (h *handover) full() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.steps) >= maxUnapplied
}

// awaitIdle waits until all steps are applied, or until the given time.
func (h *handover) awaitIdle(until time.Time) {
	deadline := time.AfterFunc(time.Until(until), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.changed.Broadcast()
	})
	defer deadline.Stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	for (len(h.steps) > 0 || h.applying) && time.Now().Before(until) {
		h.changed.Wait()
	}
}
