package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/query"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// readTries is how often a question is tried whose reading is too large. Before each further try the store is flushed.
	readTries = 3
	// maxUnflushed is how many IDs a reading may have that the store lacks, whatever memory there is. They are collected
	// while no planner of the partition, and no lane that asks it, goes on: some 10 ms.
	maxUnflushed = 50_000
)

// reading is what a question about many timers reads: a view of the store, and what the store may lack. The two
// together are what was committed at one moment: see planner.Unflushed. Nothing in it changes, and nobody waits for it
// to end.
type reading struct {
	view      *statestore.View
	unflushed *planner.Unflushed
}

// read calls fn with a reading, in its turn: one question at a time has a slot of turn.
//
// What the store lacks has a share of the memory (Memory.Overlay), and a number. If it would be more, it is flushed first.
// Then little is left: neither the timers that came and went, nor what the flush has stored.
func (a *answers) read(ctx context.Context, turn chan struct{}, s *slot, fn func(*reading) error) error {
	if err := wait(ctx, turn); err != nil {
		return err
	}
	defer func() { <-turn }()
	defer s.give()
	r, err := a.begin(ctx, s)
	if err == nil {
		err = errors.Join(fn(r), r.view.Close())
		a.held.add(-r.unflushed.Bytes())
	}
	return a.still(ctx, err)
}

func (a *answers) begin(ctx context.Context, s *slot) (*reading, error) {
	for try := range readTries {
		if try > 0 {
			s.give()
			a.flush(ctx)
		}
		if err := s.take(ctx); err != nil {
			return nil, err
		}
		if r, err := a.tryToBegin(ctx); r != nil || err != nil {
			return r, err
		}
	}
	return nil, fmt.Errorf("%v: %w", a.life.Requests(), query.ErrBusy)
}

// tryToBegin returns nil if the reading would be too large.
func (a *answers) tryToBegin(ctx context.Context) (*reading, error) {
	for {
		room, flushes := a.held.room(), a.flushes()
		v, err := a.handle.View()
		if err != nil {
			return nil, err
		}
		u, current := a.unflushed(flushes, room)
		if u != nil {
			a.held.add(u.Bytes())
			return &reading{v, u}, nil
		}
		if err := errors.Join(v.Close(), ctx.Err()); err != nil || current {
			return nil, err
		}
	}
}

// unflushed returns what the store may lack, and false if a flush has ended since there had been so many: then the view
// is too old. nil: it would take more bytes than there is room for, or longer than the planners may be locked.
func (a *answers) unflushed(flushes, room int64) (u *planner.Unflushed, current bool) {
	n := a.changed()
	if int64(n) > min(a.most, planner.MaxChanged(room)) {
		return nil, true
	}
	u = planner.NewUnflushed(n + n/8) // some come before all locks are held
	if !a.collect(u, flushes) {
		return nil, false
	}
	if u.Index(); u.Bytes() > room {
		return nil, true
	}
	return u, true
}

func (a *answers) collect(u *planner.Unflushed, flushes int64) (current bool) {
	a.subs.lock()
	defer a.subs.unlock()
	for _, x := range a.subs.planners {
		flushes -= x.Flushes()
	}
	if flushes != 0 {
		return false
	}
	u.Collect(a.subs.planners)
	return true
}

// flushes is how many flushes have ended, of all planners together.
func (a *answers) flushes() (n int64) {
	a.subs.ask(func(s *subPartition) { n += s.planner.Flushes() })
	return n
}

// changed is about how many IDs the store may lack.
func (a *answers) changed() (n int) {
	a.subs.ask(func(s *subPartition) { n += s.planner.Changed() })
	return n
}

// held is how many bytes the readings of one acquisition hold. When the acquisition has ended, the account belongs to
// the next one; a question that is still under way is about to find out that it has no answer, and no longer changes
// the account. It is safe for concurrent use.
type held struct {
	memory *Memory

	mu     sync.Mutex // guards what follows; held over calls of memory.Overlay
	bytes  int64
	closed bool
}

// room is how many more bytes there is room for.
func (h *held) room() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.memory.Overlay.Limit() - h.bytes
}

func (h *held) add(bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bytes += bytes; !h.closed {
		h.memory.Overlay.Set(h.bytes)
	}
}

// close gives all memory back.
func (h *held) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.memory.Overlay.Set(0)
}
