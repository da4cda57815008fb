package emitter

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

// roster knows the sources of a process, and where each one is: waiting, with a lane, or in the quarantine.
//
// No source belongs to a lane. A source waits until a lane claims it. The lane asks it for a share, and runs a step
// with that. Then the source waits again, for whichever lane is free next. So nothing is handed from one lane to
// another, and no wake-up has to find the right one:
//
//	        claim                  a share
//	waits ─────────► claimed: asked ─────────► claimed: its step is in flight
//	  ▲                │ nothing, no room        │ the outcome is known
//	  ├────────────────┴─────────────────────────┤
//	  │                                          │ it held up the step
//	  └──────────────── quarantine ◄─────────────┘
//
// The arguments:
//   - A source never has two shares in flight, and one goroutine at a time asks it. It is claimed under mu, by one
//     lane, and stays claimed until it has heard the outcome of its step: from the lane, or from the goroutine that
//     resolves an unknown outcome (settled). The quarantine does not ask a claimed source either. A lane holds the
//     member, not the source: a source that is removed and added again is another member. If the first has yet to hear
//     an outcome, that does not touch the second.
//   - No source is forgotten. A lane that claims a source gives it back, even if there was no room for it (sealed). If
//     a source becomes ready while no lane sleeps, the next lane that ends its step finds it, because a lane seals
//     before it sleeps. If a source becomes ready behind a lane that is asking, a signal in wake says so, and stays
//     there until a lane takes it. If another lane takes the signal, it finds the source claimed. So a lane that has
//     found nothing asks again if the lanes were woken since it began (wakes). A lane that goes on with a step, or
//     leaves, passes the watch on: another lane asks the sources that are left, and sleeps until the earliest of them
//     is due.
type roster struct {
	wake  beats.Signal // a source may have something, for any active lane that sleeps
	wakes atomic.Int64 // how often wake was signalled; see above
	calls beats.Signal // a request is ready whose caller waits for its decision
	log   *slog.Logger
	lanes prometheus.Gauge // how many are active

	mu      sync.Mutex // guards the fields below, and the members
	members []*member
	waiting []*member            // may be claimed, in this order
	idle    map[string]time.Time // when a request topic last took less than it was offered
	laneSet laneSet
	trying  bool                      // the quarantine's goroutine runs
	try     func(ctx context.Context) // starts it
}

func newRoster(o *Options) *roster {
	return &roster{wake: beats.NewSignal(), calls: beats.NewSignal(), log: o.Logger, lanes: o.Metrics.active,
		idle: make(map[string]time.Time)}
}

// Add makes s contribute to later steps.
func (r *roster) Add(s Source) {
	m := &member{Source: s}
	r.mu.Lock()
	r.members = append(r.members, m)
	r.waitLocked(m)
	r.mu.Unlock()
	r.Wake()
}

// Remove takes s off the roster. A call of its Seal or Done may still be under way.
func (r *roster) Remove(s Source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range slices.Clone(r.members) {
		if m.Source == s {
			r.dropLocked(m)
		}
	}
}

// Wake tells the lanes that a source has something ready. It never blocks.
func (r *roster) Wake() {
	r.wakes.Add(1)
	r.wake.Send()
}

// Call tells the lanes, besides Wake, that a source has a request ready whose caller waits for its decision. It never
// blocks.
func (r *roster) Call() { r.calls.Send() }

func (r *roster) dropLocked(m *member) {
	same := func(x *member) bool { return x == m }
	m.gone, m.in = true, nil
	r.members = slices.DeleteFunc(r.members, same)
	r.waiting = slices.DeleteFunc(r.waiting, same)
}

// waitLocked puts a member behind the others that wait, if it may be claimed.
func (r *roster) waitLocked(m *member) {
	if !m.claimed && !m.gone && m.in == nil {
		r.waiting = append(r.waiting, m)
	}
}

// sealOf asks a source for a share. If the share's token is dead, the step of all others would be aborted. A dead
// token stays dead, so the source is removed.
func (r *roster) sealOf(m *member, name string, room *Room) *Share {
	share := m.Seal(name, room)
	if share == nil {
		return nil
	}
	share.member, share.Held, share.proven = m, nil, false
	if share.Token.Err() != nil {
		r.mu.Lock()
		r.dropLocked(m)
		r.mu.Unlock()
		share.Done(Lost)
		return nil
	}
	return share
}

// sealed takes back members that add nothing to a step, behind those that wait, and members that were not asked, before
// them. room is the room of the step, used the part that it uses; cut says that there was no room for more. It reports
// whether other lanes are active.
func (r *roster) sealed(asked, unasked []*member, room, used Room, cut bool) (several bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range unasked {
		m.claimed = false
	}
	r.waiting = append(slices.DeleteFunc(unasked, func(m *member) bool { return m.gone }), r.waiting...)
	for _, m := range asked {
		if m.last = m.took; !m.seals {
			m.claimed = false
			r.waitLocked(m)
		}
	}
	if used != (Room{}) {
		ready := 0
		for _, m := range r.members {
			if m.last.size() > 0 {
				ready++
			}
		}
		r.laneSet.measure(room, used, cut, ready)
	}
	return r.laneSet.active > 1
}

// settled takes back the sources of a step that have heard its outcome. Those that held it up go to the
// quarantine.
func (r *roster) settled(ctx context.Context, shares []*Share) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range shares {
		m := s.member
		m.claimed = false
		if s.Held != nil && m.in == nil && !m.gone {
			r.quarantineLocked(ctx, s)
		}
		r.waitLocked(m)
	}
}

// quarantineLocked puts the source of a share into the quarantine.
func (r *roster) quarantineLocked(ctx context.Context, s *Share) {
	m := s.member
	m.in = newQuarantined(timer.TopicPartition{Topic: s.Offset.Topic, Partition: s.Offset.Partition}, m.past)
	m.last = usage{}
	r.log.Warn("partition quarantined, it holds up the steps of others",
		"topic", m.in.request.Topic, "partition", m.in.request.Partition, "err", s.heldBy())
	if !r.trying {
		r.trying = true
		r.try(ctx)
	}
}

// releaseLocked gives a source in the quarantine back to the lanes.
func (r *roster) releaseLocked(m *member) {
	st := m.in
	m.in, m.past, st.released = nil, st, time.Now()
	r.waitLocked(m)
	r.log.Info("partition released from quarantine",
		"topic", st.request.Topic, "partition", st.request.Partition, "duration", time.Since(st.since))
	r.Wake()
}

// untilDue is how long a lane may sleep if nothing wakes it: until a source has something to seal. If several lanes are
// active it wakes sooner, to see whether it may leave.
func (r *roster) untilDue() time.Duration {
	r.mu.Lock()
	waiting, wait := slices.Clone(r.waiting), maxSleep
	if r.laneSet.active > 1 {
		wait = leaveAfter
	}
	r.mu.Unlock()
	for _, m := range waiting {
		wait = min(wait, m.Wait())
	}
	return wait
}

// joined makes a lane active that was called.
func (r *roster) joined() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.laneSet.joined()
	r.lanes.Set(float64(r.laneSet.active))
}

// leaves makes a lane that has no step under way a spare one, if the others are enough. called is the lane's. It
// reports whether it did.
func (r *roster) leaves(called chan struct{}) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.laneSet.leaves(called)
	r.lanes.Set(float64(r.laneSet.active))
	return left
}

// watch counts a lane as stuck if its step takes longer than stuckAfter, until over is called.
func (r *roster) watch() (over func()) {
	ended, stuck := false, false // guarded by mu
	t := time.AfterFunc(stuckAfter, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !ended {
			stuck = true
			r.laneSet.getsStuck()
		}
	})
	return func() {
		t.Stop()
		r.mu.Lock()
		defer r.mu.Unlock()
		if ended = true; stuck {
			r.laneSet.stuck--
		}
	}
}

const (
	// joinAfter is how many consecutive steps must be three quarters full before another lane joins.
	joinAfter = 3
	// leaveAfter is for how long no step may be a quarter full before a lane leaves.
	leaveAfter = time.Second
	// stuckAfter is how long a step may take before its lane no longer counts. Full steps take a fifth of it.
	stuckAfter = 500 * time.Millisecond
)

// laneSet counts which lanes of a process are active. roster.mu guards it.
//
//   - A load that one lane can carry is not spread over the transactions of two. One lane is active until joinAfter
//     consecutive steps were full; then another joins. If several are active, each takes an equal part of everything
//     that the sources had in their last steps, so that all have steps of the same size, and each step may use the room
//     of a whole one. When no step was a quarter full for leaveAfter, a lane leaves.
//   - A lane leaves between two steps, so it holds no source. Its unanswered commits are resolved on goroutines of
//     their own, which continue.
//   - A lane that hangs because a broker is silent holds the sources of its step and nothing else. After stuckAfter it
//     does not count, until the step ends. If no other lane is left, one joins.
//
// Lanes that never joined have opened no clients. A lane that has left keeps its clients, and is the first to join
// again.
type laneSet struct {
	spare   []chan struct{} // Lane.called of the lanes that are not active, the next one to join last
	joining bool            // a lane is opening its clients, and then becomes active
	active  int             // lanes that claim sources; of these, lanes whose step hangs are stuck
	stuck   int
	full    int       // consecutive steps that were three quarters full
	busy    time.Time // when a step was last a quarter full, or a lane joined or left
}

// measure records how full a step is, and makes another lane join if it is time. ready is how many sources had
// something in their last step.
func (l *laneSet) measure(room, used Room, cut bool, ready int) {
	above := func(quarters int) bool {
		return cut || 4*used.Entries >= quarters*room.Entries || 4*used.Bytes >= int64(quarters)*room.Bytes
	}
	if above(1) {
		l.busy = time.Now()
	}
	if !above(3) {
		l.full = 0
		return
	}
	if l.full++; l.full >= joinAfter && ready > l.active-l.stuck {
		l.join()
	}
}

// join makes a spare lane become active, unless one is about to.
func (l *laneSet) join() {
	if l.joining || len(l.spare) == 0 {
		return
	}
	last := len(l.spare) - 1
	called := l.spare[last]
	l.spare, l.joining, l.full = l.spare[:last], true, 0
	called <- struct{}{} // never blocks: a lane is called again only when it is spare again
}

func (l *laneSet) joined() {
	l.joining, l.busy, l.full = false, time.Now(), 0
	l.active++
}

func (l *laneSet) leaves(called chan struct{}) bool {
	if l.active-l.stuck <= 1 || time.Since(l.busy) < leaveAfter {
		return false
	}
	l.busy = time.Now()
	l.active--
	l.spare = append(l.spare, called)
	return true
}

func (l *laneSet) getsStuck() {
	if l.stuck++; l.stuck == l.active {
		l.join()
	}
}
