package emitter

import (
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

// produce sends all records and waits for every promise. A quarantine's lane sends emissions only when all other
// records are acknowledged: a record in a target blocks its readers until the transaction ends, and in a quarantine
// that may well be in vain.
func (t *transaction) produce(ctx context.Context) error {
	t.tripped = make(map[timer.TopicPartition]error)
	for i, s := range t.shares {
		t.produceOwn(ctx, s, t.to.own[i])
	}
	emissions := ordered(t.shares)
	var err error
	if t.lane.aborts.apart {
		err = t.flush(ctx)
	}
	if err == nil {
		err = t.send(ctx, emissions)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unreachable {
		return fmt.Errorf("%w: %w", errUnreachable, err)
	}
	if t.held {
		err = fmt.Errorf("%w: %w", errHeld, err)
	}
	if len(t.tripped) > 0 && err != nil {
		err = fmt.Errorf("%w: %w", errLate, err)
	}
	if t.verdict(emissions) {
		return fmt.Errorf("%w: %w", errEmissions, err)
	}
	return err
}

// send sends the emissions. An emission that is Alone shares no batch with others, and its round trip does not count
// against their deadline.
func (t *transaction) send(ctx context.Context, emissions []*Emission) error {
	t.emitting = newPatience(ctx)
	defer func() { t.emitting.end() }()
	flush := func() error {
		err := t.flush(ctx)
		t.emitting.end()
		t.emitting = newPatience(ctx)
		return err
	}
	done := t.emissionDone
	begun, cleared := time.Now(), 0
	for _, e := range emissions {
		if e.Alone {
			if cleared > 0 && time.Since(begun) >= aloneDeadline {
				return fmt.Errorf("%w: %d of them were written", errAlone, cleared)
			}
			if err := flush(); err != nil {
				return err
			}
		}
		t.to.emissions(e.Record.Topic, e.Record.Partition).n.Add(1)
		t.c.Produce(t.emitting, e.Record, done)
		if e.Alone {
			if err := flush(); err != nil {
				return err
			}
			e.Cleared = true
			cleared++
		}
	}
	return t.flush(ctx)
}

// flush waits for every promise, until the watch gives up.
func (t *transaction) flush(ctx context.Context) error {
	flushed := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { t.watch(flushed) })
	err := t.c.Flush(ctx)
	close(flushed)
	watch.Wait()
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failure
}

// produceOwn sends a share's own records; counts has a counter for each partition that they go to.
func (t *transaction) produceOwn(ctx context.Context, s *Share, counts []*outstanding) {
	s.proven = true
	done := func(r *kgo.Record, err error) {
		own := countOf(counts, r.Topic, r.Partition)
		if err != nil {
			t.ownFailed(s, own.to, err)
		}
		own.n.Add(-1) // last: see acknowledged
	}
	for _, r := range s.Records {
		countOf(counts, r.Topic, r.Partition).n.Add(1)
		t.c.Produce(ctx, r, done)
	}
	t.sent += int32(len(s.Records))
}

// acknowledged returns the shares whose own records were all acknowledged.
func (t *transaction) acknowledged() (shares []*Share) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, s := range t.shares {
		if s.proven && !slices.ContainsFunc(t.to.own[i], func(c *outstanding) bool { return c.n.Load() > 0 }) {
			shares = append(shares, s)
		}
	}
	return shares
}

// ordered returns the emissions of all shares in the order in which they are written. Those of a share are mostly in
// order already.
func ordered(shares []*Share) []*Emission {
	n := 0
	for _, s := range shares {
		n += len(s.Emissions)
	}
	all := make([]rank, 0, n)
	for _, s := range shares {
		for i := range s.Emissions {
			e := &s.Emissions[i]
			all = append(all, rank{e.Due, e.Seq, e})
		}
	}
	sorted := make([]*Emission, n)
	for i, r := range merged(all) {
		sorted[i] = r.emission
	}
	return sorted
}

// rank is the place of an emission in the order of writing.
type rank struct {
	due, seq int64
	emission *Emission
}

func (r *rank) before(o *rank) bool { return r.due < o.due || r.due == o.due && r.seq < o.seq }

// merged sorts a list, and leaves equal ranks in their order. It is a merge sort that begins with the runs that are in
// order already. There are few of them, because the firings of each planner are one run.
func merged(list []rank) []rank {
	var ends []int // of the runs
	for i := range list {
		if i+1 == len(list) || list[i+1].before(&list[i]) {
			ends = append(ends, i+1)
		}
	}
	for to := make([]rank, 0, len(list)); len(ends) > 1; {
		from, longer := 0, ends[:0]
		for len(ends) > 1 {
			a, b := list[from:ends[0]], list[ends[0]:ends[1]]
			for len(a) > 0 && len(b) > 0 {
				if b[0].before(&a[0]) {
					to, b = append(to, b[0]), b[1:]
				} else {
					to, a = append(to, a[0]), a[1:]
				}
			}
			to = append(append(to, a...), b...)
			from, ends, longer = ends[1], ends[2:], append(longer, ends[1])
		}
		if len(ends) == 1 {
			to, longer = append(to, list[from:]...), append(longer, ends[0])
		}
		list, to, ends = to, list[:0], longer
	}
	return list
}

func (t *transaction) ownFailed(s *Share, to timer.TopicPartition, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.proven = false
	t.failure = fmt.Errorf("produce to %s/%d: %w", to.Topic, to.Partition, err)
	switch {
	case targets.Trips(err):
		t.hold(s, to, err)
	case targets.RefusedForGood(err):
		t.held = t.held || !targets.Gone(err)
		s.refused(to, err)
		t.lane.o.Targets.Stale(to.Topic)
	}
}

func (t *transaction) emissionDone(r *kgo.Record, err error) {
	waits := t.to.emissions(r.Topic, r.Partition)
	waits.n.Add(-1)
	if err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = fmt.Errorf("produce to %s/%d: %w", r.Topic, r.Partition, err)
	if t.broken == nil {
		t.broken = make(map[*kgo.Record]error)
	}
	t.broken[r] = err
	if targets.Trips(err) {
		t.tripped[waits.to] = err
	}
}

// hold names a share that holds up the step. The lock is held.
func (t *transaction) hold(s *Share, to timer.TopicPartition, err error) {
	t.held = true
	s.hold(to, err)
}

// patience is how long targets may take. It is longer while a broker is dying: a leader that waits for the
// broker to leave its in-sync replicas is not to blame.
func (t *transaction) patience() time.Duration {
	if t.lane.o.Leaders.Dying() {
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
func (t *transaction) watch(flushed <-chan struct{}) {
	ticks := time.NewTicker(watchTick)
	defer ticks.Stop()
	limit := t.patience()
	for waited := time.Duration(0); ; {
		if t.emitting != nil && waited >= limit {
			t.emitting.lose()
		}
		if t.leadersUnreachable() || t.overdue(waited) {
			t.c.UnsafeAbortBufferedRecords()
			return
		}
		select {
		case <-flushed:
			return
		case <-t.lane.reached:
		case <-ticks.C:
			waited += watchTick
		}
	}
}

// leadersUnreachable reports whether to give up because the leader of an outstanding partition cannot be reached. The
// next step goes without it.
func (t *transaction) leadersUnreachable() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	look := func(p timer.TopicPartition) { t.unreachable = t.unreachable || t.lane.o.Leaders.Unreachable(p) }
	t.to.ownWaiting(func(_ int, p timer.TopicPartition) { look(p) })
	t.to.waiting(look)
	t.unsafe = t.unsafe || t.unreachable
	return t.unreachable
}

// overdue names the partitions that have not acknowledged in time, and reports whether to give up.
func (t *transaction) overdue(waited time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := t.lane.o.Leaders.Dying()
	own := t.to.ownWaiting(func(int, timer.TopicPartition) {})
	late := false
	switch {
	case wait && own == t.sent:
		t.taken = waited
		return false // the leaders wait for the dead broker to leave their in-sync replicas
	case own > 0 && waited >= ownDeadline:
		// Hold even while a broker is dying: partitions that do not have it in their ISR must not wait.
		t.to.ownWaiting(func(share int, p timer.TopicPartition) {
			t.hold(t.shares[share], p, fmt.Errorf("not acknowledged within %s", ownDeadline))
			late = true
		})
	case wait:
		return t.waitInVain(waited)
	case own == 0 && waited >= unresponsiveAfter:
		t.to.waiting(func(p timer.TopicPartition) {
			t.tripped[p] = context.DeadlineExceeded
			late = true
		})
	}
	t.unsafe = t.unsafe || late
	return late
}

// waitInVain reports whether to give up while a broker dies. It blames targets without a leader: the controller has
// already given up their broker, so there is nothing to wait for. If the leader of a target waits for the dead broker
// and other leaders do not, it excludes the target, so that the rest of the step can proceed. The lock is held.
func (t *transaction) waitInVain(waited time.Duration) bool {
	if waited < targets.EmissionDeadline {
		return false
	}
	t.to.waiting(func(p timer.TopicPartition) {
		switch {
		case t.lane.o.Leaders.Leaderless(p):
			t.tripped[p] = kerr.LeaderNotAvailable
		case waited >= t.taken+targets.EmissionDeadline && t.lane.o.Leaders.Exclude(p):
			t.unreachable = true
		}
	})
	t.unsafe = t.unsafe || t.unreachable || len(t.tripped) > 0
	return t.unsafe
}

// verdict marks the emissions whose targets are to blame for broken promises, and reports whether there are any. If
// there are, the shares may be sealed again immediately. The lock is held.
func (t *transaction) verdict(emissions []*Emission) (blamed bool) {
	if len(t.tripped) > 0 {
		t.lane.o.Health.Trip(t.tripped)
		for _, e := range emissions {
			if !t.lane.o.Health.Allow(e.To(), e.Permit) {
				e.Err, blamed = ErrUnhealthy, true
			}
		}
	}
	if len(t.broken) == 0 {
		return blamed
	}
	sent := make(map[timer.TopicPartition]int)
	for _, e := range emissions {
		sent[e.To()]++
	}
	for _, e := range emissions {
		err, topic := t.broken[e.Record], e.Record.Topic
		if err == nil {
			continue
		}
		t.c.versions[topic] = topicUse{outdated, time.Now()}
		switch {
		case targets.Gone(err):
			t.lane.o.Targets.Refuted(topic)
		case !targets.RefusedForGood(err):
		case ofTopic(err), e.Alone, refusedHere(err), sent[e.To()] == 1:
			e.Err, blamed = err, true
		default:
			e.Suspect, blamed = true, true
			t.lane.o.Targets.Stale(topic)
		}
	}
	return blamed
}
