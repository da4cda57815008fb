package partition

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/query"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// Questions are answered from committed state: package planner has the argument. Any goroutine
// may ask. No question holds planning for longer than it takes to look up an
// ID or to take over a list; the store is read without it. Questions
// about many timers take turns, with a bound on the wait.
//
// An answer is given only if the partition was live when the answer was ready, and the group, asked after
// that, confirms that this process owns it ([membership.Token.Certain]): then the answer was true at
// that moment. A process that slept through the end of its membership gives no answer, and neither does
// one that was replaced or removed.

const (
	// overlayKept is for how long the overlay is kept up to date for the next question.
	overlayKept = 30 * time.Second
	// overlayTries is how often it is begun for one question.
	overlayTries = 3
)

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

	count   chan struct{} // one slot, for a question that counts
	turn    chan struct{} // one slot, for the user of the fields below; taken after count
	overlay overlays
	asked   time.Time // when the overlay was last used
}

// open begins to answer questions; close ends that.
func (q *Questions) open(s *served, store *statestore.Handle, flush func(context.Context)) {
	q.now.Store(&answers{
		owned: q.owned, q: q, handle: store, subs: s.subs, decided: newDecisions(), flush: flush,
		overlay: overlays{subs: s.subs, of: make([]planner.Overlay, len(s.subs.all))}, count: make(chan struct{}, 1), turn: make(chan struct{}, 1),
	})
}

func (q *Questions) close() {
	if a := q.now.Swap(nil); a != nil {
		a.decided.end()
		a.overlay.close()
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

// many calls fn with a view of the store, while the overlay completes the view to what is committed;
// only one caller at a time can do that. Then it calls scan, unless that is nil, with the view alone,
// which may take long.
func (a *answers) many(ctx context.Context, s *slot, fn, scan func(*statestore.View) error) error {
	defer s.give()
	v, err := a.overlaid(ctx, s, fn)
	if err == nil && scan != nil {
		err = scan(v)
	}
	if v != nil {
		err = errors.Join(err, v.Close())
	}
	return a.still(ctx, err)
}

// overlaid makes a view and has fn called with it.
func (a *answers) overlaid(ctx context.Context, s *slot, fn func(*statestore.View) error) (*statestore.View, error) {
	if err := wait(ctx, a.turn); err != nil {
		return nil, err
	}
	defer func() { <-a.turn }()
	if err := s.take(ctx); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		v, err := a.view()
		if err != nil {
			return nil, err
		}
		if v != nil {
			return v, fn(v)
		}
		if try == overlayTries {
			return nil, fmt.Errorf("%v: %w", a.life.Requests(), query.ErrBusy)
		}
		if try > 0 { // what the store lacks is more than there is room for
			s.give()
			a.flush(ctx)
			if err := s.take(ctx); err != nil {
				return nil, err
			}
		}
		if err := a.begin(ctx); err != nil {
			return nil, err
		}
	}
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

// view makes a view of the store, and then brings the overlay up to date; nil if the
// overlay is to be begun.
func (a *answers) view() (*statestore.View, error) {
	a.overlay.look()
	v, err := a.handle.View()
	if err != nil {
		return nil, err
	}
	if !a.overlay.take() {
		return nil, v.Close()
	}
	a.asked = time.Now()
	return v, nil
}

// begin begins the overlay.
func (a *answers) begin(ctx context.Context) error {
	err := a.overlay.begin(ctx)
	a.asked = time.Now()
	return err
}

// lapse ends an overlay that nobody has used for long.
func (q *Questions) lapse() {
	a := q.now.Load()
	if a == nil {
		return
	}
	select {
	case a.turn <- struct{}{}:
		if !a.asked.IsZero() && time.Since(a.asked) > overlayKept {
			a.overlay.end()
			a.asked = time.Time{}
		}
		<-a.turn
	default:
	}
}
