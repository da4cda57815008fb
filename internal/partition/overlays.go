package partition

import (
	"context"
	"iter"
	"maps"
	"sync"

	"github.com/waterclock/waterclock/internal/planner"
)

// overlays are one planner.Overlay for each sub. take takes over the steps that were committed with all
// locks held, so each step is in them whole or not at all. One goroutine at a time uses them.
//
// They have a share of the memory (Memory.Overlay). Overlays that would take more are ended. A checkpoint of
// the store is written before they are begun again (answers.begin), so they begin small: without the timers
// that came and went, and without what the checkpoint has stored.
type overlays struct {
	subs *subPartitions
	of   []planner.Overlay // by sub

	mu     sync.Mutex // guards closed; held over Memory.Overlay.Set
	closed bool       // the acquisition has ended, and the memory belongs to the next one
}

// hold tells the budget how many bytes they hold.
func (o *overlays) hold(bytes int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.subs.o.Memory.Overlay.Set(bytes)
	}
}

// close gives their memory back at the end of an acquisition. A question may still use them: it is about to find out
// that it has no answer, and changes the budget no more. It is safe for all.
func (o *overlays) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.subs.o.Memory.Overlay.Set(0)
}

// begin begins them one by one. What steps change meanwhile is in the planners' lists for take.
func (o *overlays) begin(ctx context.Context) error {
	most := o.subs.o.Memory.Overlay.Limit() / int64(len(o.of))
	for i, s := range o.subs.all {
		over := &o.of[i]
		s.mu.Lock()
		n := s.planner.Changed()
		s.mu.Unlock()
		room := make([]*planner.Item, 0, n+n/8+1000)
		s.mu.Lock()
		over.Begin(s.planner, room, most)
		s.mu.Unlock()
		for done := false; !done; {
			if err := ctx.Err(); err != nil {
				o.end()
				return err
			}
			s.mu.Lock()
			done = over.Copy(s.planner)
			s.mu.Unlock()
			over.Put()
		}
	}
	return nil
}

func (o *overlays) end() {
	o.subs.ask(func(s *subPartition) { o.of[s.number].End(s.planner) })
	o.hold(0)
}

// look notes what the store has by now. Make the view of it behind this call.
func (o *overlays) look() { o.subs.ask(func(s *subPartition) { o.of[s.number].Look(s.planner) }) }

// take takes over what was committed up to now. It reports whether the overlays are whole and not too
// large. If not they have ended, and are to be begun again.
func (o *overlays) take() (whole bool) {
	whole = true
	o.subs.lock()
	for i, x := range o.subs.planners {
		whole = o.of[i].Take(x) && whole
	}
	o.subs.unlock()
	if !whole {
		o.end()
		return false
	}
	var bytes int64
	for i := range o.of {
		o.of[i].Settle()
		bytes += o.of[i].Bytes()
	}
	o.hold(bytes)
	return true
}

// size is how many IDs they have.
func (o *overlays) size() (n int) {
	for i := range o.of {
		n += len(o.of[i].All())
	}
	return n
}

// all are the IDs that something is known of here. Do not keep them.
func (o *overlays) all() iter.Seq[planner.Known] {
	return func(yield func(planner.Known) bool) {
		for i := range o.of {
			for _, x := range o.of[i].All() {
				if !yield(x) {
					return
				}
			}
		}
	}
}

// ids returns the same IDs, valid until take. Clone them to keep them.
func (o *overlays) ids() ids {
	all := ids{subs: o.subs, of: make([]planner.IDs, len(o.of))}
	for i := range o.of {
		all.of[i] = o.of[i].IDs()
	}
	return all
}

// ids are IDs that the store is not the truth about. The zero value has none.
type ids struct {
	subs *subPartitions
	of   []planner.IDs // by sub
}

func (s ids) clone() ids {
	for i := range s.of {
		s.of[i] = maps.Clone(s.of[i])
	}
	return s
}

func (s ids) none() bool {
	for _, x := range s.of {
		if len(x) > 0 {
			return false
		}
	}
	return true
}

func (s ids) has(id []byte) bool { return !s.none() && s.of[s.subs.of(id).number].Has(id) }
