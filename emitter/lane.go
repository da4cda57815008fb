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

const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 2 * time.Second
	// abortTimeout bounds AbortBufferedRecords; after it the client is thrown
	// away, for the old records would travel in its next transaction.
	abortTimeout = time.Second
	// dropWait is how long a lane waits for the end of a transaction that it has
	// given up.
	dropWait = 500 * time.Millisecond
)

// Options of a lane.
type Options struct {
	Client             []kgo.Opt   // brokers and security, as for every client
	Admin              *kgo.Client // for reading offsets back
	Group              string
	Process            string // random, once per process
	Lane               int
	TransactionalIDs   int // used in turn, 2 to 4
	TransactionTimeout time.Duration
	// Health keeps what is known of sick targets; nil: nobody probes.
	Health *Health
	// Markers remembers how transactions ended; nil: nobody does.
	Markers *Markers
	// Leaderless reports whether a partition has no leader, from fresh metadata;
	// nil: it has one.
	Leaderless func(ctx context.Context, topic string, partition int32) bool
	// BatchMaxBytes is the largest record batch a topic takes.
	BatchMaxBytes func(topic string) int32
	// Version of what is known of a topic, and Stale, which says that it was
	// proved wrong: see Targets.
	Version func(topic string) int64
	Stale   func(topic string)
	Logger  *slog.Logger
	Metrics *Metrics
}

// Lane commits steps, one after another. Run is its one goroutine.
type Lane struct {
	o       Options
	wake    chan struct{}
	clients []*txnClient
	turn    int
	serial  int   // of transactional IDs
	counter int64 // of steps
	// limit is how many entries a step may have: fewer after a step that was
	// not acknowledged in time, for it may simply have been too large.
	limit int

	// enders end transactions that were given up, until ending is cancelled.
	enders sync.WaitGroup
	ending context.Context
	giveUp context.CancelFunc

	mu      sync.Mutex // guards sources
	sources []Source
}

// NewLane returns a lane without sources.
func NewLane(o Options) *Lane {
	if o.Health == nil {
		o.Health = NewHealth(nil, o.Logger)
	}
	if o.Leaderless == nil {
		o.Leaderless = func(context.Context, string, int32) bool { return false }
	}
	l := &Lane{o: o, wake: make(chan struct{}, 1), clients: make([]*txnClient, o.TransactionalIDs), limit: MaxStepEntries}
	l.ending, l.giveUp = context.WithCancel(context.Background())
	return l
}

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
	l.sources = slices.DeleteFunc(slices.Clone(l.sources), func(x Source) bool { return x == s })
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
	for {
		worked, err := l.step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, kerr.InvalidTransactionTimeout):
			return err
		case err != nil:
			l.o.Logger.Warn("step aborted", "lane", l.o.Lane, "err", err)
			_ = sleep(ctx, backoff)
			backoff = min(2*backoff, maxBackoff)
			continue
		}
		backoff = minBackoff
		if worked {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		}
	}
}

// prepare opens the clients ahead of the first steps. Errors show up there.
func (l *Lane) prepare(ctx context.Context) {
	for range l.clients {
		_, _ = l.client(ctx)
	}
}

func (l *Lane) close() {
	patience := time.AfterFunc(2*RequestTimeout, l.giveUp)
	defer patience.Stop()
	for _, c := range l.clients {
		if c != nil {
			c.Close()
		}
	}
	l.enders.Wait()
	l.giveUp()
}

// step seals, runs and settles one step. It reports whether there was one.
func (l *Lane) step(ctx context.Context) (bool, error) {
	l.counter++
	name := fmt.Sprintf("%s/%d/%d", l.o.Process, l.o.Lane, l.counter)
	shares := l.seal(name)
	if len(shares) == 0 {
		return false, nil
	}
	start := time.Now()
	// A step that has begun is ended in order, also when the lane is stopped;
	// the broker's own limit bounds it.
	run, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.o.TransactionTimeout)
	defer cancel()
	err := l.commit(run, shares)
	if errors.Is(err, errUnknown) {
		err = l.resolve(context.WithoutCancel(ctx), shares)
	}
	l.settle(shares, err)
	l.o.Metrics.step(err, time.Since(start))
	switch {
	case err == nil:
		l.limit = min(2*l.limit, MaxStepEntries)
		l.passed(shares)
	case errors.Is(err, errLate):
		l.limit = max(l.limit/4, minStepEntries)
	}
	if errors.Is(err, errEmissions) || errors.Is(err, errTokens) {
		return true, nil // sealed anew at once, without the culprits
	}
	return true, err
}

// seal collects shares, beginning with another source each time.
func (l *Lane) seal(name string) []*Share {
	l.mu.Lock()
	sources := l.sources
	l.mu.Unlock()
	room := &Room{Entries: l.limit, Bytes: MaxStepBytes}
	var shares []*Share
	for i := range sources {
		s := sources[(i+int(l.counter))%len(sources)]
		if share := s.Seal(name, room); share != nil {
			shares = append(shares, share)
		}
		if room.Entries <= 0 || room.Bytes <= 0 || len(shares) >= MaxStepPartitions {
			l.Wake() // others may have more
			break
		}
	}
	return shares
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

// commit runs one transaction. nil: committed. errUnknown: to be resolved.
// Anything else: aborted for sure.
func (l *Lane) commit(ctx context.Context, shares []*Share) error {
	if _, err := memberOf(shares); err != nil {
		return err
	}
	c, err := l.client(ctx)
	if err != nil {
		return err
	}
	parts := partitionsOf(shares)
	c.refresh(parts, l.o.Version)
	if err := c.BeginTransaction(); err != nil {
		l.drop(c)
		return fmt.Errorf("begin transaction: %w", err)
	}
	culprits, err := c.announce(ctx, parts)
	if errors.Is(err, errEmissions) {
		// Refused whole: the broker began nothing.
		if !l.blame(shares, culprits) {
			err = fmt.Errorf("a target topic is not where it was: %v", culprits) // no errEmissions: try again later
		}
		c.parts = nil
		if c.EndTransaction(ctx, kgo.TryAbort) != nil {
			l.drop(c)
		}
		return err
	}
	if err == nil {
		err = c.commitOffsets(ctx, l.o.Group, shares)
	}
	if err != nil {
		// Nothing is produced yet, so kgo's own abort would send nothing and
		// leave the broker's transaction open for the next one to join.
		l.drop(c)
		return err
	}
	out := outgoing{lane: l, c: c}
	err = out.produce(ctx, shares)
	if err == nil {
		err = c.awaitKnown(ctx, parts)
	}
	if err == nil {
		_, err = memberOf(shares)
	}
	if err != nil {
		// A target that fails may have no leader, and then misses the marker.
		c.retire = c.retire || len(out.accused) > 0
		if out.unsafe {
			l.drop(c)
		} else {
			l.abort(ctx, c)
		}
		for p := range out.accused {
			l.o.Markers.Moved(p)
		}
		return err
	}
	switch err := c.EndTransaction(ctx, kgo.TryCommit); {
	case err == nil:
		l.ended(c, EndingCommit)
		return nil
	case errors.Is(err, kerr.OperationNotAttempted):
		l.drop(c)
		return fmt.Errorf("end transaction: %w", err)
	default:
		l.o.Logger.Warn("outcome of a step is unknown", "lane", l.o.Lane, "transactional_id", c.id, "err", err)
		return errUnknown
	}
}

// passed tells Health of committed emissions, while any target is sick.
func (l *Lane) passed(shares []*Share) {
	if l.o.Health.Well() {
		return
	}
	counts := make(map[TargetPartition]int)
	for _, s := range shares {
		for i := range s.Emissions {
			counts[s.Emissions[i].to()]++
		}
	}
	for p, n := range counts {
		l.o.Health.Committed(p, n)
	}
}

// abort ends a transaction in which something was produced.
func (l *Lane) abort(ctx context.Context, c *txnClient) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	if err := c.AbortBufferedRecords(bounded); err != nil {
		c.UnsafeAbortBufferedRecords()
		l.drop(c)
		return
	}
	if err := c.EndTransaction(context.WithoutCancel(ctx), kgo.TryAbort); err != nil {
		l.drop(c)
		return
	}
	l.ended(c, EndingAbort)
}

// partitionsOf lists what the step will write to, in order.
func partitionsOf(shares []*Share) map[string][]int32 {
	seen := make(map[string]map[int32]struct{})
	out := make(map[string][]int32)
	add := func(r *kgo.Record) {
		ps := seen[r.Topic]
		if ps == nil {
			ps = make(map[int32]struct{})
			seen[r.Topic] = ps
		}
		if _, ok := ps[r.Partition]; !ok {
			ps[r.Partition] = struct{}{}
			out[r.Topic] = append(out[r.Topic], r.Partition)
		}
	}
	for _, s := range shares {
		for _, r := range s.Records {
			add(r)
		}
		for i := range s.Emissions {
			add(s.Emissions[i].Record)
		}
	}
	for _, ps := range out {
		slices.Sort(ps)
	}
	return out
}

// blame marks what goes to refused topics and reports whether there is any. A
// target that is gone is asked for again first: it may have been made anew, or
// this broker has not heard of it yet.
func (l *Lane) blame(shares []*Share, culprits map[string]error) (blamed bool) {
	for _, s := range shares {
		for i := range s.Emissions {
			topic := s.Emissions[i].Record.Topic
			switch err, ok := culprits[topic]; {
			case !ok:
			case gone(err):
				l.o.Stale(topic)
			default:
				s.Emissions[i].Err, blamed = err, true
			}
		}
		for _, r := range s.Records {
			if err, ok := culprits[r.Topic]; ok {
				s.Err, blamed = fmt.Errorf("the service's own topic %s refuses records: %w", r.Topic, err), true
			}
		}
	}
	return blamed
}
