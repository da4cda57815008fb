package transaction

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/targets"
)

const (
	// joinAfter is how many steps in a row must be three quarters full before another lane joins.
	joinAfter = 3
	// leaveAfter is for how long no step must be a quarter full before a lane leaves.
	leaveAfter = time.Second
	// stuckAfter is how long a step may take before its lane no longer counts. Full steps
	// take a fifth of it.
	stuckAfter = 500 * time.Millisecond
)

// Lanes are the loops of steps of a process, around one set of sources.
//
// No source belongs to a lane. A source waits until a lane claims it. The lane asks it for a
// share, and runs a step with that. Then the source waits again, for whichever lane is free next.
// So nothing is handed from one lane to another, and no wake-up has to find the right one:
//
//	        claim                  a share
//	waits ─────────► out: asked ─────────────► out: its step is under way
//	  ▲                │ nothing, no room        │ the outcome is known
//	  ├────────────────┴─────────────────────────┤
//	  │                                          │ it held up the step
//	  └──────────────── quarantine ◄─────────────┘
//
// The arguments:
//   - A source never has two shares out, and one goroutine at a time asks it. It is claimed
//     under mu, only if it is not out, and stays out until the outcome of its step is
//     told: by the lane, or by the goroutine that resolves an unknown outcome (settled). The
//     quarantine asks no source that is out either. What changes hands is the member, not the source:
//     a source that is removed and added again is another member, and an outcome that the first
//     has yet to hear does not touch the second.
//   - No source is forgotten. Whoever claims a source gives it back, even if there was no
//     room for it (sealed). What becomes ready while nobody sleeps is found when a step
//     ends, for a lane seals before it sleeps. What becomes ready behind a lane that is
//     asking is announced in wake, where it stays until a lane takes it. If another lane takes it, that
//     finds the source out: so one that has found nothing asks again if anybody woke lanes
//     since it began (wakes). A lane that goes on with a step, or leaves, passes the watch on:
//     another one asks what is left, and sleeps until the earliest of it is due.
//   - A load that one lane can carry is not spread over the transactions of two. One lane
//     is active until joinAfter steps in a row were full; then another joins. Each of
//     several takes an equal part of what the sources had in their last steps, so that
//     all have steps of the same size, and each step may use the room of a whole one. When
//     no step was a quarter full for leaveAfter, a lane leaves.
//   - A lane leaves between two steps, so it holds no source. Commits of its that are not
//     answered are resolved on goroutines of their own (aside), and go on.
//   - A lane that hangs because a broker is silent holds the sources of its step and nothing else.
//     After stuckAfter it does not count, until the step ends. If no other lane is left, one joins.
//
// Lanes that never joined have opened no clients. One that has left keeps them, and is the
// first to join again.
type Lanes struct {
	o    Options
	wake chan struct{} // somebody may have something, for any active lane that sleeps
	// wakes counts those, so that a lane which is asking knows of what another one took.
	wakes      atomic.Int64
	all        []*Lane
	quarantine *quarantine

	// aside counts goroutines beside the loops. They end when ending is cancelled.
	aside  sync.WaitGroup
	ending context.Context
	giveUp context.CancelFunc

	mu      sync.Mutex // guards what follows, the members, and the quarantine's fields
	members []*member
	waiting []*member // may be claimed, in this order
	// idle is when a request topic last took less than it was offered.
	idle    map[string]time.Time
	spare   []*Lane // not active, the next one to join last
	joining bool    // a lane is opening its clients, and becomes active then
	active  int     // lanes that claim; stuck of them are in a step that hangs
	stuck   int
	full    int       // steps in a row that were three quarters full
	busy    time.Time // when a step was last a quarter full, or a lane joined or left
}

// member is a source, as the lanes know it. Lanes.mu guards its fields; the lane that has it out
// may read last without the lock.
type member struct {
	Source
	out  bool         // claimed: it is being asked, or has yet to hear the outcome of its share
	gone bool         // removed
	last portion      // what it took of the last step that it was asked for
	in   *quarantined // while it is in the quarantine
	past *quarantined // the last time that it was there
}

// NewLanes returns lanes without sources.
func NewLanes(o Options) *Lanes {
	if o.CommitTimeout == 0 {
		o.CommitTimeout = answerTimeout
	}
	if o.Health == nil {
		o.Health = targets.NewHealth(targets.HealthOptions{Logger: o.Logger})
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	if o.Leaders == nil {
		o.Leaders = targets.NewLeaders(nil, time.Now)
	}
	p := &Lanes{o: o, wake: make(chan struct{}, 1), idle: make(map[string]time.Time)}
	p.ending, p.giveUp = context.WithCancel(context.Background())
	p.quarantine = newQuarantine(p)
	for i := range max(1, o.Lanes) {
		p.all = append(p.all, newLane(p, &p.o, strconv.Itoa(i)))
	}
	p.spare = slices.Clone(p.all)
	slices.Reverse(p.spare)
	return p
}

// Add makes s contribute to the steps to come.
func (p *Lanes) Add(s Source) {
	m := &member{Source: s}
	p.mu.Lock()
	p.members = append(p.members, m)
	p.waitLocked(m)
	p.mu.Unlock()
	p.Wake()
}

// Remove takes s out. A call of its Seal or Done may still be under way.
func (p *Lanes) Remove(s Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range slices.Clone(p.members) {
		if m.Source == s {
			p.dropLocked(m)
		}
	}
}

// drop removes a member.
func (p *Lanes) drop(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked(m)
}

func (p *Lanes) dropLocked(m *member) {
	same := func(x *member) bool { return x == m }
	m.gone = true
	p.members = slices.DeleteFunc(p.members, same)
	p.waiting = slices.DeleteFunc(p.waiting, same)
	p.quarantine.leaveLocked(m)
}

// waitLocked puts a member behind the others that wait, if it may be claimed.
func (p *Lanes) waitLocked(m *member) {
	if !m.out && !m.gone && m.in == nil {
		p.waiting = append(p.waiting, m)
	}
}

// Wake tells the lanes that a source has something ready. It never blocks.
func (p *Lanes) Wake() {
	p.wakes.Add(1)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Reached tells the lanes that a broker cannot be reached any more, or can again, or that
// partitions have other leaders.
func (p *Lanes) Reached() {
	for _, l := range p.all {
		l.reachedNow()
	}
	p.mu.Lock()
	tries := p.quarantine.lane
	p.mu.Unlock()
	if tries != nil {
		tries.reachedNow()
	}
	p.Wake()
}

// Run commits steps until ctx ends. Steps under way are finished first. It ends by itself,
// with kerr.InvalidTransactionTimeout, if the brokers allow no transaction of that length.
func (p *Lanes) Run(ctx context.Context) error {
	defer p.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.mu.Lock()
	p.joinLocked()
	p.mu.Unlock()
	var loops sync.WaitGroup
	var failed error
	var once sync.Once
	for _, l := range p.all {
		loops.Go(func() {
			if err := l.run(ctx); err != nil {
				once.Do(func() { failed = err })
				cancel(err)
			}
		})
	}
	loops.Wait()
	return failed
}

func (p *Lanes) close() {
	patience := time.AfterFunc(2*RequestTimeout, p.giveUp)
	defer patience.Stop()
	for _, l := range p.all {
		l.pool.close()
	}
	p.aside.Wait()
	p.giveUp()
}

// claim takes sources out for a step with this room. While one lane is active it takes all
// that wait. One of several lanes takes those that had nothing in their last step, which costs
// little, and of the others its part of what all had, beginning with the one that waits longest.
// others reports whether any was left.
func (p *Lanes) claim(room Room, now time.Time) (taken []*member, fair fairShares, others bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	part, whole := p.partLocked()
	var left []*member
	had := 0.0
	for _, m := range p.waiting {
		size := m.last.size()
		if !whole && size > 0 && had > 0 && had+size > part {
			left = append(left, m)
			continue
		}
		had += size
		m.out = true
		taken = append(taken, m)
	}
	p.waiting = left
	return taken, p.fairSharesLocked(taken, room, now), len(left) > 0
}

// partLocked is how much of what all sources had in their last steps is for one lane. whole: all of it.
func (p *Lanes) partLocked() (part float64, whole bool) {
	lanes := p.active - p.stuck
	if lanes <= 1 {
		return 0, true
	}
	for _, m := range p.members {
		part += m.last.size()
	}
	return part / float64(lanes) * 9 / 8, false // an eighth more: what they have varies
}

// asked is a source that was asked for a step.
type asked struct {
	m     *member
	share *Share
	took  portion
}

// sealed takes back members that add nothing to a step, behind those that wait, and members that
// were not asked, before them. room is what the step could have, used what it has; cut says that
// there was no room for more. It reports whether other lanes are active.
func (p *Lanes) sealed(all []asked, unasked []*member, room, used Room, cut bool) (several bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range unasked {
		m.out = false
	}
	p.waiting = append(slices.DeleteFunc(unasked, func(m *member) bool { return m.gone }), p.waiting...)
	for _, a := range all {
		if a.m.last = a.took; a.share == nil {
			a.m.out = false
			p.waitLocked(a.m)
		}
	}
	if used != (Room{}) {
		p.measureLocked(room, used, cut)
	}
	return p.active > 1
}

// measureLocked notes how full a step is, and has another lane join if it is time.
func (p *Lanes) measureLocked(room, used Room, cut bool) {
	above := func(quarters int) bool {
		return cut || 4*used.Entries >= quarters*room.Entries || 4*used.Bytes >= int64(quarters)*room.Bytes
	}
	if above(1) {
		p.busy = time.Now()
	}
	if !above(3) {
		p.full = 0
		return
	}
	have := 0
	for _, m := range p.members {
		if m.last.size() > 0 {
			have++
		}
	}
	if p.full++; p.full >= joinAfter && have > p.active-p.stuck {
		p.joinLocked()
	}
}

// joinLocked has a spare lane become active, unless one is about to.
func (p *Lanes) joinLocked() {
	if p.joining || len(p.spare) == 0 {
		return
	}
	last := len(p.spare) - 1
	l := p.spare[last]
	p.spare, p.joining, p.full = p.spare[:last], true, 0
	l.called <- struct{}{} // there is room: it is called again only when it is spare again
}

// joined makes a lane active that joinLocked has called.
func (p *Lanes) joined() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.joining, p.busy, p.full = false, time.Now(), 0
	p.active++
	p.o.Metrics.active.Set(float64(p.active))
}

// leaves makes a lane that has no step under way a spare one, if the others are enough. It
// reports whether it did.
func (p *Lanes) leaves(l *Lane) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active-p.stuck <= 1 || time.Since(p.busy) < leaveAfter {
		return false
	}
	p.busy = time.Now()
	p.active--
	p.spare = append(p.spare, l)
	p.o.Metrics.active.Set(float64(p.active))
	return true
}

// watch counts a lane as stuck if its step takes longer than stuckAfter, until over is called. If all
// are stuck another joins.
func (p *Lanes) watch() (over func()) {
	ended, stuck := false, false // guarded by mu
	t := time.AfterFunc(stuckAfter, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if ended {
			return
		}
		stuck = true
		if p.stuck++; p.stuck == p.active {
			p.joinLocked()
		}
	})
	return func() {
		t.Stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		if ended = true; stuck {
			p.stuck--
		}
	}
}

// settled takes back the sources of a step whose outcome was told. Those that held it up
// go to the quarantine.
func (p *Lanes) settled(ctx context.Context, shares []*Share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range shares {
		m := s.of
		m.out = false
		if s.Held != nil && m.in == nil && !m.gone {
			p.quarantine.admitLocked(ctx, s)
		}
		p.waitLocked(m)
	}
}

// untilDue is how long a lane may sleep: until a source has something to seal, unless somebody wakes it
// before. One of several lanes wakes sooner, to see whether it may leave.
func (p *Lanes) untilDue() time.Duration {
	p.mu.Lock()
	waiting, wait := slices.Clone(p.waiting), maxSleep
	if p.active > 1 {
		wait = leaveAfter
	}
	p.mu.Unlock()
	for _, m := range waiting {
		wait = min(wait, m.Wait())
	}
	return wait
}
