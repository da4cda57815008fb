package ownership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/tasks"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// retryAcquire is the pause between two tries to acquire a partition.
	retryAcquire = time.Second
	// logEvery is how often the same trouble is logged.
	logEvery = time.Minute
	// stallLook is how often a Life checks whether it is stalled: its status may not be asked for otherwise.
	stallLook = time.Second
)

// Life is the part that owned partitions of all kinds have in common: they are acquired, perhaps several times, sealed
// as long as this process owns them, drained, and gone.
type Life struct {
	Log     *slog.Logger
	Wake    beats.Signal // tells the kind's loop to look again
	Steps   *Steps
	Records *Records
	Input   *Input
	*failure

	o        Options
	acquirer *acquirer
	tail     *tailWatch
	looks    sync.WaitGroup // goroutines of Look, which end with the serve that began them

	state   atomic.Int32
	since   atomic.Int64           // when state was set, Unix ms; 0: never
	stalled atomic.Int64           // since when look has found it stalled, Unix ms; 0: it has not
	trouble atomic.Pointer[string] // why the last attempt to own the partition ended; nil: it is owned
}

// New returns a Life that Run begins.
func New(o Options, m Metrics) *Life {
	if o.Settings == nil {
		o.Settings = NewSettings(nil, o.Topics)
	}
	l := &Life{
		Log: o.Logger.With("topic", o.Topics.Request.Name, "partition", o.Partition), Wake: beats.NewSignal(),
		o: o, failure: newFailure(),
	}
	aside := func(f func()) { l.looks.Go(f) }
	l.Records = &Records{o: &l.o, epochs: new(epochs)}
	l.Input = &Input{o: &l.o, log: l.Log, metrics: m, epochs: l.Records.epochs}
	l.Steps = newSteps(&l.o, l.failure, l.Wake.Send)
	l.tail = &tailWatch{o: &l.o, log: l.Log, failure: l.failure, steps: l.Steps, aside: aside}
	l.acquirer = &acquirer{o: &l.o, log: l.Log, metrics: m, failure: l.failure, steps: l.Steps, records: l.Records,
		input: l.Input, show: l.SetState}
	return l
}

// Requests is the partition that is owned.
func (l *Life) Requests() partlog.Log { return l.o.requests() }

// Changelog is the partition that only the owner writes to.
func (l *Life) Changelog() partlog.Log { return l.o.changelog() }

// Settings returns the settings of the partition's topics as last read.
func (l *Life) Settings() topics.Settings { return l.o.Settings.Last() }

// Run calls serve again and again, until ctx ends or the token dies. serve acquires the partition and returns when it
// cannot go on. When serve returns, neither lane nor reader may hold anything of the partition.
func (l *Life) Run(ctx context.Context, serve func(context.Context) error) {
	watching := tasks.New(ctx)
	defer watching.Stop()
	ctx = watching.Context()
	watching.Go(func(ctx context.Context) {
		beats.Every(ctx, Tick, func() {
			if l.o.Token.Err() != nil {
				watching.Cancel()
			}
		})
	})
	watching.Go(func(ctx context.Context) { beats.Every(ctx, stallLook, l.look) })
	defer l.SetState(Gone)
	var logged string // the last error that was logged
	var again beats.Reminder
	for ctx.Err() == nil && l.o.Token.Err() == nil {
		var err error
		if l.refused() == nil {
			err = l.serve(ctx, serve)
		}
		err = cmp.Or(l.refused(), err)
		var fatal *Fatal
		switch {
		case ctx.Err() != nil, l.o.Token.Err() != nil:
			return
		case errors.As(err, &fatal):
			if l.o.Newer != nil && errors.Is(err, wire.ErrNewerFormat) {
				l.o.Newer(err)
			}
			l.stayFailed(ctx, err)
			return
		}
		if !errors.Is(err, statestore.ErrEnded) { // the instance, which ends, logs it once
			text := err.Error()
			l.trouble.Store(&text)
			if text != logged {
				logged, again = text, beats.Reminder{}
			}
			if again.Due(logEvery) {
				l.Log.Warn("acquiring the partition again", "err", err)
			}
		}
		beats.Sleep(ctx, retryAcquire)
		l.failure.reset()
		l.Steps.reset()
		l.Input.reset()
	}
}

// serve calls the kind's serve, and waits for the looks that it began.
func (l *Life) serve(ctx context.Context, serve func(context.Context) error) error {
	defer l.looks.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return serve(ctx)
}

func (l *Life) stayFailed(ctx context.Context, err error) {
	l.GiveUp(err)
	l.SetState(Failed)
	for again := true; again; again = beats.Sleep(ctx, logEvery) { // not Every, whose first tick may come immediately
		l.Log.Error("partition failed: fix the cause, then restart", "err", err)
	}
}

// NewFollower returns the follower of an acquisition; local is as in FollowOptions.
func (l *Life) NewFollower(local *Local) *Follower {
	return NewFollower(FollowOptions{
		Topics: l.o.Topics, Partition: l.o.Partition, Client: l.o.Client, Settings: l.o.Settings, Local: local,
		Logger: l.Log, Metrics: l.acquirer.metrics,
	})
}

// TakeOver makes a follower that a standby has run serve acquisitions of this Life, from where it stands. Its view is
// now local, whose handle was acquired after the standby's. Nothing else may have changed the view in between.
func (l *Life) TakeOver(f *Follower, local *Local) {
	f.o.Local, f.o.Logger, f.o.Metrics = local, l.Log, l.acquirer.metrics
}

// Acquire makes this process the partition's owner. The package comment has the order. f goes on from where it stands;
// afterwards it has folded everything that earlier owners have committed. begin returns where a partition begins whose
// log holds no checkpoint, or why it may not begin. Until Own is called, lanes seal nothing but the claim.
func (l *Life) Acquire(ctx context.Context, f *Follower,
	begin func(ctx context.Context, committed int64) (int64, error)) (Acquired, error) {
	return l.acquirer.acquire(ctx, f, begin)
}

// Own says that the partition is acquired: from here on Source.Seal asks the kind. c is Acquired.Claimed.
func (l *Life) Own(c Claimed) {
	l.trouble.Store(nil)
	l.Steps.own(c)
}

// Look starts the look-up of the changelog's end, if that is in doubt and from time to time. It does not block.
func (l *Life) Look(ctx context.Context) {
	l.tail.peek(ctx)
	l.tail.look(ctx)
}

// GiveUpReading is GiveUp with an error of a partlog.Sink: the request log cannot be read.
func (l *Life) GiveUpReading(err error) {
	if errors.Is(err, kerr.OffsetOutOfRange) {
		err = fmt.Errorf("the log no longer holds the position: %w", err)
	}
	l.GiveUp(fmt.Errorf("read requests: %w", err))
}

// Drain stops sealing and waits, at most DrainTimeout, until the step under way has ended.
func (l *Life) Drain() { l.Steps.drain() }

// SetState is for the goroutine that serves the partition.
func (l *Life) SetState(s State) {
	if State(l.state.Swap(int32(s))) != s {
		l.since.Store(time.Now().UnixMilli())
	}
}

// Serving returns the state of the partition, with Live for Stalled, and whether this process owns it: the token holds,
// and the partition is neither gone nor being handed over.
func (l *Life) Serving() (s State, owned bool) {
	s = State(l.state.Load())
	return s, s != Gone && !l.Steps.draining.Load() && l.o.Token.Err() == nil
}

// Certain returns nil if the token held at some moment of the call, see emitter.Token.
func (l *Life) Certain(ctx context.Context) error { return l.o.Token.Certain(ctx) }

// look notes since when the partition is stalled.
func (l *Life) look() {
	if l.Status().State == Stalled {
		l.stalled.CompareAndSwap(0, time.Now().UnixMilli())
	} else {
		l.stalled.Store(0)
	}
}

// Status returns the state, its reason and the progress of the replay.
func (l *Life) Status() Status {
	s := Status{State: State(l.state.Load())}
	if ms := l.since.Load(); ms != 0 {
		s.Since = time.UnixMilli(ms)
	}
	if w := l.Input.warning.Load(); w != nil {
		s.Warning = *w
	}
	if f := l.acquirer.follower.Load(); f != nil {
		s.Replayed, s.ReplayEnd = f.position.Load(), f.end.Load()
	}
	failure := l.Failure()
	if failure != nil {
		s.Reason = failure.Error()
	} else {
		s.Reason = cmp.Or(l.Steps.reason(), l.acquirer.reason())
	}
	if trouble := l.trouble.Load(); trouble != nil {
		s.Reason = cmp.Or(s.Reason, *trouble)
	}
	if s.State == Live && failure == nil && s.Reason != "" {
		s.State = Stalled
		s.Since = time.UnixMilli(cmp.Or(l.stalled.Load(), time.Now().UnixMilli())) // 0: it is new
	}
	if e, _ := l.Input.End(); e.By != nil {
		s.Held = e.By
		s.Reason = cmp.Or(s.Reason, e.By.String())
	}
	return s
}

// State is where in its life a partition is.
type State int32

// The states, in order.
const (
	Acquiring State = iota // waiting for the former owner, claiming
	Replaying              // folding the changelog
	Gated                  // behind the catch-up barrier: planning the requests that were in the log at the acquisition
	Live
	Stalled // live, but nothing can be committed: see Status.Reason
	Failed  // refuses to go on; the reason is in Status
	Gone
)

func (s State) String() string {
	return [...]string{"acquiring", "replaying", "gated", "live", "stalled", "failed", "gone"}[s]
}

// Status is a snapshot of a partition.
type Status struct {
	State  State
	Since  time.Time // when State began; of Stalled known to about a second
	Reason string    // of Failed and Stalled, or why an acquisition makes no progress, or Held as a sentence
	Held   *Held     // the transaction that keeps intake from the log's end; nil: none, as far as is known
	// Warning is a problem that an operator has to solve although the partition is served.
	Warning string
	// Replayed and ReplayEnd are changelog offsets, for progress.
	Replayed, ReplayEnd int64
	Pending             int64
	// Misplaced is how many of the pending timers have IDs that belong on another partition; -1: not counted.
	// It is 0 for a partition that is not acquired.
	Misplaced int64
	Parked    int64 // about how many of them wait for an unhealthy target
	Ledger    int64 // accepted - outcomes - pending: 0 at rest
	// Queued is how many requests and firings are on their way, and QueuedBytes how much memory they take.
	Queued      int
	QueuedBytes int64
	// Behind requests are known to wait in the log, and Lag is the age of the newest one that was read.
	Behind int64
	Lag    time.Duration
	// Overdue is for how long the oldest timer in memory that is not planned has been due, and
	// Uncommitted the oldest whose firing is not committed. Parked timers are neither: OldestParked
	// is the same for the oldest of those, about a second old.
	Overdue, Uncommitted, OldestParked time.Duration
	// ParkedBy is about how many timers are parked for each target.
	ParkedBy map[timer.TopicPartition]int64
	// Deferred has the timers that are due and wait for the rate of their target, by topic. They are not parked.
	Deferred map[string]Deferred
	// MissingCalendars has, by name, how many timers name a calendar that did not exist when calendars last changed, or
	// at the acquisition. Paused and parked timers are not counted. It has a few names, and is never written to.
	MissingCalendars map[string]int64
}

// Deferred counts timers that wait for a rate.
type Deferred struct {
	Timers int64
	Oldest int64 // when the first one was due, Unix ms; below 0: it is triggered
}

// failure is why a partition cannot go on. err ends one acquisition: reset clears it, and the partition is acquired
// again. A refusal is final.
type failure struct {
	refusal atomic.Pointer[error]

	mu     sync.Mutex // guards the following fields
	err    error
	failed chan struct{} // closed when err is set
}

func newFailure() *failure { return &failure{failed: make(chan struct{})} }

// GiveUp ends the serve that is under way. The first error counts.
func (f *failure) GiveUp(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
		close(f.failed)
	}
}

// Failure is why the serve that is under way must end, nil if it need not.
func (f *failure) Failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Failed is closed when Failure has an error.
func (f *failure) Failed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

func (f *failure) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.failed = nil, make(chan struct{})
}

// Refuse makes the partition fail until an operator acts. It may be called at any time, also before Run, and
// repeatedly.
func (f *failure) Refuse(why error) {
	err := error(&Fatal{why})
	if f.refusal.CompareAndSwap(nil, &err) {
		f.GiveUp(err)
	}
}

// refused is the error of Refuse, nil if it was not called.
func (f *failure) refused() error {
	if err := f.refusal.Load(); err != nil {
		return *err
	}
	return nil
}
