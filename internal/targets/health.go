package targets

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// EmissionDeadline is how long a target may take to acknowledge an
	// emission; then its partition is unhealthy.
	EmissionDeadline = 2500 * time.Millisecond
	// breakerMin and breakerMax bound the time between two probes of an unhealthy
	// target partition; it doubles.
	breakerMin = 2 * time.Second
	breakerMax = 5 * time.Minute
	// BrokerDeath is for how long after the loss of a broker what fails is taken for its
	// death: partitions get other leaders by themselves, and other in-sync replicas.
	BrokerDeath = 12 * time.Second
	// wideOpen: a window that has grown so large is none.
	wideOpen = 16_384
	// probeTick is how often breakers are looked at.
	probeTick = 100 * time.Millisecond
	// admitAgain is when a window that no committed emission came of is admitted
	// once more.
	admitAgain = 5 * time.Second
	// idleFor is how long a breaker that nothing waits for is kept once its target
	// answers.
	idleFor = 10 * time.Second
	// maxProbes bounds the probes under way at a time.
	maxProbes = 8
)

// HealthOptions are what a Health goes by.
type HealthOptions struct {
	// Probe tries a partition; nil if there is no Run.
	Probe func(context.Context, timer.TopicPartition) error
	// Targets knows where topics have partitions; nil: nothing waits for a topic.
	Targets *Metadata
	// Now is the clock; nil is the machine's.
	Now    func() time.Time
	Logger *slog.Logger
}

// Health keeps a breaker for each target partition that is unhealthy. While a
// breaker is open nothing is sent there; a probe, a record in a transaction that
// is always aborted, tells when to try again. Then emissions pass one, two, four
// … at a time, each time after a committed step, and only a committed emission
// forgets the delay. A partition without a breaker is healthy.
//
// What passes carries a Permit of the window that is open. A breaker that opens
// again makes it void, wherever the emission is on its way: it is parked again
// instead of failing one more step.
//
// What waits for a topic as a whole has a breaker too, without probes and
// windows: AnyPartition ends when a partition with a leader is healthy (and lets
// pass what the window of a single partition has room for), Unplaced when
// Targets knows the topic, Beyond when the topic has other partitions than it had, or
// is known to have no more.
//
// A partition that is led by a broker which cannot be reached is unhealthy too,
// and is known to be healthy again without a probe: while something waits for it, it
// has a breaker that is away, which ends with that.
//
// Who has parked something waits by a Waiter, and is told when something may
// pass. What ends each state of a breaker: open, the next probe; a window, what
// is committed of it, admitAgain where nothing is, a new trip; idle,
// idleFor. mu guards breakers, probes, more, serial, and what Waiters hold.
type Health struct {
	o         HealthOptions
	unhealthy atomic.Int32  // number of breakers: the healthy way takes no lock
	wake      chan struct{} // Run looks at once
	led       leaders

	mu       sync.Mutex
	breakers map[timer.TopicPartition]*breaker
	probes   int  // under way
	more     bool // others may wait for a place among them
	serial   int64
}

// leaders are Leaders, or a test's.
type leaders interface {
	AllReachable() bool
	Away(timer.TopicPartition) bool
	Dying() bool
}

// breaker of one target partition: waiting for next, or probing, or with a
// window of emissions that may pass.
type breaker struct {
	delay    time.Duration
	next     time.Time
	probing  bool
	window   int       // 0 while open
	serial   int64     // of the window, while it grows
	admitted int       // of the window
	admitAt  time.Time // when something was admitted last
	waiters  map[*Waiter]struct{}
	idle     time.Time // since when nobody waits
	since    time.Time
	clock    bool // the partition refuses timestamps of this machine's clock
	// away: its leader could not be reached; only: and it is there for that alone.
	away, only bool
}

// NewHealth returns a Health without breakers.
func NewHealth(o HealthOptions) *Health {
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &Health{o: o, wake: make(chan struct{}, 1), led: NewLeaders(nil, o.Now), breakers: make(map[timer.TopicPartition]*breaker)}
	if o.Targets != nil {
		h.led = o.Targets.Leaders
		o.Targets.heard = h.poke
	}
	return h
}

// AllHealthy reports that nothing is unhealthy, which costs nothing.
func (h *Health) AllHealthy() bool { return h.unhealthy.Load() == 0 && h.led.AllReachable() }

// Allow reports whether an emission may go to p, permit being what it was admitted,
// if it was.
func (h *Health) Allow(p timer.TopicPartition, permit *Permit) bool {
	if p.Partition < 0 {
		return false
	}
	if h.AllHealthy() {
		return true
	}
	if h.led.Away(p) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.breakers[p]
	return b == nil || b.window > 0 && permit != nil && *permit == Permit{p, b.serial}
}

// Suspect opens a breaker without a trip, to be probed at once: the
// owner before had parked timers for p, or it is not known where p is.
func (h *Health) Suspect(p timer.TopicPartition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.suspect(p)
}

// suspect is Suspect with the lock held.
func (h *Health) suspect(p timer.TopicPartition) *breaker {
	b := h.breakers[p]
	if b == nil {
		now := h.o.Now()
		b = newBreaker(now)
		b.next = now
		h.open(p, b)
		h.poke()
	}
	return b
}

func newBreaker(now time.Time) *breaker {
	return &breaker{delay: breakerMin, since: now, idle: now, waiters: make(map[*Waiter]struct{})}
}

// Trip opens breakers for the partitions that failed in one step. Where several
// fail at once while a broker dies only for those that are known to have no leader,
// for the controller has given their broker up already, and for those that refuse the
// clock, which is no sign of a broker's death. While all brokers are there, so is what
// they fail for (too few replicas, a full disk), and the step of all others would wait.
func (h *Health) Trip(ps map[timer.TopicPartition]error) {
	now := h.o.Now()
	dying := len(ps) > 1 && h.led.Dying()
	h.mu.Lock()
	defer h.mu.Unlock()
	waiting := 0
	for p, err := range ps {
		clock := errors.Is(err, kerr.InvalidTimestamp)
		if dying && !clock && !errors.Is(err, kerr.LeaderNotAvailable) {
			waiting++
			continue
		}
		b := h.breakers[p]
		if b == nil {
			b = newBreaker(now)
			h.o.Logger.Warn("target partition is unhealthy, its timers wait", "topic", p.Topic, "partition", p.Partition, "err", err)
		} else if b.window > 0 {
			b.delay = min(2*b.delay, breakerMax)
		}
		b.window, b.admitted, b.next, b.clock, b.only = 0, 0, now.Add(b.delay), clock, false
		h.open(p, b)
	}
	if waiting > 0 {
		h.o.Logger.Warn("several target partitions fail at once: waiting for new leaders", "partitions", waiting)
	}
}

// Avoid opens a breaker for a partition of the dead letters that takes no record:
// they go to another one until a probe gets through.
func (h *Health) Avoid(p timer.TopicPartition, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.breakers[p] != nil {
		return
	}
	b := newBreaker(h.o.Now())
	b.next = b.since.Add(breakerMin)
	h.o.Logger.Warn("dead letters go to another partition, this one takes none", "topic", p.Topic, "partition", p.Partition, "err", err)
	h.open(p, b)
}

func (h *Health) open(p timer.TopicPartition, b *breaker) {
	h.breakers[p] = b
	h.unhealthy.Store(int32(len(h.breakers)))
}

// Committed tells that n emissions to p were committed.
func (h *Health) Committed(p timer.TopicPartition, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.breakers[p]
	if b == nil || b.window == 0 {
		return
	}
	b.window, b.admitted, b.delay = 2*max(b.window, n), 0, breakerMin
	if b.window >= wideOpen {
		h.close(p)
		return
	}
	b.tell(p)
}

// close forgets a breaker. The lock is held.
func (h *Health) close(p timer.TopicPartition) {
	b := h.breakers[p]
	delete(h.breakers, p)
	h.unhealthy.Store(int32(len(h.breakers)))
	b.tell(p)
	if p.Partition >= 0 && b.window > 0 {
		h.o.Logger.Info("target partition is healthy again", "topic", p.Topic, "partition", p.Partition)
	}
}

// Unhealthy returns the unhealthy partitions and since when.
func (h *Health) Unhealthy() map[timer.TopicPartition]time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[timer.TopicPartition]time.Time, len(h.breakers))
	for p, b := range h.breakers {
		out[p] = b.since
	}
	return out
}

// RefuseClock returns how many partitions refuse timestamps of this machine's
// clock, and one of them. That says something about the clock, or about a limit
// of the topic, and nothing about a timer: those wait as for any unhealthy partition.
func (h *Health) RefuseClock() (n int, one timer.TopicPartition) {
	if h.AllHealthy() {
		return 0, one
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for p, b := range h.breakers {
		if b.clock {
			n, one = n+1, p
		}
	}
	return n, one
}

// ClockSet has the partitions that refuse the clock probed at once.
func (h *Health) ClockSet() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.breakers {
		if b.clock {
			b.delay, b.next = breakerMin, h.o.Now()
		}
	}
}
