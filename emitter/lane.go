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

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/tasks"
)

// Lane is one loop of steps. It is one of the Lanes, or belongs to their quarantine.
type Lane struct {
	roster     *roster
	background *tasks.Group
	o          *Options // a quarantine's has its own
	name       string   // of its steps and transactional IDs within the process
	pool       *pool
	aborts     aborts
	counter    int64 // of steps
	pace       pace
	more       bool    // the step under way may have left behind something that was ready
	timings    timings // of the step under way
	filled     float64 // which part of its room the step under way uses
	size       size    // of the next step

	called  chan struct{} // tells a spare lane to join
	reached beats.Signal  // tells the step under way that a broker came or went

	mu    sync.Mutex // guards under
	under underWay
}

// underWay has the brokers that the step under way needs, and the function that gives it up; the zero value if there is
// none.
type underWay struct {
	current *txnClient         // the coordinator of this client is needed now
	parts   map[string][]int32 // the partitions that it will write to; nil once it writes
	cancel  context.CancelCauseFunc
}

func newLane(r *roster, b *tasks.Group, o *Options, name string) *Lane {
	return &Lane{
		roster: r, background: b, o: o, name: name, pool: newPool(b, o, name), aborts: aborts{background: b, o: o},
		called: make(chan struct{}, 1), reached: beats.NewSignal(),
		pace: pace{interval: o.Interval}, size: size{limit: MaxStepEntries},
	}
}

// during returns a context for a step that is to write to parts. It ends, with errUnreachable, when one of these cannot
// be reached any more:
//   - the coordinator that the step needs, see needs;
//   - until the step writes, the leader of one of parts. Since nothing has been written, it is cheaper to abandon this
//     step and leave the partition out of the next. Waiting could take long: the coordinators may be waiting for the
//     same broker.
//
// The caller must call end.
func (l *Lane) during(ctx context.Context, parts map[string][]int32) (during context.Context, end func()) {
	during, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	l.under = underWay{parts: parts, cancel: cancel}
	l.mu.Unlock()
	return during, func() {
		l.mu.Lock()
		l.under = underWay{}
		l.mu.Unlock()
		cancel(nil)
	}
}

// needs notes the client whose coordinator the step under way needs.
func (l *Lane) needs(c *txnClient) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under.current = c
	l.giveUpIfUnreachable()
}

// startsWriting notes that the step under way begins to write. From here on produce decides about leaders that cannot
// be reached.
func (l *Lane) startsWriting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under.parts = nil
}

// giveUpIfUnreachable gives up the step under way if a broker that it needs cannot be reached. The lock is held.
func (l *Lane) giveUpIfUnreachable() {
	if l.under.cancel != nil && needsUnreachable(l.o.Leaders, l.under.current, l.under.parts) {
		l.under.cancel(errUnreachable)
	}
}

// reachabilityChanged makes the lane give up work for which a broker can no longer be reached.
func (l *Lane) reachabilityChanged() {
	l.mu.Lock()
	l.giveUpIfUnreachable()
	l.mu.Unlock()
	l.pool.leave()
	l.reached.Send()
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
			l.roster.joined()
			active = true
		}
		if !l.rest(ctx) {
			return nil
		}
		worked, err := l.step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, kerr.InvalidTransactionTimeout):
			return err
		case err != nil:
			l.o.Logger.Warn("step aborted, retrying", "lane", l.name, "err", err)
			l.roster.Wake() // another lane may succeed
			beats.Sleep(ctx, backoff)
			backoff = nextBackoff(l.o.Leaders, backoff)
			continue
		}
		backoff = minBackoff
		if active = !l.roster.leaves(l.called); !active {
			l.roster.Wake() // another lane now listens for wake-ups
			continue
		}
		if worked {
			continue
		}
		due.Reset(l.roster.untilDue())
		select {
		case <-ctx.Done():
			return nil
		case <-l.roster.wake:
		case <-due.C:
		}
	}
}

// rest waits until the next step may begin. It returns false if ctx ends first.
func (l *Lane) rest(ctx context.Context) bool {
	wait := l.pace.wait(time.Now())
	if wait <= 0 {
		return true
	}
	var calls beats.Signal
	if l.pace.early > 0 {
		calls = l.roster.calls
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-calls:
	case <-over.C:
	}
	return true
}

// step seals and runs one step. It reports whether there was one.
func (l *Lane) step(ctx context.Context) (bool, error) {
	at := time.Now()
	select {
	case <-l.roster.calls: // this step takes the request
	default:
	}
	shares := l.seal(l.nextStep())
	if len(shares) == 0 {
		return false, nil
	}
	over := l.roster.watch()
	err := l.runStep(ctx, shares)
	over()
	calls := 0
	if !errors.Is(err, errUnknown) { // otherwise Done is still to be called
		for _, s := range shares {
			calls += s.Calls
		}
	}
	l.pace.sealed(at, calls, l.more || err != nil)
	switch {
	case err == nil:
		took, trips := time.Since(at), l.timings.sum("announce", "offsets", "end")
		l.o.Metrics.carried(l.filled, took, trips)
		l.size.committed(took - trips)
	case errors.Is(err, errLate), errors.Is(err, errHeld):
		l.size.unacknowledged()
	}
	for _, again := range []error{errEmissions, errTokens, errHeld, errUnknown, errCheck, errAlone} {
		if errors.Is(err, again) {
			return true, nil // sealed again immediately, without the culprits
		}
	}
	return true, err
}

func (l *Lane) nextStep() string {
	l.counter++
	return fmt.Sprintf("%s/%s/%d", l.o.Process, l.name, l.counter)
}

// runStep runs the step of these shares and tells them its outcome; with errUnknown they are told later, by a goroutine
// of its own.
func (l *Lane) runStep(ctx context.Context, shares []*Share) error {
	start := time.Now()
	// A step that has begun is ended in order, even if the lane is stopped. The broker's own limit bounds it.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.o.TransactionTimeout)
	defer cancel()
	t := &transaction{lane: l, shares: shares}
	err := t.commit(bounded)
	if errors.Is(err, errUnknown) {
		l.pool.forget(t.c)
		l.background.Go(func(context.Context) {
			l.finish(ctx, shares, start, t.resolve())
			l.roster.Wake()
		})
		return err
	}
	if c := l.pool.clients[l.pool.slot]; c != nil {
		c.used = time.Now()
	}
	l.finish(ctx, shares, start, err)
	return err
}

// finish reports the outcome of a step to its sources, side by side, because a source may have much to apply; then to
// the roster and to the metrics.
func (l *Lane) finish(ctx context.Context, shares []*Share, start time.Time, err error) {
	if err == nil {
		l.passed(shares)
	}
	var told sync.WaitGroup
	for _, s := range shares {
		o := Aborted
		if err == nil {
			o = Committed
		} else if errors.Is(err, errRefused) || s.Token.Err() != nil {
			o = Lost
		}
		told.Go(func() { s.Done(o) })
	}
	told.Wait()
	l.roster.settled(ctx, shares)
	l.o.Metrics.step(err, time.Since(start))
}

// seal collects shares of the sources that the lane has claimed. One source with suspects is enough for a step, because
// each suspect takes a round trip.
func (l *Lane) seal(name string) (shares []*Share) {
	for {
		wakes := l.roster.wakes.Load()
		limit := Room{Entries: l.size.limit, Bytes: MaxStepBytes}
		room := limit
		members, fair, others := l.roster.claim(room, time.Now())
		full := false
		l.more = false
		asked := 0
		for _, m := range members {
			offered := fair.offer(m, room)
			left := offered
			share := l.roster.sealOf(m, name, &left)
			m.took, m.seals = taken(share, offered, left), share != nil
			l.more = l.more || m.took.all
			asked++
			room = room.Minus(offered.Minus(left))
			if share != nil {
				shares = append(shares, share)
			}
			if full = room.IsUsedUp() || len(shares) >= MaxStepPartitions; full || share.hasSuspects() {
				break
			}
		}
		several := l.roster.sealed(members[:asked], members[asked:], fair.room, limit.Minus(room), full)
		l.filled = filled(limit, limit.Minus(room), full)
		if asked < len(members) {
			l.more, others = true, true
		}
		if len(shares) > 0 && (others || several) {
			l.roster.Wake()
		}
		if len(shares) > 0 || !others && (!several || l.roster.wakes.Load() == wakes) {
			return shares
		}
	}
}

// pace says when a lane's next step may begin. A transaction costs the brokers and this process some milliseconds of
// processor time, however little it carries. So a lane waits for an interval from one seal to the next, and everything
// that becomes ready in that time shares a transaction. Each lane has its own pace, but more than one lane is active
// only when steps are full.
//
// Three things bound the cost of the pause. It counts from the seal, so a lane that has rested for an interval seals
// immediately: an occasional timer is not late because of it. Nothing waits longer than an interval, because the lane
// seals when the pause is over, whether it was woken or not. And if a step could not take everything that was ready, or
// was not committed, the next one follows immediately: neither a backlog nor a step that is sealed again without its
// culprit has to wait.
//
// A call of the API that waits for its decision waits for the step too, and a caller that makes one call after the
// other would always meet the pause that its last call began. So a planned request whose caller waits cuts the pause
// short (roster.Call). What this can cost others is bounded in two ways:
//   - Only a lone caller hurries steps. Its call has a transaction of its own in any case, unless timers fire in the
//     same interval. Calls that come together share transactions as if nothing hurried, because a step that decided
//     several calls ends the haste, until one that was not hurried has decided a single call. Records that others
//     produce never hurry a step.
//   - Between two steps that are not hurried there are at most earlySteps. So a caller in a loop makes 5 calls, and as
//     many transactions, in the time of an interval and four steps: some 140 a second instead of 50, where nothing
//     would stop it at 250. A limit of some ten a second would help nobody: more than half of the calls must be hurried
//     for their median to be one of these, and with four of five it is not far from the median of those.
//
// A hurried step takes everything that is ready, and the next pause counts from its seal. So nothing waits longer than
// an interval because of it. A hurried step that is aborted, or whose outcome is unknown, counts too. If nothing is
// ready any more there is no step.
//
// It belongs to the lane's goroutine.
type pace struct {
	interval time.Duration // 0: no pause
	next     time.Time     // when the next step may begin
	early    int           // how many steps may begin before that, if a caller waits; crowded: several wait
}

const (
	earlySteps = 4
	crowded    = -1
)

// sealed records a step, and how many calls it decided. With more the next one may begin immediately.
func (p *pace) sealed(at time.Time, calls int, more bool) {
	switch early := at.Before(p.next); {
	case calls > 1:
		p.early = crowded
	case early:
		p.early--
	case calls == 1 || p.early != crowded:
		p.early = earlySteps
	}
	if p.next = at; !more {
		p.next = at.Add(p.interval)
	}
}

// wait returns how much of the pause is left.
func (p *pace) wait(now time.Time) time.Duration { return max(0, p.next.Sub(now)) }

// slowStep is how long a step may take before it is logged with the parts that took long.
const slowStep = time.Second

// timings are the finished parts of the step under way, and how long each took. They belong to the lane's loop.
type timings struct {
	began, last time.Time
	ended       []timing
}

type timing struct {
	part string
	took time.Duration
}

func (t *timings) begin() {
	t.began = time.Now()
	t.last, t.ended = t.began, t.ended[:0]
}

// through records the end of a part.
func (t *timings) through(part string) {
	now := time.Now()
	t.ended = append(t.ended, timing{part, now.Sub(t.last)})
	t.last = now
}

// sum returns how long some of the parts took together.
func (t *timings) sum(parts ...string) (took time.Duration) {
	for _, l := range t.ended {
		if slices.Contains(parts, l.part) {
			took += l.took
		}
	}
	return took
}

// end logs a step that took long: its total time, and that of each part.
func (t *timings) end(log *slog.Logger, lane string, err error) {
	took := time.Since(t.began)
	if took <= slowStep {
		return
	}
	attrs := []any{"lane", lane, "duration", took}
	for _, l := range t.ended {
		attrs = append(attrs, l.part, l.took)
	}
	if err != nil {
		attrs = append(attrs, "err", err)
	}
	log.Warn("slow step: announce, offsets, end and abort wait for coordinators, produce for leaders", attrs...)
}
