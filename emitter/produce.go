package emitter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// ownDeadline is how long a partition of our own may take to acknowledge the
	// records of a step; then the share that they are of holds it up.
	ownDeadline = 1500 * time.Millisecond
	// watchTick is how often a flush looks at its deadlines.
	watchTick = 100 * time.Millisecond
)

// outgoing is the sending of one step. Whoever is not acknowledged in time is
// named, and the step aborted: a share whose own records are not (Share.Held), or
// a target (accused). Only a partition's own errors count against it, never the
// producer's. mu guards what promises and the watch touch.
type outgoing struct {
	lane   *Lane
	c      *txnClient
	unsafe bool // buffered records were abandoned: the client is spent

	mu      sync.Mutex
	failure error // the last one
	broken  []brokenPromise
	own     map[*kgo.Record]ownRecord // sent and not acknowledged
	sent    int                       // how many they were
	held    bool                      // a share holds up the step
	away    bool                      // what is waited for is led by a broker that cannot be reached
	waiting map[TargetPartition]int   // emissions sent and not acknowledged
	accused map[TargetPartition]error
}

// produce sends everything and waits for every promise. A ward's lane sends
// emissions when all else is taken: what is written to a target holds its readers
// back, and here that may well be in vain.
func (o *outgoing) produce(ctx context.Context, shares []*Share) error {
	o.own = make(map[*kgo.Record]ownRecord)
	o.waiting = make(map[TargetPartition]int)
	o.accused = make(map[TargetPartition]error)
	emissions := o.register(shares)
	o.sent = len(o.own)
	for _, s := range shares {
		for _, r := range s.Records {
			o.c.Produce(ctx, r, func(r *kgo.Record, err error) { o.ownDone(s, r, err) })
		}
	}
	var err error
	if o.lane.ward == nil {
		err = o.flush(ctx)
	}
	if err == nil {
		err = o.send(ctx, emissions)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.away {
		return fmt.Errorf("%w: %w", errAway, err)
	}
	if o.held {
		err = fmt.Errorf("%w: %w", errHeld, err)
	}
	if len(o.accused) > 0 && err != nil {
		err = fmt.Errorf("%w: %w", errLate, err)
	}
	if o.verdict(emissions) {
		return fmt.Errorf("%w: %w", errEmissions, err)
	}
	return err
}

// send sends the emissions; one that is Alone is in no batch with others, and
// does not take from their time.
func (o *outgoing) send(ctx context.Context, emissions []*Emission) error {
	deadline, cancel := context.WithTimeout(ctx, o.patience())
	defer func() { cancel() }()
	flush := func() error {
		err := o.flush(ctx)
		cancel()
		deadline, cancel = context.WithTimeout(ctx, o.patience())
		return err
	}
	for _, e := range emissions {
		if e.Alone {
			if err := flush(); err != nil {
				return err
			}
		}
		o.mu.Lock()
		o.waiting[e.to()]++
		o.mu.Unlock()
		o.c.Produce(deadline, e.Record, func(_ *kgo.Record, err error) { o.emissionDone(e, err) })
		if e.Alone {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return o.flush(ctx)
}

// flush waits for every promise, as long as the watch lets it.
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

// register lists what is to be waited for, and returns the emissions in the
// order in which they are written.
func (o *outgoing) register(shares []*Share) (emissions []*Emission) {
	for _, s := range shares {
		for _, r := range s.Records {
			o.own[r] = ownRecord{s, TargetPartition{r.Topic, r.Partition}}
		}
		s.proven = true
		for i := range s.Emissions {
			emissions = append(emissions, &s.Emissions[i])
		}
	}
	slices.SortStableFunc(emissions, func(a, b *Emission) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Seq, b.Seq))
	})
	return emissions
}

func (o *outgoing) ownDone(s *Share, r *kgo.Record, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.own, r)
	if err == nil {
		return
	}
	s.proven = false
	if accuses(err) {
		o.hold(ownRecord{s, TargetPartition{r.Topic, r.Partition}}, err)
	}
	o.failure = fmt.Errorf("produce to %s/%d: %w", r.Topic, r.Partition, err)
	if refusedForGood(err) {
		s.Err = fmt.Errorf("the service's own topic %s refuses a record: %w", r.Topic, err)
	}
}

func (o *outgoing) emissionDone(e *Emission, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	to := e.to()
	if o.waiting[to]--; o.waiting[to] == 0 {
		delete(o.waiting, to)
	}
	if err == nil {
		return
	}
	o.failure = fmt.Errorf("produce to %s/%d: %w", to.Topic, to.Partition, err)
	o.broken = append(o.broken, brokenPromise{e, err})
	if accuses(err) {
		o.accused[to] = err
	}
}

// brokenPromise is an emission that was not acknowledged, and why.
type brokenPromise struct {
	*Emission
	err error
}

// ownRecord is what is known of a record of ours that is out: kgo writes to it.
type ownRecord struct {
	*Share
	to TargetPartition
}

// hold names a share that holds up the step. The lock is held.
func (o *outgoing) hold(own ownRecord, err error) {
	o.held = true
	own.hold(own.to, err)
}

// patience is how long targets may take. One whose leader waits for a dead broker
// to leave its in-sync replicas is not to blame.
func (o *outgoing) patience() time.Duration {
	if dying(o.lane.o.Reach) {
		return brokerDeath
	}
	return emissionDeadline
}

// watch ends a flush that takes too long: by unsafe means, since kgo does not give
// up records that a leader took and does not answer for. It counts ticks, so that
// nobody is blamed for the time in which this process stood still.
func (o *outgoing) watch(flushed <-chan struct{}) {
	t := time.NewTicker(watchTick)
	defer t.Stop()
	for waited := time.Duration(0); ; {
		if o.leadersAway() || o.overdue(waited) {
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

// leadersAway reports whether to give up, since a partition that is waited for is
// led by a broker that cannot be reached: what is sealed next does without it.
func (o *outgoing) leadersAway() bool {
	if o.lane.o.Reach.AllReachable() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, own := range o.own {
		o.away = o.away || o.lane.o.Leaders.Away(own.to)
	}
	for p := range o.waiting {
		o.away = o.away || o.lane.o.Leaders.Away(p)
	}
	o.unsafe = o.unsafe || o.away
	return o.away
}

// overdue names who has not acknowledged in time, and reports whether to give up.
func (o *outgoing) overdue(waited time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	wait := dying(o.lane.o.Reach)
	switch {
	case wait && len(o.own) == o.sent:
		return false // leaders wait for the dead broker to leave their in-sync replicas
	case len(o.own) > 0 && waited >= ownDeadline:
		// Also while a broker dies, where others need not wait for it.
		for _, own := range o.own {
			o.hold(own, fmt.Errorf("not acknowledged within %s", ownDeadline))
		}
	case wait:
		return o.leaderless(waited)
	case len(o.own) == 0 && len(o.waiting) > 0 && waited >= silentAfter:
		for p := range o.waiting {
			o.accused[p] = context.DeadlineExceeded
		}
	default:
		return false
	}
	o.unsafe = true
	return true
}

// leaderless names the targets that are waited for and have no leader, and reports
// whether to give up: the controller has given their broker up already, so there is
// nothing to wait for. The lock is held.
func (o *outgoing) leaderless(waited time.Duration) bool {
	if waited < emissionDeadline {
		return false
	}
	for p := range o.waiting {
		if o.lane.o.Leaders.Leaderless(p) {
			o.accused[p] = kerr.LeaderNotAvailable
		}
	}
	o.unsafe = o.unsafe || len(o.accused) > 0
	return o.unsafe
}

// verdict says who is to blame for broken promises, if the targets are, and
// reports whether sealing anew, at once, will do. The lock is held.
func (o *outgoing) verdict(emissions []*Emission) (blamed bool) {
	if len(o.accused) > 0 {
		o.lane.o.Health.Accuse(o.accused)
		for _, e := range emissions {
			if !o.lane.o.Health.Allow(e.to(), e.Permit) {
				e.Err, blamed = ErrSick, true
			}
		}
	}
	sent := make(map[TargetPartition]int)
	if len(o.broken) > 0 {
		for _, e := range emissions {
			sent[e.to()]++
		}
	}
	for _, r := range o.broken {
		topic := r.Record.Topic
		o.c.versions[topic] = outdated
		switch {
		case gone(r.err):
			o.lane.o.Refuted(topic)
		case !refusedForGood(r.err):
		case ofTopic(r.err), r.Alone, refusedHere(r.err), sent[r.to()] == 1:
			r.Err, blamed = r.err, true
		default:
			r.Suspect, blamed = true, true
			o.lane.o.Stale(topic)
		}
	}
	return blamed
}
