package partition

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/query"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// Questions are answered from committed state: planner.Unflushed and planner.Committed have the argument. Any
// goroutine may ask. A question holds up planning only while it looks up an ID, or notes what the store lacks, which
// takes microseconds. It does everything else without locks. Questions about many timers take turns, and rest as long
// as they run.
//
// A consumer may see a step before this process hears that it is committed. So a question that meets a step between its fence
// and its outcome waits for the outcome. A step whose EndTxn is sent later was not seen by anybody before the question. If the
// outcome cannot be found out, nothing is answered until the partition is acquired again.
//
// An answer is given only if the partition was live when the answer was ready, and the group, asked after
// that, confirms that this process owns the partition ([membership.Token.Certain]). Then the answer was true at
// that moment. A process that slept through the end of its membership gives no answer. Neither does
// one that was replaced or removed.

// doubtLimit is how long a question waits for the outcome of a step, as long as for the group's word.
const doubtLimit = 3 * time.Second

// Questions answers them. It is there before the partition is acquired, and between two acquisitions.
type Questions struct {
	*owned
	now    atomic.Pointer[answers]       // nil: nothing is answered
	ending atomic.Pointer[chan struct{}] // closed with the outcome of the step that may be committed already; nil: there is none
}

// answers is what one life needs to answer questions.
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
	most   int           // IDs that the store may lack of what one of them reads
}

// open begins to answer questions; close ends that.
func (q *Questions) open(s *served, store *statestore.Handle, flush func(context.Context)) {
	q.ended() // a step of the former life whose outcome nobody could tell
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

// ends notes that the lane is about to commit a step. The first call of ended notes its outcome, which the planners know by then.
func (q *Questions) ends() {
	outcome := make(chan struct{})
	q.ending.Store(&outcome)
}

func (q *Questions) ended() {
	if outcome := q.ending.Swap(nil); outcome != nil {
		close(*outcome)
	}
}

// begin returns what answers a question, once every step that a consumer may have seen is part of the answer.
func (q *Questions) begin(ctx context.Context) (*answers, error) {
	a, err := q.answering()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	outcome := q.ending.Load()
	if outcome == nil {
		return a, nil
	}
	ctx, cancel := context.WithTimeout(ctx, doubtLimit)
	defer cancel()
	select {
	case <-*outcome:
		return a, nil
	case <-a.decided.gone:
		return nil, fmt.Errorf("%v: %w", q.life.Requests(), query.ErrMoved)
	case <-ctx.Done():
		return nil, fmt.Errorf("%v: %w: %w", q.life.Requests(), query.ErrInDoubt, ctx.Err())
	}
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

// Get returns what is pending under an ID, nil for nothing. Errors wrap query.ErrMoved, query.ErrInDoubt or
// a query.NotLiveError if the partition cannot answer.
func (q *Questions) Get(ctx context.Context, id []byte) (*query.Timer, error) {
	a, err := q.begin(ctx)
	if err != nil {
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

// show returns a timer in the form in which questions are answered.
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

// wait takes the only slot.
func wait(ctx context.Context, slot chan struct{}) error {
	select {
	case slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
