package ownership

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/beats"
	"github.com/waterclock/waterclock/internal/clocks"
	"github.com/waterclock/waterclock/internal/hanging"
	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/internal/targets"
	"github.com/waterclock/waterclock/internal/topics"
	"github.com/waterclock/waterclock/internal/transaction"
	"github.com/waterclock/waterclock/internal/wire"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// Tick is how often a partition looks after itself, whatever happens.
	Tick = 100 * time.Millisecond
	// PassPause is how long after a partition's last step one may pass nothing but markers and aborted records.
	PassPause = time.Second
	// DrainTimeout is how long a step under way may delay a revocation.
	DrainTimeout = time.Second
	// retryAcquire is the pause between two tries to acquire a partition.
	retryAcquire = time.Second
	// sayEvery is how often the same trouble is said.
	sayEvery = time.Minute
)

// Token is what membership gives for a partition.
type Token interface {
	transaction.Token
	Refused(err error)
	// Certain and Confirmed are those of membership.Token.
	Certain(ctx context.Context) error
	Confirmed() (ago time.Duration, err error)
}

// Metrics count what happens to the partitions of a process.
type Metrics interface {
	Replayed(offsets int64)
	Damaged()                                        // a local view was damaged
	Ended(transactions int)                          // of former owners, that hung
	Lost(topic string, records int64)                // offsets that retention deleted before they were read
	Cut(topic string, offsets int64)                 // settled, and then cut off the log
	NearRetention(topic string)                      // an alert that it soon may
	Stamped(before, after clocks.Mark, at time.Time) // a broker stamped a record between two moments
}

// Options of an owned partition, of whatever kind.
type Options struct {
	Topics       *topics.Set
	Settings     *Settings // of Topics; nil: they stay as they were found
	Partition    int32
	Group, Owner string
	API          string // address that others reach this process's API at; empty: it has none
	Token        Token
	Lanes        *transaction.Lanes
	Targets      *targets.Metadata
	Health       *targets.Health
	Markers      *hanging.Markers // nil: lost markers are not looked for
	Client       *kgo.Client      // fetches of replays and looks at the logs, admin requests
	Now          func() time.Time
	AcceptGroup  bool
	AcceptLost   bool // the log of owners may be lost although something tells of it
	Logger       *slog.Logger
	// Newer is told, unless it is nil, that the log was written by a later version.
	Newer func(why error)
}

// ErrStopped is why a partition's loop ends when it is told to.
var ErrStopped = errors.New("partition stopped")

// Fatal marks an error that trying again will not fix: the partition stays
// failed until an operator acts.
type Fatal struct{ Err error }

func (f *Fatal) Error() string { return f.Err.Error() }

func (f *Fatal) Unwrap() error { return f.Err }

// Life is what every kind of owned partition is: it is acquired, maybe again and again,
// sealed as long as it is this process's, drained, gone.
type Life struct {
	Log    *slog.Logger
	Kicked chan struct{} // the loop is to look again
	// Aside runs what must not hold up the loop. Whoever serves sets it once the partition
	// is acquired, and waits for what it runs.
	Aside func(func())
	// Busy tells, unless it is nil, that what was committed still has work under way, which
	// Drain waits for. It is called with Mu held, and Stir says when to ask again.
	Busy func() bool

	o       Options
	metrics Metrics

	// Run's own.
	said struct {
		text string
		at   time.Time
	} // why it was last said that the partition is acquired again
	hangingSaid time.Time // when it was last said that others' transactions cannot be looked at: of who waits for them

	// What follows is safe for all.
	epochs   epochs                 // of requests
	warning  atomic.Pointer[string] // see Status.Warning
	state    atomic.Int32
	since    atomic.Int64                    // when state was set, Unix ms; 0: before it was first
	refusal  atomic.Pointer[error]           // see Refuse
	draining atomic.Bool                     // revoked: nothing is sealed any more
	found    atomic.Pointer[wire.CommitNote] // what the committed offset said when the acquisition began
	follower atomic.Pointer[Follower]        // of the acquisition
	logEnd   atomic.Pointer[LogEnd]          // see SetLogEnd
	alerted  atomic.Pointer[time.Time]       // when it was last said that retention is near

	Mu         sync.Mutex // guards what follows, and what a kind says it does; no I/O under it
	Tail       Tail
	failure    error
	trouble    string        // why the last try to own the partition ended; "": it is owned
	failed     chan struct{} // closed with failure set
	inLane     bool          // between JoinLane and LeaveLane; a late Seal finds it false
	owner      bool          // the kind seals, no claim is made any more
	inFlight   bool          // a share is out
	claim      *claim        // to be sealed, or out
	leaderless bool          // the log has no leader, or one out of reach: nothing is sealed
	held       error         // why the last share held up its step; ended by the next commit
	oversized  *oversized    // a batch that intake does not get past
	idle       *sync.Cond    // a share came back, or Stir was called
}

// New returns a Life that Run begins.
func New(o Options, m Metrics) *Life {
	if o.Settings == nil {
		o.Settings = NewSettings(nil, o.Topics)
	}
	l := &Life{
		Log: o.Logger.With("topic", o.Topics.Request.Name, "partition", o.Partition), Kicked: make(chan struct{}, 1),
		o: o, metrics: m, failed: make(chan struct{}),
	}
	l.idle = sync.NewCond(&l.Mu)
	return l
}

// Requests is the partition that is owned, and Changelog the one of its log.
func (l *Life) Requests() partlog.Log { return logOf(&l.o.Topics.Request, l.o.Partition) }

// Changelog is the partition that only the owner writes to.
func (l *Life) Changelog() partlog.Log { return logOf(&l.o.Topics.Changelog, l.o.Partition) }

func logOf(t *topics.Topic, partition int32) partlog.Log {
	return partlog.Log{Topic: t.Name, ID: t.ID, Partition: partition}
}

// Run has the partition served, again and again, until ctx ends or its token dies. serve
// acquires it and returns when it cannot go on; reset, which calls Reset, forgets all that
// serve has left, and then neither lane nor reader holds anything of the partition.
func (l *Life) Run(ctx context.Context, serve func(context.Context) error, reset func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { l.endWithToken(ctx, cancel) })
	defer l.SetState(Gone)
	for ctx.Err() == nil && l.o.Token.Err() == nil {
		err := l.refused()
		if err == nil {
			err = serve(ctx)
		}
		if why := l.refused(); why != nil {
			err = why
		}
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
		if !errors.Is(err, statestore.ErrEnded) { // said once, by the instance, which ends
			l.sayAgain(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAcquire):
		}
		reset()
	}
}

// endWithToken calls end when the token dies, unless ctx ends before.
func (l *Life) endWithToken(ctx context.Context, end func()) {
	t := beats.NewTicker(Tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if l.o.Token.Err() != nil {
				end()
				return
			}
		}
	}
}

// sayAgain says why the partition is acquired again, the same reason once a minute.
func (l *Life) sayAgain(err error) {
	l.Mu.Lock()
	l.trouble = err.Error()
	l.Mu.Unlock()
	if text := err.Error(); text != l.said.text || time.Since(l.said.at) > sayEvery {
		l.said.text, l.said.at = text, time.Now()
		l.Log.Warn("acquiring the partition again", "err", err)
	}
}

func (l *Life) stayFailed(ctx context.Context, err error) {
	l.GiveUp(err)
	l.SetState(Failed)
	t := time.NewTicker(sayEvery)
	defer t.Stop()
	for {
		l.Log.Error("partition refuses to go on", "err", err)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// Reset forgets the life before. Mu is held.
func (l *Life) Reset() {
	l.failure, l.failed = nil, make(chan struct{})
	l.owner, l.claim, l.Tail = false, nil, Tail{}
	l.leaderless, l.held, l.oversized = false, nil, nil
	l.logEnd.Store(nil)
	l.warning.Store(nil)
}

// JoinLane has the lane ask source, which is this partition, for its shares.
func (l *Life) JoinLane(source transaction.Source) {
	l.Mu.Lock()
	l.inLane = true
	l.Mu.Unlock()
	l.o.Lanes.Add(source)
}

// LeaveLane takes the partition out of the steps and waits for the one that may
// be under way. The lane may still ask it to Seal, in vain.
func (l *Life) LeaveLane(source transaction.Source) {
	l.o.Lanes.Remove(source)
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.inLane = false
	for l.inFlight {
		l.idle.Wait()
	}
}

// GiveUp ends the serve that is under way with err; the first one counts.
func (l *Life) GiveUp(err error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.failure == nil {
		l.failure = err
		close(l.failed)
	}
}

// Failed is closed when Failure has an error. It is the serving goroutine's.
func (l *Life) Failed() <-chan struct{} { return l.failed }

// Failure is why the serve that is under way must end, nil if it need not.
func (l *Life) Failure() error {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.failure
}

// Refuse makes the partition fail for good: an operator must act. It may be
// called before Run, again, and at any time.
func (l *Life) Refuse(why error) {
	err := error(&Fatal{why})
	if l.refusal.CompareAndSwap(nil, &err) {
		l.GiveUp(err)
	}
}

// refused is what Refuse was called with, nil if it was not.
func (l *Life) refused() error {
	if err := l.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

// Kick makes the loop look again. It never blocks.
func (l *Life) Kick() {
	select {
	case l.Kicked <- struct{}{}:
	default:
	}
}

// Stir has Drain ask again whether there is work under way. Mu is held.
func (l *Life) Stir() { l.idle.Broadcast() }

// Drain stops sealing and waits, at most DrainTimeout, until the step under way
// has ended, and what follows from it.
func (l *Life) Drain() {
	until := time.Now().Add(DrainTimeout) // before the timer: it wakes once
	deadline := time.AfterFunc(DrainTimeout, func() {
		l.Mu.Lock()
		defer l.Mu.Unlock()
		l.idle.Broadcast()
	})
	defer deadline.Stop()
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.draining.Store(true)
	for (l.Busy != nil && l.Busy() || l.inFlight) && time.Now().Before(until) {
		l.idle.Wait()
	}
}
