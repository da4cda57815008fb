package targets

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// EmissionDeadline is how long a target may take to acknowledge an emission. After that its partition is
	// unhealthy.
	EmissionDeadline = 2500 * time.Millisecond
	// The time between two probes of an unhealthy target partition doubles from breakerMin to breakerMax.
	breakerMin = 2 * time.Second
	breakerMax = 5 * time.Minute
	// wideOpen is the size of the window at which a half-open breaker closes.
	wideOpen = 16_384
	// probeTick is how often breakers are checked.
	probeTick = 100 * time.Millisecond
	// admitAgain is the pause after which a window admits as many emissions once more, if none of the last ones was
	// committed.
	admitAgain = 5 * time.Second
	// unusedAgain is the pause if they were not sent: see Unused.
	unusedAgain = time.Second
	// idleFor is how long a breaker without waiting emissions is kept once its target responds.
	idleFor = 10 * time.Second
	// maxProbes bounds the probes in flight.
	maxProbes = 8
)

// HealthOptions are the settings of a Health.
type HealthOptions struct {
	// Probe tries a partition; nil if there is no Run.
	Probe func(context.Context, timer.TopicPartition) error
	// Targets knows where topics have partitions; nil: nothing waits for a topic.
	Targets *Metadata
	// Now is the clock; nil is the machine's.
	Now    func() time.Time
	Logger *slog.Logger
}

// Health keeps a breaker for each target partition that is unhealthy. A partition without a breaker is
// healthy. A breaker has these states:
//
//	state        admits                       ended by
//	open         nothing                      a probe that succeeds, or is rejected permanently
//	half-open    window emissions at a time,  each committed step doubles the window, up to wideOpen;
//	             with a Permit                a new trip opens the breaker again; Recovered closes it
//	unreachable  nothing                      metadata, or the broker's return: no probe is needed
//	idle         as the state before          idleFor: no emission has waited for the partition
//
// If no emission of a window is committed, it admits as many again after admitAgain. A breaker that opens again makes
// the permits of its last window void, wherever their emissions are: these wait again instead of failing one more
// step. Only a committed emission resets the delay between probes.
//
// Emissions that wait for a topic as a whole have a breaker too, without probes and windows:
//
//   - AnyPartition ends when a partition with a leader is healthy. Until then it admits what the window of a single
//     partition has room for.
//   - Unplaced ends when Targets knows the topic.
//   - Beyond ends when the topic has other partitions than it had, or is known to have no more.
//
// mu guards breakers, probes, more, serial, and the fields of Waiters.
type Health struct {
	o         HealthOptions
	unhealthy atomic.Int32 // number of breakers: the healthy way takes no lock
	wake      beats.Signal // tells Run to check immediately
	leaders   leaders

	mu       sync.Mutex
	breakers map[timer.TopicPartition]*breaker
	probes   int  // in flight
	more     bool // further probes may wait for a place
	serial   int64
}

// leaders is *Leaders, or a test's fake.
type leaders interface {
	AllReachable() bool
	Unreachable(timer.TopicPartition) bool
	Dying() bool
}

// breaker keeps emissions from one target partition: see Health.
type breaker struct {
	delay    time.Duration
	next     time.Time
	probing  bool
	window   int       // 0 while the breaker is open
	serial   int64     // of the window, while it grows
	admitted int       // of the window
	admitAt  time.Time // when emissions were last admitted; earlier after Unused
	waiters  map[*Waiter]struct{}
	idle     time.Time // since when no emission waits
	since    time.Time
	clock    bool // the partition rejects timestamps of this machine's clock
	// unreachable is as in Leaders; only means that this is the sole reason for the breaker.
	unreachable, only bool
}

// Permit lets an emission pass a breaker that is half-open. It is valid for one window of that breaker.
type Permit struct {
	To     timer.TopicPartition
	window int64 // serial of the window
}

// Waiter tells its owner, whose emissions wait for targets, when some of them may pass: a breaker closed, its
// window opened or grew, or none of the admitted emissions was committed. So nothing polls targets.
//
// The owner calls Wait when it keeps an emission for a target. Admit registers the waiter again if it leaves some, so
// the waiter also hears of a breaker that opened in between.
type Waiter struct {
	h     *Health
	wake  func()
	ready map[timer.TopicPartition]struct{} // Health.mu guards it
}

// NewHealth returns a Health without breakers.
func NewHealth(o HealthOptions) *Health {
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &Health{o: o, wake: beats.NewSignal(), leaders: NewLeaders(nil, o.Now),
		breakers: make(map[timer.TopicPartition]*breaker)}
	if o.Targets != nil {
		h.leaders = o.Targets.Leaders
		o.Targets.answered = h.wakeRun
	}
	return h
}

// AllHealthy reports that nothing is unhealthy. It takes no lock.
func (h *Health) AllHealthy() bool { return h.unhealthy.Load() == 0 && h.leaders.AllReachable() }

// Allow reports whether an emission with this permit, or nil, may go to p.
func (h *Health) Allow(p timer.TopicPartition, permit *Permit) bool {
	if p.Partition < 0 {
		return false
	}
	if h.AllHealthy() {
		return true
	}
	if h.leaders.Unreachable(p) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.breakers[p]
	return b == nil || b.window > 0 && permit != nil && *permit == Permit{p, b.serial}
}

// Suspect opens a breaker for p, which is probed immediately. Call it if the former owner kept timers for p, or
// if p is not known to exist.
func (h *Health) Suspect(p timer.TopicPartition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.suspect(p)
}

// suspect is Suspect with the lock held.
func (h *Health) suspect(p timer.TopicPartition) *breaker {
	b, opened := h.breakerOf(p, 0)
	if opened {
		h.wakeRun()
	}
	return b
}

// Trip opens breakers for the partitions that failed in one step.
//
// If several fail together while a broker dies, their leaders most likely wait for that broker, and recover without a
// breaker. Then only two kinds get one: partitions without a leader, because the controller has already given up their
// broker, and partitions that reject the clock, which is not a sign of a broker's death. While all brokers are
// reachable, the cause (too few replicas, a full disk) lasts, and without breakers the step would wait for all of them.
func (h *Health) Trip(ps map[timer.TopicPartition]error) {
	now := h.o.Now()
	dying := len(ps) > 1 && h.leaders.Dying()
	h.mu.Lock()
	defer h.mu.Unlock()
	waiting := 0
	for p, err := range ps {
		clock := errors.Is(err, kerr.InvalidTimestamp)
		if dying && !clock && !errors.Is(err, kerr.LeaderNotAvailable) {
			waiting++
			continue
		}
		b, opened := h.breakerOf(p, 0)
		if opened {
			h.o.Logger.Warn("target partition unhealthy, its timers wait", "topic", p.Topic, "partition",
				p.Partition, "err", err)
		} else if b.window > 0 {
			b.delay = min(2*b.delay, breakerMax)
		}
		b.window, b.admitted, b.next, b.clock, b.only = 0, 0, now.Add(b.delay), clock, false
	}
	if waiting > 0 {
		h.o.Logger.Warn("several target partitions failed together, waiting for new leaders", "partitions", waiting)
	}
}

// Avoid opens a breaker for a partition of the dead letters that takes no record. Dead letters go to another partition
// until a probe succeeds.
func (h *Health) Avoid(p timer.TopicPartition, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, opened := h.breakerOf(p, breakerMin); opened {
		h.o.Logger.Warn("dead-letter partition unhealthy, using another one", "topic", p.Topic, "partition",
			p.Partition, "err", err)
	}
}

// breakerOf returns the breaker of a partition. If it has none, it opens one, with the first probe after the given
// time. A breaker that is only unreachable (see missed) is not probed. The lock is held.
func (h *Health) breakerOf(p timer.TopicPartition, after time.Duration) (b *breaker, opened bool) {
	if b = h.breakers[p]; b != nil {
		return b, false
	}
	now := h.o.Now()
	b = &breaker{delay: breakerMin, next: now.Add(after), since: now, idle: now, waiters: make(map[*Waiter]struct{})}
	h.breakers[p] = b
	h.unhealthy.Store(int32(len(h.breakers)))
	return b, true
}

// Committed notes that n emissions to p were committed.
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

// Recovered closes the half-open breaker of a partition that has taken an emission. It is only for targets that have a
// rate: that holds back the rest, so no window is needed, which would take a minute or more to grow with few tokens.
func (h *Health) Recovered(p timer.TopicPartition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.breakers[p]; b != nil && b.window > 0 {
		h.close(p)
	}
}

// Unused says that an emission with this permit is not sent now, for want of a token. The window admits as many again
// after unusedAgain, whatever becomes of the others that it has admitted.
func (h *Health) Unused(permit *Permit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.breakers[permit.To]; b != nil && b.serial == permit.window {
		b.admitAt = h.o.Now().Add(unusedAgain - admitAgain)
	}
}

// close deletes a breaker. The lock is held.
func (h *Health) close(p timer.TopicPartition) {
	b := h.breakers[p]
	delete(h.breakers, p)
	h.unhealthy.Store(int32(len(h.breakers)))
	b.tell(p)
	if p.Partition >= 0 && b.window > 0 {
		h.o.Logger.Info("target partition is healthy again", "topic", p.Topic, "partition", p.Partition)
	}
}

// Unhealthy returns the unhealthy partitions, each with the time since when.
func (h *Health) Unhealthy() map[timer.TopicPartition]time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[timer.TopicPartition]time.Time, len(h.breakers))
	for p, b := range h.breakers {
		out[p] = b.since
	}
	return out
}

// RefuseClock returns how many partitions reject timestamps of this machine's clock, and one of them. The cause is the
// clock or a limit of the topic, not a timer. So the timers wait, as for any unhealthy partition.
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

// ClockSet is called when the clock was set. The partitions that reject it are probed immediately.
func (h *Health) ClockSet() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.breakers {
		if b.clock {
			b.delay, b.next = breakerMin, h.o.Now()
		}
	}
}

// wakeRun makes Run check immediately.
func (h *Health) wakeRun() {
	if !h.AllHealthy() {
		h.wake.Send()
	}
}

// tell notes p as ready, and wakes the owner. The lock is held.
func (w *Waiter) tell(p timer.TopicPartition) {
	w.ready[p] = struct{}{}
	w.wake()
}

// tell tells all waiters. The lock is held.
func (b *breaker) tell(p timer.TopicPartition) {
	for w := range b.waiters {
		w.tell(p)
	}
}
