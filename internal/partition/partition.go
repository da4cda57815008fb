package partition

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/budget"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/targets"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// maxBatch is how many requests join as one, and maxBatchBytes how many bytes
	// they hold, but for one that is larger alone.
	maxBatch      = 500
	maxBatchBytes = 1 << 20
	// loadWindow is how far ahead of now the wheel is filled, memory allowing.
	loadWindow = 30 * time.Second
	// loadRows and loadBytes bound one scan of the store.
	loadRows  = 4096
	loadBytes = 4 << 20
	// leastLoad is how many bytes of it are scanned at least, though the wheel may hold
	// less.
	leastLoad = 64 << 10
	// maxUnfolded is how many committed steps may wait to be folded; then
	// the partition seals nothing until it has caught up.
	maxUnfolded = 8
)

// never is later than every due time.
const never = math.MaxInt64

// Options of a partition: what it is made of.
type Options struct {
	ownership.Options
	Rules   *intake.Rules
	Store   *statestore.Partition
	Reader  *intake.Reader
	Replays *semaphore.Weighted
	Scans   *semaphore.Weighted // of who asks for many; nil: no limit
	Memory  Memory
	// HeldPatience is for how long the gate waits for open transactions; 0 is the usual 10 s.
	HeldPatience time.Duration
	Metrics      *Metrics
	Stamps       *Stamps // nil: the clock is compared at acquisitions alone
	// SubPartitions says for each acquisition how many planners the partition's timers are spread
	// over, at least 1; nil for one.
	SubPartitions func() int
	// BeforeApply is for tests, nil otherwise: it is called when a committed
	// step is about to be folded into the delta.
	BeforeApply func(topic string, partition int32)
	// BeforeLookup is for tests, nil otherwise: it is called when the store is about to be asked
	// for IDs.
	BeforeLookup func(ids [][]byte)
}

// Memory is what a partition may hold of what it shares with others. Run closes it.
type Memory struct {
	Wheel    *budget.Account // timers that are kept because they fall due soon
	Delta    *budget.Account // changes that are committed, at whose limit a checkpoint of the store begins
	Requests *budget.Account // requests on their way, and all that is committed and not folded: then intake pauses
	Firings  *budget.Account // firings on their way
	Overlay  *budget.Account // what questions about many hold of what the store lacks
	Replay   int             // bytes that a replay takes; 0: see replay.Replay
}

func (m *Memory) close() {
	for _, a := range []*budget.Account{m.Wheel, m.Delta, m.Requests, m.Firings, m.Overlay} {
		a.Close()
	}
}

// Partition is one owned request partition. It implements transaction.Source and
// intake.Sink.
type Partition struct {
	life  *ownership.Life
	o     Options
	clock clock

	// Run's own.
	handle      *statestore.Handle
	keeps       time.Duration   // delete.retention.ms as last noted by noteKeeps; 0: never
	raised      time.Time       // since when the setting is longer than noted; zero: it is not
	local       ownership.Local // the view that handle is the right to
	checkpoints checkpoints
	parking     parked
	strayed     atomic.Bool // a request has come whose ID belongs on another partition

	// The lane's own.
	suspects int   // entries that are not committed and are suspects
	stepped  int64 // when the last step was sealed, Unix ms

	// What follows is safe for all.
	backlog   backlog
	ledger    ledger
	lag       lag
	arrivals  arrivals
	opened    atomic.Int64 // when the gate opened, Unix ms: what was due by then was missed
	pending   atomic.Int64
	taken     atomic.Bool // pending is that of the store; reset ends it
	parked    atomic.Int64
	oldest    atomic.Int64 // due time of the oldest parked timer, Unix ms, as of the last look; 0: none is
	parkedBy  atomic.Pointer[map[timer.TopicPartition]int64]
	delivered atomic.Int64            // every request below was given by intake
	answers   atomic.Pointer[answers] // nil: nothing is answered
	nextDue   atomic.Int64            // when Seal may find something by itself, Unix ms; never: something wakes the lane

	handover *handover

	mu          sync.Mutex      // guards what follows
	looping     bool            // Run sees to checkpoints
	asked       []chan struct{} // closed when what was committed is in the store
	toPark      []parkings
	toParkBytes int64 // held by their timers

	// plans are there from the claim on: before intake, the lane and who asks can reach them, and
	// until these cannot any more.
	plans *plans

	pauseMu sync.Mutex // guards paused; held over Reader.Pause and Resume
	paused  bool
}

// New returns a partition that Run will acquire.
func New(o Options) *Partition {
	if o.Health == nil {
		o.Health = targets.NewHealth(targets.HealthOptions{Targets: o.Targets, Logger: o.Logger})
	}
	p := &Partition{
		life: ownership.New(o.Options, o.Metrics), o: o, clock: clock{now: o.Now},
		handover: newHandover(), backlog: backlog{intake: o.Memory.Requests, emitted: o.Memory.Firings},
	}
	p.local = ownership.Local{Slots: o.Replays, Room: o.Memory.Replay, AcceptLost: o.AcceptLost}
	p.nextDue.Store(never)
	return p
}

// Run acquires the partition and serves it until ctx ends or its token dies.
func (p *Partition) Run(ctx context.Context) {
	defer p.o.Memory.close()
	p.life.Run(ctx, func(ctx context.Context) error {
		defer p.reset()
		err := p.serve(ctx)
		if statestore.IsCorrupt(err) || errors.Is(err, statestore.ErrNewerFormat) {
			p.local.Damage = err
		}
		return err
	})
}

// reset forgets everything planned: the next serve begins from what is
// committed. The lane holds nothing of the partition at that point.
func (p *Partition) reset() {
	p.taken.Store(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.toPark, p.toParkBytes = nil, 0
	p.handover.clear()
	p.suspects = 0
	p.plans = nil
	p.backlog.reset()
	p.pauseMu.Lock()
	p.paused = false
	p.pauseMu.Unlock()
	p.o.Memory.Wheel.Set(0)
	p.o.Memory.Delta.Set(0)
}

// Life is what the partition has in common with those of other kinds.
func (p *Partition) Life() *ownership.Life { return p.life }

// Serving is that of its Life.
func (p *Partition) Serving() (s ownership.State, leaving bool) { return p.life.Serving() }

// SetLogEnd notes a look at the end of the log that is read.
func (p *Partition) SetLogEnd(e ownership.LogEnd) { p.life.Input.SetEnd(e) }

// Drain stops sealing and waits, for a second at most, until the step under way is applied.
func (p *Partition) Drain() { p.handover.awaitIdle(p.life.Drain()) }

// serve is one acquisition and the life after it.
func (p *Partition) serve(ctx context.Context) error {
	p.life.SetState(ownership.Acquiring)
	p.handle, p.keeps = p.o.Store.Acquire(), 0
	defer p.handle.Release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var others sync.WaitGroup
	p.checkpoints = checkpoints{done: make(chan error, 1), aside: others.Go}
	defer p.settle()
	p.life.Steps.Join(p)
	defer p.life.Steps.Leave(p)
	// A replay may wait for half a minute until the disk keeps up.
	through := context.AfterFunc(ctx, p.handle.Release)
	from, end, behind, err := p.acquire(ctx)
	through()
	if err != nil {
		return err
	}
	if err := p.openParked(); err != nil {
		return err
	}
	defer p.parking.waiter.Close()
	p.plans = p.newPlans(from)
	p.answer()
	defer p.stopAnswering()
	p.delivered.Store(from)
	p.arrivals.begin(from)
	p.opened.Store(math.MaxInt64)
	p.life.SetState(ownership.Gated)

	ctx, cancel = context.WithCancel(ctx)
	defer others.Wait()
	defer cancel()
	for _, s := range p.plans.subs {
		others.Go(func() { s.planAll(ctx) })
	}
	p.life.Own(behind)
	p.o.Reader.Add(p.o.Topics.Request.Name, p.o.Partition, from, p)
	defer p.o.Reader.Remove(p.o.Topics.Request.Name, p.o.Partition, p)
	others.Go(func() { p.gate(ctx, end) })
	p.setLooping(true)
	defer p.setLooping(false)
	return p.loop(ctx)
}
