package emitter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// emissionDeadline is how long a target may take to acknowledge an
	// emission; then its partition is sick.
	emissionDeadline = 2500 * time.Millisecond
	// silentAfter is how long a step waits for answers of leaders that took a
	// request and say nothing: kgo does not give such records up.
	silentAfter = 3500 * time.Millisecond
	// breakerMin and breakerMax bound the time between two probes of a sick
	// target partition; it doubles.
	breakerMin = 2 * time.Second
	breakerMax = 5 * time.Minute
	// brokerDeath is how long several partitions that fail at once are taken
	// for a dead broker, whose partitions get other leaders by themselves.
	brokerDeath = 12 * time.Second
	// wideOpen: a window that has grown so large is none.
	wideOpen = 16_384
	// probeTick is how often breakers are looked at.
	probeTick = 100 * time.Millisecond
	// grantAgain is when a window that no committed emission came of is granted
	// once more.
	grantAgain = 5 * time.Second
	// askedFor is for how long after a probe, or after the last question, a target
	// that answers is thought to have timers that wait. Partitions ask at each tick.
	askedFor = 10 * time.Second
	// maxProbes bounds the probes under way at a time.
	maxProbes = 8
)

// TargetPartition names one partition of a target topic.
type TargetPartition struct {
	Topic     string
	Partition int32
}

// Health keeps a breaker for each target partition that is sick. While a
// breaker is open nothing is sent there; a probe, a record in a transaction that
// is always aborted, tells when to try again. Then emissions pass one, two, four
// … at a time, each time after a committed step, and only a committed emission
// forgets the delay. A partition without a breaker is well. mu guards breakers
// and suspects.
type Health struct {
	probe func(context.Context, TargetPartition) error
	log   *slog.Logger
	sick  atomic.Int32 // number of breakers: the healthy way takes no lock

	mu       sync.Mutex
	breakers map[TargetPartition]*breaker
	// failing is since when several partitions fail at once.
	failing time.Time
	lastBad time.Time
}

// breaker of one target partition: waiting for next, or probing, or with a
// window of emissions that may pass.
type breaker struct {
	delay   time.Duration
	next    time.Time
	probing bool
	window  int       // 0 while open
	granted int       // of the window
	grantAt time.Time // when something was granted last
	asked   time.Time // when the window was opened, or asked for
	since   time.Time
}

// NewHealth returns a Health without breakers. probe tries a partition.
func NewHealth(probe func(context.Context, TargetPartition) error, log *slog.Logger) *Health {
	return &Health{probe: probe, log: log, breakers: make(map[TargetPartition]*breaker)}
}

// Well reports that no partition is sick, which costs nothing.
func (h *Health) Well() bool { return h.sick.Load() == 0 }

// Allow reports whether p is well. What is parked for it passes by Grant.
func (h *Health) Allow(p TargetPartition) bool {
	if h.Well() {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.breakers[p] == nil
}

// Grant returns how many of n emissions to p may pass now.
func (h *Health) Grant(p TargetPartition, n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.breakers[p]
	if b == nil {
		return n
	}
	if b.granted >= b.window && time.Since(b.grantAt) > grantAgain {
		b.granted = 0 // what was to pass was cancelled, replaced or un-planned meanwhile
	}
	b.asked = time.Now()
	n = min(n, b.window-b.granted)
	if n > 0 {
		b.granted += n
		b.grantAt = b.asked
	}
	return n
}

// Suspect opens a breaker without an accusation, to be probed at once: the
// owner before had parked timers for p.
func (h *Health) Suspect(p TargetPartition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.breakers[p] == nil {
		now := time.Now()
		h.open(p, &breaker{delay: breakerMin, next: now, since: now})
	}
}

// Accuse opens breakers for the partitions that failed in one step. Where several
// fail at once and have not done so for long only for those that are known to
// have no leader: the controller has given their broker up already.
func (h *Health) Accuse(ps map[TargetPartition]error) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(ps) > 1 {
		if h.failing.IsZero() || now.Sub(h.lastBad) > brokerDeath {
			h.failing = now
		}
		h.lastBad = now
	}
	dying := len(ps) > 1 && now.Sub(h.failing) < brokerDeath
	waiting := 0
	for p, err := range ps {
		if dying && !errors.Is(err, kerr.LeaderNotAvailable) {
			waiting++
			continue
		}
		b := h.breakers[p]
		if b == nil {
			b = &breaker{delay: breakerMin, since: now}
			h.log.Warn("target partition is sick, its timers wait", "topic", p.Topic, "partition", p.Partition, "err", err)
		} else if b.window > 0 {
			b.delay = min(2*b.delay, breakerMax)
		}
		b.window, b.granted, b.next = 0, 0, now.Add(b.delay)
		h.open(p, b)
	}
	if waiting > 0 {
		h.log.Warn("several target partitions fail at once: waiting for new leaders", "partitions", waiting)
	}
}

func (h *Health) open(p TargetPartition, b *breaker) {
	h.breakers[p] = b
	h.sick.Store(int32(len(h.breakers)))
}

// Committed tells that n emissions to p were committed.
func (h *Health) Committed(p TargetPartition, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.breakers[p]
	if b == nil || b.window == 0 {
		return
	}
	b.window, b.granted, b.delay = 2*max(b.window, n), 0, breakerMin
	if b.window >= wideOpen {
		h.close(p)
	}
}

// close forgets a breaker. The lock is held.
func (h *Health) close(p TargetPartition) {
	delete(h.breakers, p)
	h.sick.Store(int32(len(h.breakers)))
	h.log.Info("target partition is well again", "topic", p.Topic, "partition", p.Partition)
}

// Drained tells that nothing is parked for p any more: a window that is open
// need not grow.
func (h *Health) Drained(p TargetPartition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.breakers[p]; b != nil && b.window > 1 {
		h.close(p)
	}
}

// Sick returns the sick partitions and since when.
func (h *Health) Sick() map[TargetPartition]time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[TargetPartition]time.Time, len(h.breakers))
	for p, b := range h.breakers {
		out[p] = b.since
	}
	return out
}

// Run probes until ctx ends.
func (h *Health) Run(ctx context.Context) error {
	t := time.NewTicker(probeTick)
	defer t.Stop()
	var probes sync.WaitGroup
	defer probes.Wait()
	room := make(chan struct{}, maxProbes)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		for _, p := range h.due() {
			select {
			case room <- struct{}{}:
				probes.Go(func() {
					h.probed(p, h.probe(ctx, p))
					<-room
				})
			default:
				h.probed(p, errBusy)
			}
		}
	}
}

var errBusy = errors.New("too many probes under way")

func (h *Health) due() (ps []TargetPartition) {
	if h.Well() {
		return nil
	}
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for p, b := range h.breakers {
		switch {
		case b.window > 0 && now.Sub(b.asked) > askedFor:
			h.close(p) // nothing waits for it: cancelled, or gone to other partitions
		case b.window == 0 && !b.probing && !now.Before(b.next):
			b.probing = true
			ps = append(ps, p)
		}
	}
	return ps
}

func (h *Health) probed(p TargetPartition, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.breakers[p]
	if b == nil {
		return
	}
	b.probing = false
	switch {
	case errors.Is(err, errBusy):
	case refusedForGood(err):
		h.close(p) // an answer: what waits has to hear it, and becomes dead letters
	case err != nil:
		b.delay = min(2*b.delay, breakerMax)
		b.next = time.Now().Add(b.delay)
	default:
		b.window, b.granted, b.asked = 1, 0, time.Now()
		h.log.Info("target partition answers again, trying one emission", "topic", p.Topic, "partition", p.Partition)
	}
}

// accuses reports whether the failure of an emission is the target's fault.
func accuses(err error) bool {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, kgo.ErrRecordRetries):
		return true
	}
	for _, e := range []error{
		kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.ReplicaNotAvailable, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
		kerr.RequestTimedOut, kerr.KafkaStorageError, kerr.FencedLeaderEpoch,
		// Nobody knows what these mean, nor when they end: but not for the others.
		kerr.UnknownServerError, kerr.CorruptMessage, kerr.UnsupportedForMessageFormat,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
