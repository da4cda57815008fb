package partition

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// maxBatch is how many requests join as one, and maxBatchBytes how many bytes
	// they hold, but for one that is larger alone.
	maxBatch      = 500
	maxBatchBytes = 1 << 20
	// loadWindow is how far ahead of now wheels are filled, memory allowing.
	loadWindow = 30 * time.Second
	// loadRows and loadBytes bound one scan of the store.
	loadRows  = 4096
	loadBytes = 4 << 20
	// maxUnfolded is how many committed steps may wait to be folded; then
	// the partition seals nothing until it has caught up.
	maxUnfolded = 8
	// drainTimeout is how long a step under way may delay a revocation.
	drainTimeout = time.Second
	// retryTake is the pause between two tries to take a partition.
	retryTake = time.Second
	// sayEvery is how often the same reason for another take is said.
	sayEvery = time.Minute
	// tick is how often the partition looks after itself.
	tick = 100 * time.Millisecond
)

// lowest is below every pending timer.
var lowest = timer.Ref{Due: math.MinInt64, Offset: math.MinInt64}

// Token is what membership gives for a partition.
type Token interface {
	emitter.Token
	Refused(err error)
}

// Options of a partition: what it is made of.
type Options struct {
	Topics        *delaytopics.Set
	Partition     int32
	Rules         *intake.Rules
	Group, Owner  string
	SubPartitions int
	Token         Token
	Store         *statestore.Partition
	Lane          *emitter.Lane
	Targets       *emitter.Targets
	Health        *emitter.Health
	Markers       *emitter.Markers // nil: lost markers are not looked for
	Reader        *intake.Reader
	Client        *kgo.Client // fetches of replays and looks at the logs, admin requests
	Replays       *semaphore.Weighted
	Now           func() time.Time
	WheelBytes    int64 // of timers that each worker keeps in memory
	DeltaBytes    int64 // of changes that are committed, at which a checkpoint of the store begins
	QueueEntries  int   // on their way and not in the store yet, above which intake pauses
	QueueBytes    int64
	// MaxAbsence is how old a local store may be: half of delete.retention.ms.
	MaxAbsence          time.Duration
	AcceptGroup         bool
	AcceptLostChangelog bool
	Logger              *slog.Logger
	Metrics             *Metrics
	Stamps              *Stamps // nil: the clock is compared at takes alone
	// BeforeApply is for tests, nil otherwise: it is called when a committed
	// step is about to be folded into the delta.
	BeforeApply func(topic string, partition int32)
	// Newer is told, unless it is nil, that the changelog was written by a later
	// version.
	Newer func(why error)
}

// Partition is one owned request partition. It implements emitter.Source and
// intake.Sink.
type Partition struct {
	o       Options
	clock   clock
	log     *slog.Logger
	take    *statestore.Take
	tracker *intake.Tracker[*entry]
	workers []*worker
	// delta is what the store has yet to hear of; Run's own. wanted: a checkpoint is
	// waited for.
	delta  delta
	wanted atomic.Bool
	// seals numbers the calls of Seal, suspects counts the entries that are not
	// settled and are suspects. Both are the lane's.
	seals    int64
	suspects int
	// damage is why the next take wipes the local view; Run's own.
	damage error
	// said is why it was last said that the partition is taken again; Run's own.
	said struct {
		text string
		at   time.Time
	}
	// vanishedSaid is when it was last said that others' transactions cannot be
	// looked at; it belongs to who waits for them.
	vanishedSaid time.Time
	ledger       ledger
	alarmed      time.Time // see watchRetention; the reader's
	// refusal is set by Refuse.
	refusal atomic.Pointer[error]
	// parkedTargets are about how many timers are parked by target; Run's own.
	parkedTargets map[emitter.TargetPartition]int64
	parkedMoved   bool            // since they were last shown
	waiter        *emitter.Waiter // for those targets
	// counts are scans for misplaced timers, which end with serve; Run's own.
	counts sync.WaitGroup

	state     atomic.Int32
	replayed  atomic.Int64
	replayEnd atomic.Int64
	pending   atomic.Int64
	taken     atomic.Bool // pending is that of the store; reset ends it
	parked    atomic.Int64
	parkedBy  atomic.Pointer[map[emitter.TargetPartition]int64]
	delivered atomic.Int64 // just behind the last request handed to workers
	lag       lag
	// found is what the committed offset said when the take began.
	found  atomic.Pointer[delaytopics.CommitNote]
	kicked chan struct{}
	failed chan struct{} // closed with failure set
	// aside runs what must not hold up Run, which waits for it at the end.
	aside func(func())

	mu        sync.Mutex // guards what follows
	failure   error
	inLane    bool // between Lane.Add and leaveLane; a late Seal finds it false
	draining  bool // revoked: nothing is sealed any more
	inFlight  bool // a share is out
	claim     *claim
	tail      tail
	oversized *oversized // a batch that intake does not get past
	jobs      []*job     // committed steps, to be folded in order
	applying  bool
	looping   bool            // Run sees to checkpoints
	asked     []chan struct{} // closed when what was committed is in the store
	// unplanning counts workers that have yet to take firings back.
	unplanning  int
	toPark      []parking
	toParkBytes int64      // held by their timers
	leaderless  bool       // the changelog partition has no leader, or one out of reach: nothing is sealed
	held        error      // why the last share held up its step; see heldUp
	idle        *sync.Cond // a share came back, or a job is folded

	pauseMu sync.Mutex // guards what follows; held over Reader.Pause and Resume
	paused  bool
	queued  int // requests handed to workers and not planned yet
	queuedB int64
	// waiting are the entries of committed steps that are not folded yet.
	waiting  int
	waitingB int64
}

// New returns a partition that Run will take.
func New(o Options) *Partition {
	if o.Health == nil {
		o.Health = emitter.NewHealth(emitter.HealthOptions{Targets: o.Targets, Logger: o.Logger})
	}
	p := &Partition{
		o: o, clock: clock{now: o.Now},
		log:    o.Logger.With("topic", o.Topics.Request.Name, "partition", o.Partition),
		kicked: make(chan struct{}, 1), failed: make(chan struct{}),
	}
	p.idle = sync.NewCond(&p.mu)
	return p
}

// ErrStopped is why Run ends when it is told to.
var ErrStopped = errors.New("partition stopped")

// Fatal marks an error that trying again will not mend: the partition stays
// failed until an operator acts.
type Fatal struct{ Err error }

func (f *Fatal) Error() string { return f.Err.Error() }

func (f *Fatal) Unwrap() error { return f.Err }

// Run takes the partition and serves it until ctx ends or its token dies.
func (p *Partition) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go p.watch(ctx, cancel)
	defer p.state.Store(int32(Gone))
	for ctx.Err() == nil && p.o.Token.Err() == nil {
		err := p.refused()
		if err == nil {
			err = p.serve(ctx)
		}
		if why := p.refused(); why != nil {
			err = why
		}
		var fatal *Fatal
		switch {
		case ctx.Err() != nil, p.o.Token.Err() != nil:
			return
		case errors.As(err, &fatal):
			if p.o.Newer != nil && errors.Is(err, delaytopics.ErrNewerFormat) {
				p.o.Newer(err)
			}
			p.stayFailed(ctx, err)
			return
		case statestore.IsCorrupt(err), errors.Is(err, statestore.ErrNewerFormat):
			p.damage = err
			p.log.Error("the local store cannot be read, taking the partition again", "err", err)
		default:
			p.sayAgain(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryTake):
		}
		p.reset()
	}
}

// sayAgain says why the partition is taken again, the same reason once a minute.
func (p *Partition) sayAgain(err error) {
	if text := err.Error(); text != p.said.text || time.Since(p.said.at) > sayEvery {
		p.said.text, p.said.at = text, time.Now()
		p.log.Warn("taking the partition again", "err", err)
	}
}

// reset forgets everything planned: the next serve begins from what is
// committed. The lane holds nothing of the partition at that point.
func (p *Partition) reset() {
	p.taken.Store(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unplanning, p.toPark, p.toParkBytes, p.leaderless, p.held, p.tail = 0, nil, 0, false, nil, tail{}
	p.oversized = nil
	p.failure, p.claim, p.jobs, p.applying, p.suspects = nil, nil, nil, false, 0
	p.workers = nil
	p.tracker = nil // Seal must find nothing before the claim
	p.failed = make(chan struct{})
	p.pauseMu.Lock()
	p.paused, p.queued, p.queuedB = false, 0, 0
	p.waiting, p.waitingB = 0, 0
	p.pauseMu.Unlock()
}

// watch ends the partition when its token dies.
func (p *Partition) watch(ctx context.Context, cancel func()) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if p.o.Token.Err() != nil {
				cancel()
				return
			}
		}
	}
}

func (p *Partition) stayFailed(ctx context.Context, err error) {
	p.fail(err)
	p.state.Store(int32(Failed))
	t := time.NewTicker(time.Minute)
	defer t.Stop()
	for {
		p.log.Error("partition refuses to go on", "err", err)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// serve is one take and the life after it.
func (p *Partition) serve(ctx context.Context) error {
	p.state.Store(int32(Taking))
	p.take = p.o.Store.Take()
	defer p.take.Release()
	ctx, cancel := context.WithCancel(ctx)
	defer p.counts.Wait()
	defer cancel()
	p.delta = delta{done: make(chan error, 1)}
	defer p.settle()
	p.joinLane()
	defer p.leaveLane()
	// A replay may wait for half a minute until the disk keeps up.
	through := context.AfterFunc(ctx, p.take.Release)
	from, stable, err := p.takeOver(ctx)
	through()
	if err != nil {
		return err
	}
	if err := p.openParked(); err != nil {
		return err
	}
	defer p.waiter.Close()
	p.mu.Lock()
	p.tracker = intake.NewTracker[*entry](from)
	p.mu.Unlock()
	p.delivered.Store(from)
	p.state.Store(int32(Gated))

	ctx, cancel = context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	all := make([]*worker, p.o.SubPartitions)
	for i := range all {
		all[i] = newWorker(p, i)
	}
	p.mu.Lock()
	p.workers = all
	p.mu.Unlock()
	for _, w := range all {
		workers.Go(func() { w.run(ctx) })
	}
	p.mu.Lock()
	p.claim = nil // from here on Seal takes from the tracker
	p.mu.Unlock()
	p.aside = workers.Go
	p.o.Reader.Add(p.o.Topics.Request.Name, p.o.Partition, from, p)
	defer p.o.Reader.Remove(p.o.Topics.Request.Name, p.o.Partition, p)
	workers.Go(func() { p.gate(ctx, stable) })
	p.setLooping(true)
	defer p.setLooping(false)
	return p.loop(ctx)
}

func (p *Partition) joinLane() {
	p.mu.Lock()
	p.inLane = true
	p.mu.Unlock()
	p.o.Lane.Add(p)
}

// leaveLane takes the partition out of the steps and waits for the one that may
// be under way. The lane may still ask it to Seal, in vain.
func (p *Partition) leaveLane() {
	p.o.Lane.Remove(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inLane = false
	for p.inFlight {
		p.idle.Wait()
	}
}

// fail ends the current serve with err.
func (p *Partition) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil {
		p.failure = err
		close(p.failed)
	}
}

// Drain stops sealing and waits, at most drainTimeout, until the step under way
// has ended and is folded.
func (p *Partition) Drain() {
	until := time.Now().Add(drainTimeout) // before the timer: it wakes once
	deadline := time.AfterFunc(drainTimeout, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.idle.Broadcast()
	})
	defer deadline.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	for (p.inFlight || len(p.jobs) > 0 || p.applying) && time.Now().Before(until) {
		p.idle.Wait()
	}
}
