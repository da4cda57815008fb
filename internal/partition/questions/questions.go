// Package questions answers questions about one owned partition's pending timers and about the outcome of requests:
//
//	q := questions.New(questions.Options{…})
//	q.Open(acquisition)      // until q.Close
//	t, err := q.Get(ctx, id) // also List, Count and, for outcomes, Watch
//
// Package partition opens [Questions] at each acquisition, reports steps to it, and closes it. Any goroutine may ask.
//
// Everything is answered from committed state: planner.Unflushed and planner.Committed have the argument. A question
// holds up planning only while it looks up an ID, or notes the changes that the store lacks, which takes microseconds.
// It does everything else without locks. Questions about many timers take turns, and rest as long as they run.
//
// A consumer may see a step before this process hears that it is committed. So a question that meets a step between its
// fence and its outcome waits for the outcome. No consumer can have seen a step whose EndTxn is sent later. If the
// outcome cannot be found out, nothing is answered until the partition is acquired again.
//
// An answer is given only if the partition was live when the answer was ready, and the group, asked after
// that, confirms that this process owns the partition ([Life.Certain]). Then the answer was true at
// that moment. A process that slept through the end of its membership gives no answer. Neither does
// one that was replaced or removed.
package questions

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/statestore"
)

// doubtLimit is how long a question waits for the outcome of a step. Package membership waits as long for the group.
const doubtLimit = 3 * time.Second

// Options are needed from the first to the last acquisition of a partition.
type Options struct {
	Life   Life
	Source func(generation int64) waterclock.Source // names the record that a generation comes from
	Scans  *semaphore.Weighted                      // limits questions about many timers; nil: no limit
	Memory *budget.Account                          // for unflushed changes, read by questions about many timers
	Call   func()                                   // a caller waits for the decision about a planned request
}

// Life is the part of [ownership.Life] that questions need.
type Life interface {
	Requests() partlog.Log
	Serving() (s ownership.State, owned bool)
	Certain(ctx context.Context) error
	Status() ownership.Status
	GiveUp(err error)
}

var _ Life = (*ownership.Life)(nil)

// Acquisition has the parts of one acquisition that questions need.
type Acquisition struct {
	Planners Planners
	Store    *statestore.Handle
	Flush    func(context.Context) // stores everything that is committed
}

// Planners are the planners of the acquisition. Each method takes their locks for as long as it runs. None does I/O.
type Planners interface {
	// Committed returns the timer that is pending under an ID in the committed state, nil if there is none. If known is
	// false the store says so.
	Committed(id []byte) (t *timer.Timer, known bool)
	// Pending is the number of pending timers in the committed state.
	Pending() int64
	// Position is the position of the last committed step.
	Position() int64
	// Lacks is how many flushes have ended, and about how many IDs the store may lack, of all planners together.
	Lacks() (flushes int64, ids int)
	// Collect collects the changes that the store may lack. It returns false if more flushes have ended by now.
	Collect(u *planner.Unflushed, flushes int64) (current bool)
}

// Questions answers questions about one partition, between Open and Close. It exists before the first acquisition, and
// between two.
type Questions struct {
	o       Options
	current atomic.Pointer[answers] // nil: nothing is answered
	// closed when the outcome is known of the step that is being committed; nil: none is
	ending atomic.Pointer[chan struct{}]
}

// answers has everything that answers questions in one acquisition.
type answers struct {
	Acquisition
	q       *Questions
	decided *decisions

	pages  chan struct{} // one slot, for a question that makes a page
	counts chan struct{} // one slot, for a question that counts, which takes longer
	held   *held         // by readings of both kinds, and by decided
	most   int           // how many IDs of a reading the store may lack

	pageRows  int          // maxPageRows
	notBefore atomic.Int64 // Unix ns: until then rare does not scan
}

// New returns Questions that answer nothing before Open.
func New(o Options) *Questions { return &Questions{o: o} }

// Open begins to answer questions; Close ends that.
func (q *Questions) Open(a Acquisition) {
	q.Ended() // releases questions that still wait for a step of the last acquisition
	now := &answers{
		Acquisition: a, q: q, held: &held{memory: q.o.Memory}, most: maxUnflushed, pageRows: maxPageRows,
		pages: make(chan struct{}, 1), counts: make(chan struct{}, 1),
	}
	now.decided = newDecisions(now.held, q.o.Call)
	q.current.Store(now)
}

// Close ends answering, see Open.
func (q *Questions) Close() {
	if a := q.current.Swap(nil); a != nil {
		a.decided.end()
		a.held.close()
	}
}

// IsOpen reports whether an acquisition answers.
func (q *Questions) IsOpen() bool { return q.current.Load() != nil }

// answering returns the present answers, or an error that says why there are none.
func (q *Questions) answering() (*answers, error) {
	a := q.current.Load()
	switch s, owned := q.o.Life.Serving(); {
	case !owned:
		return nil, fmt.Errorf("%v: %w", q.o.Life.Requests(), query.ErrMoved)
	case s != ownership.Live:
		status := q.o.Life.Status()
		return nil, fmt.Errorf("%v: %w", q.o.Life.Requests(),
			&query.NotLiveError{
				State: s.String(), Since: status.Since, Reason: status.Reason, Failed: s == ownership.Failed,
			})
	case a == nil:
		return nil, fmt.Errorf("%v: %w", q.o.Life.Requests(), &query.NotLiveError{State: ownership.Acquiring.String()})
	}
	return a, nil
}

// Ending notes that the lane is about to commit a step. The first call of Ended notes its outcome, which the planners
// know by then.
func (q *Questions) Ending() {
	outcome := make(chan struct{})
	q.ending.Store(&outcome)
}

// Ended ends the wait that Ending began.
func (q *Questions) Ended() {
	if outcome := q.ending.Swap(nil); outcome != nil {
		close(*outcome)
	}
}

// begin returns the present answers, once they include every step that a consumer may have seen.
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
		return nil, fmt.Errorf("%v: %w", q.o.Life.Requests(), query.ErrMoved)
	case <-ctx.Done():
		return nil, fmt.Errorf("%v: %w: %w", q.o.Life.Requests(), query.ErrInDoubt, ctx.Err())
	}
}

// confirm asks the group (Life.Certain) whether an answer may be given. If so, it returns err, with which the answer
// was found; otherwise why not.
func (a *answers) confirm(ctx context.Context, err error) error {
	o := &a.q.o
	if unsure := o.Life.Certain(ctx); unsure != nil {
		return fmt.Errorf("%v: %w: %w", o.Life.Requests(), query.ErrMoved, unsure)
	}
	if damaged := statestore.IsCorrupt(err) || errors.Is(err, statestore.ErrNewerFormat); damaged &&
		a.q.current.Load() == a {
		o.Life.GiveUp(err) // repaired as if the keeper had found it; a later acquisition finds it by itself
	}
	now, why := a.q.answering()
	switch {
	case why != nil:
		return why
	case now != a:
		return fmt.Errorf("%v was acquired again: %w", o.Life.Requests(), query.ErrMoved)
	case errors.Is(err, statestore.ErrNotOwner), errors.Is(err, statestore.ErrClosed):
		return fmt.Errorf("%v: %w", o.Life.Requests(), query.ErrMoved)
	}
	return err
}

// Get returns the timer that is pending under an ID, nil if there is none. Errors wrap query.ErrMoved, query.ErrInDoubt
// or a query.NotLiveError if the partition cannot answer.
func (q *Questions) Get(ctx context.Context, id []byte) (*query.Timer, error) {
	a, err := q.begin(ctx)
	if err != nil {
		return nil, err
	}
	t, known := a.Planners.Committed(id)
	parkedFor := ""
	if !known {
		t, parkedFor, err = a.Store.Find(id)
	}
	if err := a.confirm(ctx, err); err != nil || t == nil {
		return nil, err
	}
	return q.show(t, parkedFor), nil
}

// show returns a timer in the form in which questions are answered.
func (q *Questions) show(t *timer.Timer, parkedFor string) *query.Timer {
	requests := q.o.Life.Requests()
	return &query.Timer{
		Timer: t, Topic: requests.Topic, Partition: requests.Partition,
		Source: q.o.Source(t.Offset).String(), State: query.StateOf(t, parkedFor),
	}
}

// partition is the number of the partition.
func (q *Questions) partition() int32 { return q.o.Life.Requests().Partition }
