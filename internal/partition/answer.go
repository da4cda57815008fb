package partition

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/query"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// Questions are answered from committed state: planner.Unflushed and planner.Committed have the argument. Any
// goroutine may ask. A question holds up planning only while it looks up an ID, or lists what the store lacks. It reads
// the store without locks. Questions about many timers take turns.
//
// An answer is given only if the partition was live when the answer was ready, and the group, asked after
// that, confirms that this process owns the partition ([membership.Token.Certain]). Then the answer was true at
// that moment. A process that slept through the end of its membership gives no answer. Neither does
// one that was replaced or removed.

// Questions answers them. It is there before the partition is acquired, and between two acquisitions.
type Questions struct {
	*owned
	now atomic.Pointer[answers] // nil: nothing is answered
}

// answers is what is needed to answer, for one life.
type answers struct {
	*owned
	q       *Questions
	handle  *statestore.Handle
	subs    *subPartitions
	decided *decisions
	flush   func(context.Context) // has what is committed stored

	pages  chan struct{} // one slot, for a question that makes a page
	counts chan struct{} // one slot, for a question that counts, which takes longer
	held   held          // by both
	most   int64         // IDs that the store may lack of what one of them reads
}

// open begins to answer questions; close ends that.
func (q *Questions) open(s *served, store *statestore.Handle, flush func(context.Context)) {
	q.now.Store(&answers{
		owned: q.owned, q: q, handle: store, subs: s.subs, decided: newDecisions(), flush: flush,
		pages: make(chan struct{}, 1), counts: make(chan struct{}, 1), held: held{memory: &q.o.Memory}, most: maxUnflushed,
	})
}

func (q *Questions) close() {
	if a := q.now.Swap(nil); a != nil {
		a.decided.end()
		a.held.close()
	}
}

// answering returns what answers now, or why nothing does.
func (q *Questions) answering() (*answers, error) {
	a := q.now.Load()
	switch s, leaving := q.life.Serving(); {
	case leaving, s == ownership.Gone, q.o.Token.Err() != nil:
		return nil, fmt.Errorf("%v: %w", q.life.Requests(), query.ErrMoved)
	case s != ownership.Live:
		is := q.life.Status()
		return nil, fmt.Errorf("%v: %w", q.life.Requests(), &query.NotLiveError{State: s.String(), Since: is.Since, Reason: is.Reason, Failed: s == ownership.Failed})
	case a == nil:
		return nil, fmt.Errorf("%v: %w", q.life.Requests(), &query.NotLiveError{State: ownership.Acquiring.String()})
	}
	return a, nil
}

// still returns err, with which an answer was found, if the answer may be given, and otherwise why not. It
// asks the group: see Token.Certain.
func (a *answers) still(ctx context.Context, err error) error {
	if unsure := a.o.Token.Certain(ctx); unsure != nil {
		return fmt.Errorf("%v: %w: %w", a.life.Requests(), query.ErrMoved, unsure)
	}
	if damaged := statestore.IsCorrupt(err) || errors.Is(err, statestore.ErrNewerFormat); damaged && a.q.now.Load() == a {
		a.life.GiveUp(err) // it is repaired as if the partition itself had met it; a later acquisition meets it by itself
	}
	now, why := a.q.answering()
	switch {
	case why != nil:
		return why
	case now != a:
		return fmt.Errorf("%v was acquired again: %w", a.life.Requests(), query.ErrMoved)
	case errors.Is(err, statestore.ErrNotOwner), errors.Is(err, statestore.ErrClosed):
		return fmt.Errorf("%v: %w", a.life.Requests(), query.ErrMoved)
	}
	return err
}

// Get returns what is pending under an ID, nil for nothing. Errors wrap query.ErrMoved or
// a query.NotLiveError where the partition cannot answer.
func (q *Questions) Get(ctx context.Context, id []byte) (*query.Timer, error) {
	a, err := q.answering()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	committed, parked := a.subs.committed(id), false
	t, known := committed.Find()
	if !known {
		t, parked, err = a.handle.Find(id)
	}
	if err := a.still(ctx, err); err != nil || t == nil {
		return nil, err
	}
	return a.show(t, parked), nil
}

// show returns a timer in the form that questions are answered in.
func (w *owned) show(t *timer.Timer, parked bool) *query.Timer {
	return &query.Timer{
		Timer: t, Topic: w.o.Topics.Request.Name, Partition: w.o.Partition,
		Source: w.source(t.Offset).String(), State: stateOf(t, parked),
	}
}

func stateOf(t *timer.Timer, parked bool) query.State {
	switch {
	case t.IsRemembered():
		return query.Remembered
	case parked:
		return query.Parked
	case t.IsTriggered():
		return query.Triggered
	case t.IsPaused():
		return query.Paused
	}
	return query.Pending
}

// wait takes the one slot that there is.
func wait(ctx context.Context, slot chan struct{}) error {
	select {
	case slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
