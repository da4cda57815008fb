package emitter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// ownDeadline is how long one of the service's own partitions may take to acknowledge the records of a step. After
	// that their share holds up the step.
	ownDeadline = 1500 * time.Millisecond
	// unresponsiveAfter is how long a step waits for leaders that took a request and do not answer. kgo does not give
	// up such records.
	unresponsiveAfter = 3500 * time.Millisecond
	// watchTick is how often a flush looks at its deadlines.
	watchTick = 100 * time.Millisecond
	// aloneDeadline is how long a step continues to write emissions that are Alone. Each takes a round trip. The next
	// step writes the rest: readers of the targets wait for the transaction, and if it outlived its timeout, the next
	// one would begin with the same emissions again, forever.
	aloneDeadline = 5 * time.Second
)

// outgoing is the sending of one step. If a partition does not acknowledge its records in time, the step is aborted and
// the partition is named: in Share.Held if the records are the share's own, and by its breaker if it is a target. Only
// a partition's own errors count against it, never the producer's.
//
// The promises of acknowledged records, which are nearly all, only count down in the partition set. mu guards the
// fields that the other promises and the watch use.
type outgoing struct {
	lane   *Lane
	c      *txnClient
	shares []*Share
	to     *partitionSet
	sent   int32 // the number of records to the service's own topics, once all are sent
	unsafe bool  // buffered records were abandoned: the client is to be retired
	// emitting is the context of emissions, nil before the first one. The loop changes it between two flushes. The
	// watch of a flush ends it.
	emitting *patience

	mu      sync.Mutex
	failure error // the last one
	broken  []brokenPromise
	// the last time in the flush at which a dying broker kept all of the shares' own records waiting
	taken time.Duration
	held  bool // a share holds up the step
	// unreachable means that the leader of an outstanding partition cannot be reached.
	unreachable bool
	tripped     map[timer.TopicPartition]error
}

// produce sends all records and waits for every promise. A quarantine's lane sends emissions only when all other
// records are acknowledged: a record in a target blocks its readers until the transaction ends, and in a quarantine
// that may well be in vain.
func (o *outgoing) produce(ctx context.Context) error {
	o.tripped = make(map[timer.TopicPartition]error)
	for i, s := range o.shares {
		o.produceOwn(ctx, s, o.to.own[i])
	}
	emissions := ordered(o.shares)
	var err error
	if o.lane.aborts.apart {
		err = o.flush(ctx)
	}
	if err == nil {
		err = o.send(ctx, emissions)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unreachable {
		return fmt.Errorf("%w: %w", errUnreachable, err)
	}
	if o.held {
		err = fmt.Errorf("%w: %w", errHeld, err)
	}
	if len(o.tripped) > 0 && err != nil {
		err = fmt.Errorf("%w: %w", errLate, err)
	}
	if o.verdict(emissions) {
		return fmt.Errorf("%w: %w", errEmissions, err)
	}
	return err
}

// send sends the emissions. An emission that is Alone shares no batch with others, and its round trip does not count
// against their deadline.
func (o *outgoing) send(ctx context.Context, emissions []*Emission) error {
	o.emitting = newPatience(ctx)
	defer func() { o.emitting.end() }()
	flush := func() error {
		err := o.flush(ctx)
		o.emitting.end()
		o.emitting = newPatience(ctx)
		return err
	}
	done := o.emissionDone
	begun, cleared := time.Now(), 0
	for _, e := range emissions {
		if e.Alone {
			if cleared > 0 && time.Since(begun) >= aloneDeadline {
				return fmt.Errorf("%w: %d are cleared", errAlone, cleared)
			}
			if err := flush(); err != nil {
				return err
			}
		}
		o.to.emissions(e.Record.Topic, e.Record.Partition).n.Add(1)
		o.c.Produce(o.emitting, e.Record, done)
		if e.Alone {
			if err := flush(); err != nil {
				return err
			}
			e.Cleared = true
			cleared++
		}
	}
	return o.flush(ctx)
}

// flush waits for every promise, until the watch gives up.
func (o *outgoing) flush(ctx context.Context) error {
	flushed := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { o.watch(flushed) })
	err := o.c.Flush(ctx)
	close(flushed)
	watch.Wait()
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failure
}

// produceOwn sends a share's own records; counts has a counter for each partition that they go to.
func (o *outgoing) produceOwn(ctx context.Context, s *Share, counts []*outstanding) {
	s.proven = true
	done := func(r *kgo.Record, err error) {
		own := countOf(counts, r.Topic, r.Partition)
		if err != nil {
			o.ownFailed(s, own.to, err)
		}
		own.n.Add(-1) // last: see acknowledged
	}
	for _, r := range s.Records {
		countOf(counts, r.Topic, r.Partition).n.Add(1)
		o.c.Produce(ctx, r, done)
	}
	o.sent += int32(len(s.Records))
}

// acknowledged returns the shares whose own records were all acknowledged.
func (o *outgoing) acknowledged() (shares []*Share) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, s := range o.shares {
		if s.proven && !slices.ContainsFunc(o.to.own[i], func(c *outstanding) bool { return c.n.Load() > 0 }) {
			shares = append(shares, s)
		}
	}
	return shares
}

// ordered returns the emissions of all shares in the order in which they are written.
func ordered(shares []*Share) []*Emission {
	n := 0
	for _, s := range shares {
		n += len(s.Emissions)
	}
	type rank struct {
		due, seq int64
		n        int // position among all
	}
	all, order := make([]*Emission, 0, n), make([]rank, 0, n)
	for _, s := range shares {
		for i := range s.Emissions {
			e := &s.Emissions[i]
			order = append(order, rank{e.Due, e.Seq, len(all)})
			all = append(all, e)
		}
	}
	slices.SortFunc(order, func(a, b rank) int {
		if a.due != b.due {
			return cmp.Compare(a.due, b.due)
		}
		return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.n, b.n))
	})
	sorted := make([]*Emission, n)
	for i, p := range order {
		sorted[i] = all[p.n]
	}
	return sorted
}

func (o *outgoing) ownFailed(s *Share, to timer.TopicPartition, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.proven = false
	o.failure = fmt.Errorf("produce to %s/%d: %w", to.Topic, to.Partition, err)
	switch {
	case targets.Trips(err):
		o.hold(s, to, err)
	case targets.RefusedForGood(err):
		o.held = o.held || !targets.Gone(err)
		s.refused(to, err)
		o.lane.o.Targets.Stale(to.Topic)
	}
}

func (o *outgoing) emissionDone(r *kgo.Record, err error) {
	waits := o.to.emissions(r.Topic, r.Partition)
	waits.n.Add(-1)
	if err == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failure = fmt.Errorf("produce to %s/%d: %w", r.Topic, r.Partition, err)
	o.broken = append(o.broken, brokenPromise{r, err})
	if targets.Trips(err) {
		o.tripped[waits.to] = err
	}
}

// brokenPromise is an emission that was not acknowledged, and why.
type brokenPromise struct {
	*kgo.Record
	err error
}

// hold names a share that holds up the step. The lock is held.
func (o *outgoing) hold(s *Share, to timer.TopicPartition, err error) {
	o.held = true
	s.hold(to, err)
}

// patience is how long targets may take. It is longer while a broker is dying: a leader that waits for the
// broker to leave its in-sync replicas is not to blame.
func (o *outgoing) patience() time.Duration {
	if o.lane.o.Leaders.Dying() {
		return targets.BrokerDeath
	}
	return targets.EmissionDeadline
}

// patience is the context of emissions. It ends with context.DeadlineExceeded when a watch has counted that their
// targets had their time; kgo then gives up the emissions that no leader has accepted. It ends with context.Canceled
// when the step ends, which says nothing about the targets. A context's own deadline would not do: it would also pass
// while this process stands still, with the answer waiting to be read.
type patience struct {
	context.Context
	end  context.CancelFunc
	lost atomic.Bool
}

var _ context.Context = (*patience)(nil)

func newPatience(ctx context.Context) *patience {
	p := new(patience)
	p.Context, p.end = context.WithCancel(ctx)
	return p
}

func (p *patience) lose() {
	p.lost.Store(true)
	p.end()
}

func (p *patience) Err() error {
	switch {
	case p.Context.Err() == nil:
		return nil
	case p.lost.Load():
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// watch ends a flush that takes too long. It has to use unsafe means, because kgo does not give up records that a
// leader accepted and does not answer. It counts ticks, so that no partition is blamed for the time in which this
// process stood still.
func (o *outgoing) watch(flushed <-chan struct{}) {
	t := time.NewTicker(watchTick)
	defer t.Stop()
	limit := o.patience()
	for waited := time.Duration(0); ; {
		if o.emitting != nil && waited >= limit {
			o.emitting.lose()
		}
		if o.leadersUnreachable() || o.overdue(waited) {
			o.c.UnsafeAbortBufferedRecords()
			return
		}
		select {
		case <-flushed:
			return
		case <-o.lane.reached:
		case <-t.C:
			waited += watchTick
		}
	}
}

// leadersUnreachable reports whether to give up because the leader of an outstanding partition cannot be reached. The
// next step goes without it.
func (o *outgoing) leadersUnreachable() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	look := func(p timer.TopicPartition) { o.unreachable = o.unreachable || o.lane.o.Leaders.Unreachable(p) }
	o.to.ownWaiting(func(_ int, p timer.TopicPartition) { look(p) })
	o.to.waiting(look)
	o.unsafe = o.unsafe || o.unreachable
	return o.unreachable
}

// overdue names the partitions that have not acknowledged in time, and reports whether to give up.
func (o *outgoing) overdue(waited time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	wait := o.lane.o.Leaders.Dying()
	own := o.to.ownWaiting(func(int, timer.TopicPartition) {})
	late := false
	switch {
	case wait && own == o.sent:
		o.taken = waited
		return false // the leaders wait for the dead broker to leave their in-sync replicas
	case own > 0 && waited >= ownDeadline:
		// Hold even while a broker is dying: partitions that do not have it in their ISR must not wait.
		o.to.ownWaiting(func(share int, p timer.TopicPartition) {
			o.hold(o.shares[share], p, fmt.Errorf("not acknowledged within %s", ownDeadline))
			late = true
		})
	case wait:
		return o.waitInVain(waited)
	case own == 0 && waited >= unresponsiveAfter:
		o.to.waiting(func(p timer.TopicPartition) {
			o.tripped[p] = context.DeadlineExceeded
			late = true
		})
	}
	o.unsafe = o.unsafe || late
	return late
}

// waitInVain reports whether to give up while a broker dies. It blames targets without a leader: the controller has
// already given up their broker, so there is nothing to wait for. If the leader of a target waits for the dead broker
// and other leaders do not, it excludes the target, so that the rest of the step can proceed. The lock is held.
func (o *outgoing) waitInVain(waited time.Duration) bool {
	if waited < targets.EmissionDeadline {
		return false
	}
	o.to.waiting(func(p timer.TopicPartition) {
		switch {
		case o.lane.o.Leaders.Leaderless(p):
			o.tripped[p] = kerr.LeaderNotAvailable
		case waited >= o.taken+targets.EmissionDeadline && o.lane.o.Leaders.Exclude(p):
			o.unreachable = true
		}
	})
	o.unsafe = o.unsafe || o.unreachable || len(o.tripped) > 0
	return o.unsafe
}

// verdict marks the emissions whose targets are to blame for broken promises, and reports whether there are any. If
// there are, the shares may be sealed again immediately. The lock is held.
func (o *outgoing) verdict(emissions []*Emission) (blamed bool) {
	if len(o.tripped) > 0 {
		o.lane.o.Health.Trip(o.tripped)
		for _, e := range emissions {
			if !o.lane.o.Health.Allow(e.to(), e.Permit) {
				e.Err, blamed = ErrUnhealthy, true
			}
		}
	}
	if len(o.broken) == 0 {
		return blamed
	}
	sent, byRecord := make(map[timer.TopicPartition]int), make(map[*kgo.Record]*Emission, len(emissions))
	for _, e := range emissions {
		sent[e.to()]++
		byRecord[e.Record] = e
	}
	for _, r := range o.broken {
		e, topic := byRecord[r.Record], r.Topic
		o.c.versions[topic] = topicUse{outdated, time.Now()}
		switch {
		case targets.Gone(r.err):
			o.lane.o.Targets.Refuted(topic)
		case !targets.RefusedForGood(r.err):
		case ofTopic(r.err), e.Alone, refusedHere(r.err), sent[e.to()] == 1:
			e.Err, blamed = r.err, true
		default:
			e.Suspect, blamed = true, true
			o.lane.o.Targets.Stale(topic)
		}
	}
	return blamed
}
