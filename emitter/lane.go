package emitter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A lane's loop serves many partitions, so it waits for nothing for long. What
// takes longer goes on beside it: ends of transactions that were given up (drop),
// commits that are not answered (resolve), partitions that hold up a step (ward).
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 2 * time.Second
	// maxSleep is how long a lane sleeps for which nothing is due and that nobody wakes.
	maxSleep = time.Hour
	// answerTimeout bounds each question to a coordinator that a step asks: for a
	// producer ID, an announce, an offset commit, an end.
	answerTimeout = 2500 * time.Millisecond
	// abortTimeout bounds AbortBufferedRecords; after it the client is thrown
	// away, for the old records would travel in its next transaction.
	abortTimeout = time.Second
	// dropWait is how long a lane waits for the end of a transaction that it has
	// given up: mostly it takes a few milliseconds.
	dropWait = 100 * time.Millisecond
)

// Options of a lane.
type Options struct {
	Client           []kgo.Opt   // brokers and security, as for every client
	Admin            *kgo.Client // asks coordinators, and reads records back
	Group            string
	Process          string // random, once per process
	Lane             int
	TransactionalIDs int // 2 to 4; a ward has one
	// Interval is how often steps begin at most, unless they are full; 0: no limit.
	Interval           time.Duration
	TransactionTimeout time.Duration
	// Health keeps what is known of unhealthy targets; nil: nobody probes.
	Health *Health
	// Markers remembers how transactions ended; nil: nobody does.
	Markers *Markers
	// Reach tells which brokers cannot be reached, and Leaders which partitions they
	// lead; nil: all can be. Who sets them calls Lane.Reached.
	Reach   Reach
	Leaders Leaders
	// CommitTimeout is how long an EndTxn may go unanswered until its outcome is found
	// out by other means; 0: answerTimeout.
	CommitTimeout time.Duration
	// BatchMaxBytes is the largest record batch a topic takes.
	BatchMaxBytes func(topic string) int32
	// Version of what is known of a topic, and Stale and Refuted, which say that it
	// was proved wrong: see Targets.
	Version func(topic string) int64
	Stale   func(topic string)
	Refuted func(topic string)
	Logger  *slog.Logger
	Metrics *Metrics
}

// Lane commits steps, one after another. Run is its one goroutine.
type Lane struct {
	o        Options
	name     string // of its steps and transactional IDs within the process
	wake     chan struct{}
	clients  []*txnClient
	turn     int
	opening  map[int]bool // turns that a client is being opened for
	serial   int          // of transactional IDs
	counter  int64        // of steps
	portions portions     // of steps, by source
	pace     pace
	laps     laps // of the step under way
	// limit is how many entries a step may have: fewer after a step that was
	// not acknowledged in time, for it may simply have been too large.
	limit int
	// ward is where sources go that hold up a step; nil in a ward's own lane, see apart.
	ward *ward

	// aside is what goes on beside the loop, until ending is cancelled.
	aside  *sync.WaitGroup
	ending context.Context
	giveUp context.CancelFunc
	ends   []end // of a ward's lane; its loop's own

	reached chan struct{} // a broker came or went, for the step under way
	news    chan struct{} // something was opened

	mu      sync.Mutex // guards what follows, and the ward's fields
	sources []Source
	current *txnClient                             // whose coordinator the step needs now
	joining map[string][]int32                     // what the step is to write to, until joined
	cancel  context.CancelCauseFunc                // gives the step up
	tied    map[*txnClient]context.CancelCauseFunc // being opened, and what gives them up
	opened  []opened                               // to be taken over by the loop
	closed  bool                                   // nobody takes over any more
}

// NewLane returns a lane without sources.
func NewLane(o Options) *Lane {
	if o.CommitTimeout == 0 {
		o.CommitTimeout = answerTimeout
	}
	if o.Health == nil {
		o.Health = NewHealth(HealthOptions{Logger: o.Logger})
	}
	if o.Reach == nil {
		o.Reach, o.Leaders = allThere{}, allThere{}
	}
	l := newLane(o, fmt.Sprint(o.Lane))
	l.aside = new(sync.WaitGroup)
	l.ending, l.giveUp = context.WithCancel(context.Background())
	l.ward = newWard(l)
	return l
}

func newLane(o Options, name string) *Lane {
	return &Lane{
		o: o, name: name, wake: make(chan struct{}, 1), reached: make(chan struct{}, 1), news: make(chan struct{}, 1),
		clients: make([]*txnClient, o.TransactionalIDs), opening: make(map[int]bool), tied: make(map[*txnClient]context.CancelCauseFunc),
		pace: pace{interval: o.Interval}, limit: MaxStepEntries,
	}
}

// apart reports whether the lane is a ward's, whose steps are tries: they write to
// targets last, and it is known when their transactions have ended.
func (l *Lane) apart() bool { return l.ward == nil }

// Add makes s contribute to the steps to come.
func (l *Lane) Add(s Source) {
	l.mu.Lock()
	l.sources = append(l.sources, s)
	l.mu.Unlock()
	l.Wake()
}

// Remove takes s out. A Seal or a Done of s that is under way may still end.
func (l *Lane) Remove(s Source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(s)
	if l.ward != nil {
		l.ward.remove(s)
	}
}

// removeLocked takes s out of the sources and reports whether it was one.
func (l *Lane) removeLocked(s Source) bool {
	n := len(l.sources)
	l.sources = slices.DeleteFunc(slices.Clone(l.sources), func(x Source) bool { return x == s })
	return len(l.sources) < n
}

// Wake tells the lane that a source has something ready. It never blocks.
func (l *Lane) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run commits steps until ctx ends. The step under way is finished first. It
// ends by itself, with kerr.InvalidTransactionTimeout, if the brokers allow no
// transaction of that length.
func (l *Lane) Run(ctx context.Context) error {
	defer l.close()
	l.prepare(ctx)
	backoff := minBackoff
	due := time.NewTimer(maxSleep)
	defer due.Stop()
	for {
		if wait := l.pace.wait(time.Now()); wait > 0 && sleep(ctx, wait) != nil {
			return nil
		}
		worked, err := l.step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, kerr.InvalidTransactionTimeout):
			return err
		case err != nil:
			l.o.Logger.Warn("step aborted", "lane", l.name, "err", err)
			_ = sleep(ctx, backoff)
			backoff = min(2*backoff, l.pauseLimit())
			continue
		}
		backoff = minBackoff
		if worked {
			continue
		}
		due.Reset(l.untilDue())
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-due.C:
		}
	}
}

// untilDue is how long nobody has anything to seal, unless somebody wakes the lane.
func (l *Lane) untilDue() time.Duration {
	l.mu.Lock()
	sources := l.sources
	l.mu.Unlock()
	wait := maxSleep
	for _, s := range sources {
		wait = min(wait, s.Wait())
	}
	return wait
}

// prepare opens the clients ahead of the first steps, one after another, so that
// each knows the others' coordinators. Errors show up there.
func (l *Lane) prepare(ctx context.Context) {
	for turn := range l.clients {
		l.open(turn)
		_ = l.await(ctx)
	}
}

func (l *Lane) close() {
	patience := time.AfterFunc(2*RequestTimeout, l.giveUp)
	defer patience.Stop()
	l.closeClients()
	l.aside.Wait()
	l.giveUp()
}

// step seals and runs one step. It reports whether there was one.
func (l *Lane) step(ctx context.Context) (bool, error) {
	at := time.Now()
	shares := l.seal(l.nextStep())
	if len(shares) == 0 {
		return false, nil
	}
	err := l.run(ctx, shares)
	l.pace.sealed(at, l.portions.more || err != nil)
	switch {
	case err == nil:
		l.limit = min(2*l.limit, MaxStepEntries)
	case errors.Is(err, errLate), errors.Is(err, errHeld):
		l.limit = max(l.limit/4, minStepEntries)
	}
	for _, s := range shares {
		if s.Held != nil {
			l.ward.admit(ctx, s)
		}
	}
	for _, again := range []error{errEmissions, errTokens, errHeld, errUnknown, errFence, errAlone} {
		if errors.Is(err, again) {
			return true, nil // sealed again at once, without the culprits
		}
	}
	return true, err
}

func (l *Lane) nextStep() string {
	l.counter++
	return fmt.Sprintf("%s/%s/%d", l.o.Process, l.name, l.counter)
}

// run runs the step of these shares and tells them its outcome; with errUnknown
// they are told later, by a goroutine of its own.
func (l *Lane) run(ctx context.Context, shares []*Share) error {
	start := time.Now()
	// A step that has begun is ended in order, also when the lane is stopped;
	// the broker's own limit bounds it.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.o.TransactionTimeout)
	defer cancel()
	err := l.commit(bounded, shares)
	if errors.Is(err, errUnknown) {
		c := l.clients[l.turn]
		l.clients[l.turn] = nil
		l.aside.Go(func() {
			l.finish(shares, start, l.resolve(c, shares))
			l.Wake()
		})
		return err
	}
	if c := l.clients[l.turn]; c != nil {
		c.used = time.Now()
	}
	l.finish(shares, start, err)
	return err
}

// finish tells everybody what became of a step.
func (l *Lane) finish(shares []*Share, start time.Time, err error) {
	if err == nil {
		l.passed(shares)
	}
	l.settle(shares, err)
	l.o.Metrics.step(err, time.Since(start))
}

// seal collects shares, beginning with another source each time, or with the first
// one that there was no room for. One source with suspects is enough for a step, as each
// of them takes a round trip.
func (l *Lane) seal(name string) []*Share {
	l.mu.Lock()
	sources := l.sources
	l.mu.Unlock()
	room := Room{Entries: l.limit, Bytes: MaxStepBytes}
	first := l.portions.begin(sources, room, int(l.counter), time.Now())
	var shares []*Share
	for i := range sources {
		s := sources[(first+i)%len(sources)]
		offered := l.portions.of(s, room)
		left := offered
		share := l.sealOf(s, name, &left)
		l.portions.took(s, share, offered, left)
		room.Entries -= offered.Entries - left.Entries
		room.Bytes -= offered.Bytes - left.Bytes
		if share != nil {
			shares = append(shares, share)
		}
		if room.Entries <= 0 || room.Bytes <= 0 || len(shares) >= MaxStepPartitions || share.suspects() {
			l.portions.next, l.portions.more = sources[(first+i+1)%len(sources)], true
			l.Wake() // others may have more
			break
		}
	}
	return shares
}

// sealOf asks one source. A share without a live token would have the step of all
// others aborted; a token that is dead stays dead, so its source is not asked again.
func (l *Lane) sealOf(s Source, name string, room *Room) *Share {
	share := s.Seal(name, room)
	if share == nil {
		return nil
	}
	share.source, share.Held, share.proven = s, nil, false
	if share.Token.Err() != nil {
		l.Remove(s)
		share.Done(Lost)
		return nil
	}
	return share
}

// settle tells every share what became of it.
func (l *Lane) settle(shares []*Share, err error) {
	for _, s := range shares {
		switch {
		case err == nil:
			s.Done(Committed)
		case errors.Is(err, errRefused), s.Token.Err() != nil:
			s.Done(Lost)
		default:
			s.Done(Aborted)
		}
	}
}
