package questions

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// readTries is how many times a question is tried if its reading is too large. Before each further try the store is
	// flushed.
	readTries = 3
	// maxUnflushed is how many IDs of a reading the store may lack, however much memory there is. Collecting that many
	// under the locks of all planners takes 0.1 ms, or 2 ms if all are items. Indexing them takes some 20 ms.
	maxUnflushed = 50_000
	// restIDs is how many of them a question goes through between two rests: some 300 µs.
	restIDs = 1000
)

// reading is the input of a question about many timers: a view of the store, and the changes that the store may lack.
// The two together are the committed state of one moment: see planner.Unflushed. Nothing in it changes, and no
// goroutine waits for it to end.
type reading struct {
	view      *statestore.View
	unflushed *planner.Unflushed
	held      *held
	bytes     int64 // taken from held
}

// errTooMuch says that the store lacks more than a question may read.
var errTooMuch = errors.New("too many unflushed changes")

// read calls fn with a reading, in its turn: one question at a time has a slot of turn.
//
// The changes that the store lacks are bounded, in memory (Options.Memory) and in number. If there are more, the store
// is flushed first. Few are left then: neither the timers that came and went, nor the changes that the flush has
// stored.
func (a *answers) read(ctx context.Context, turn chan struct{}, s *Slot, fn func(*reading) error) error {
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-turn }()
	defer s.Give()
	r, err := a.begin(ctx, s)
	if err == nil {
		err = errors.Join(fn(r), r.close())
	}
	// The group may take seconds to answer, and other partitions share the slots. The turn is this partition's own.
	s.Give()
	return a.confirm(ctx, err)
}

func (a *answers) begin(ctx context.Context, s *Slot) (*reading, error) {
	for try := range readTries {
		if try > 0 {
			s.Give()
			a.Flush(ctx)
		}
		if err := s.Take(ctx); err != nil {
			return nil, err
		}
		if r, err := a.tryToBegin(ctx, s); !errors.Is(err, errTooMuch) {
			return r, err
		}
	}
	return nil, fmt.Errorf("%v: %w", a.q.o.Life.Requests(), query.ErrBusy)
}

// tryToBegin opens a view, and then collects the changes as of one later moment. If a flush has ended in between, the
// view is too old, and it begins again.
func (a *answers) tryToBegin(ctx context.Context, s *Slot) (*reading, error) {
	for {
		flushes, n := a.Planners.Lacks()
		if n > a.most {
			return nil, errTooMuch
		}
		r := &reading{unflushed: planner.NewUnflushed(n), held: a.held}
		err := r.hold()
		if err == nil {
			r.view, err = a.Store.View()
		}
		current := err == nil && a.Planners.Collect(r.unflushed, flushes)
		if current {
			if err = r.unflushed.Index(func() error { return errors.Join(r.hold(), s.Rest(ctx)) }); err == nil {
				return r, nil
			}
		}
		if err = errors.Join(err, r.close(), ctx.Err()); err != nil {
			return nil, err
		}
	}
}

// hold takes memory for the growth of the reading.
func (r *reading) hold() error {
	more := r.unflushed.Bytes() - r.bytes
	if !r.held.take(more) {
		return errTooMuch
	}
	r.bytes += more
	return nil
}

func (r *reading) close() error {
	r.held.give(r.bytes)
	if r.view == nil {
		return nil
	}
	return r.view.Close()
}

// each calls fn with the changes that the store may lack, and rests now and then.
func (r *reading) each(ctx context.Context, s *Slot, fn func(timer.Change)) error {
	for i, x := range r.unflushed.All() {
		if i%restIDs == restIDs-1 {
			if err := s.Rest(ctx); err != nil {
				return err
			}
		}
		fn(x)
	}
	return nil
}

// held counts the bytes that the readings and decisions of one acquisition hold. Once the acquisition has ended, the
// account belongs to the next one. Then a question that is still under way no longer changes the account; it will get
// no answer anyway. held is safe for concurrent use.
type held struct {
	memory *budget.Account

	mu     sync.Mutex // guards the following fields; held over calls of memory
	bytes  int64
	closed bool
}

// take takes more bytes, if there is room for them.
func (h *held) take(more int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if more > 0 && h.bytes+more > h.memory.Limit() {
		return false
	}
	h.set(h.bytes + more)
	return true
}

// limit is how many bytes may be held now.
func (h *held) limit() int64 { return h.memory.Limit() }

// give gives bytes back. A negative number takes bytes, even without room.
func (h *held) give(bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set(h.bytes - bytes)
}

func (h *held) set(bytes int64) {
	if h.bytes = bytes; !h.closed {
		h.memory.Set(bytes)
	}
}

// close gives all memory back.
func (h *held) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.memory.Set(0)
}
