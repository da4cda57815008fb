package transaction

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/hanging"
	"github.com/waterclock/waterclock/internal/targets"
	"github.com/waterclock/waterclock/internal/timer"
)

// A lane's loop serves many partitions, so it waits for nothing for long. What
// takes longer goes on beside it: ends of transactions that were given up (drop),
// commits that are not answered (resolve), partitions that hold up a step (quarantine).
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 2 * time.Second
	// maxSleep is how long a lane sleeps at most if nothing falls due and nobody wakes it.
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

// Options of lanes.
type Options struct {
	Client           []kgo.Opt   // brokers and security, as for every client
	Admin            *kgo.Client // asks coordinators, and reads records back
	Group            string
	Process          string // random, once per process
	Lanes            int    // how many there may be; 0: one
	TransactionalIDs int    // of each lane, 2 to 4; a quarantine has one
	// Interval is how long a lane waits at least from one seal to the next, unless more is ready; 0: not at all.
	Interval           time.Duration
	TransactionTimeout time.Duration
	// Health keeps what is known of unhealthy targets; nil: nobody probes.
	Health *targets.Health
	// Markers remembers how transactions ended; nil: nobody does.
	Markers *hanging.Markers
	// Leaders tells which brokers cannot be reached, and which partitions cannot be written to; nil: all
	// can be. The caller calls Lanes.Reached when that changes.
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
	Metrics *Metrics // nil: not shown
}

// Leaders tells which partitions cannot be written to now; a *targets.Leaders does.
type Leaders interface {
	// AllReachable reports that all brokers can be reached, which costs nothing.
	AllReachable() bool
	Reachable(addr string) bool
	// Dying reports that a broker was lost so recently that the others may not have
	// given it up.
	Dying() bool
	Away(p timer.TopicPartition) bool
	Leaderless(p timer.TopicPartition) bool
	Shun(p timer.TopicPartition) bool
}

// Lane is one loop of steps, one of its Lanes, or their quarantine's.
type Lane struct {
	of      *Lanes
	o       *Options // a quarantine's has its own
	name    string   // of its steps and transactional IDs within the process
	pool    *pool
	aborts  aborts
	counter int64 // of steps
	pace    pace
	more    bool    // the step under way may not have taken all that was ready
	timings timings // of the step under way
	size    size    // of the next step

	called  chan struct{} // a spare lane is to join
	reached chan struct{} // a broker came or went, for the step under way

	mu    sync.Mutex // guards under
	under underWay
}

// underWay is what the step under way needs and what gives it up; the zero value if there is none.
type underWay struct {
	current *txnClient         // the step needs its coordinator now
	joining map[string][]int32 // what the step is to write to, until joined
	cancel  context.CancelCauseFunc
}

func newLane(of *Lanes, o *Options, name string) *Lane {
	return &Lane{
		of: of, o: o, name: name, pool: newPool(of, o, name), aborts: aborts{of: of, o: o},
		called: make(chan struct{}, 1), reached: make(chan struct{}, 1),
		pace: pace{interval: o.Interval}, size: size{limit: MaxStepEntries},
	}
}

// run commits steps, while the lane is active, until ctx ends.
func (l *Lane) run(ctx context.Context) error {
	due := time.NewTimer(maxSleep)
	defer due.Stop()
	active, backoff := false, minBackoff
	for {
		if !active {
			select {
			case <-ctx.Done():
				return nil
			case <-l.called:
			}
			l.pool.prepare(ctx)
			l.of.joined()
			active = true
		}
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
			l.of.Wake() // others may do better
			_ = sleep(ctx, backoff)
			backoff = min(2*backoff, pauseLimit(l.o.Leaders))
			continue
		}
		backoff = minBackoff
		if active = !l.of.leaves(l); !active {
			l.of.Wake() // the watch is another's
			continue
		}
		if worked {
			continue
		}
		due.Reset(l.of.untilDue())
		select {
		case <-ctx.Done():
			return nil
		case <-l.of.wake:
		case <-due.C:
		}
	}
}

// step seals and runs one step. It reports whether there was one.
func (l *Lane) step(ctx context.Context) (bool, error) {
	at := time.Now()
	shares := l.seal(l.nextStep())
	if len(shares) == 0 {
		return false, nil
	}
	over := l.of.watch()
	err := l.runStep(ctx, shares)
	over()
	l.pace.sealed(at, l.more || err != nil)
	switch {
	case err == nil:
		l.size.committed(time.Since(at) - l.timings.of("announce", "offsets", "end"))
	case errors.Is(err, errLate), errors.Is(err, errHeld):
		l.size.unacknowledged()
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

// runStep runs the step of these shares and tells them its outcome; with errUnknown
// they are told later, by a goroutine of its own.
func (l *Lane) runStep(ctx context.Context, shares []*Share) error {
	start := time.Now()
	// A step that has begun is ended in order, also when the lane is stopped;
	// the broker's own limit bounds it.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.o.TransactionTimeout)
	defer cancel()
	err := l.commit(bounded, shares)
	if errors.Is(err, errUnknown) {
		c := l.pool.clients[l.pool.turn]
		l.pool.forget(c)
		l.of.aside.Go(func() {
			l.finish(ctx, shares, start, (&inDoubt{l, c, shares}).resolve())
			l.of.Wake()
		})
		return err
	}
	if c := l.pool.clients[l.pool.turn]; c != nil {
		c.used = time.Now()
	}
	l.finish(ctx, shares, start, err)
	return err
}

// finish tells everybody what became of a step.
func (l *Lane) finish(ctx context.Context, shares []*Share, start time.Time, err error) {
	if err == nil {
		l.passed(shares)
	}
	l.settle(shares, err)
	l.of.settled(ctx, shares)
	l.o.Metrics.step(err, time.Since(start))
}

// seal collects shares of the sources that are the lane's to ask. One source with suspects
// is enough for a step, as each of them takes a round trip.
func (l *Lane) seal(name string) (shares []*Share) {
	for {
		wakes := l.of.wakes.Load()
		limit := Room{Entries: l.size.limit, Bytes: MaxStepBytes}
		room := limit
		members, fair, others := l.of.claim(room, time.Now())
		full := false
		l.more = false
		var all []asked
		for _, m := range members {
			offered := fair.of(m, room)
			left := offered
			share := l.of.sealOf(m, name, &left)
			took := taken(share, offered, left)
			l.more = l.more || took.all
			all = append(all, asked{m, share, took})
			room = room.Minus(offered.Minus(left))
			if share != nil {
				shares = append(shares, share)
			}
			if full = room.IsUsedUp() || len(shares) >= MaxStepPartitions; full || share.suspects() {
				break
			}
		}
		several := l.of.sealed(all, members[len(all):], fair.room, limit.Minus(room), full)
		if len(all) < len(members) {
			l.more, others = true, true
		}
		if len(shares) > 0 && (others || several) {
			l.of.Wake()
		}
		if len(shares) > 0 || !others && (!several || l.of.wakes.Load() == wakes) {
			return shares
		}
	}
}

// sealOf asks one source. A share without a live token would have the step of all
// others aborted; a token that is dead stays dead, so its source is not asked again.
func (p *Lanes) sealOf(m *member, name string, room *Room) *Share {
	share := m.Seal(name, room)
	if share == nil {
		return nil
	}
	share.of, share.Held, share.proven = m, nil, false
	if share.Token.Err() != nil {
		p.drop(m)
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
