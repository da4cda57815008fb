package partition

import (
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/rates"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// lane is the partition as the lanes of package emitter see it. It plans the content of the next step, takes it
// from the planners, seals it into a share of a transaction, and applies it when it is committed. It implements
// emitter.Source, behind an ownership.Source. Its calls follow each other (see ownership.Steps), except Wait and
// wakeForDue, which are safe for concurrent use.
type lane struct {
	part  *Partition
	store *statestore.Handle
	// The following fields are set when the partition is acquired, before anything uses them.
	subs        *subPartitions
	backlog     *backlog
	arrivals    *arrivals
	checkpoints *checkpoints
	rates       *rates.Holding

	suspects int   // how many uncommitted entries are suspects
	turn     int   // which sub-partition gets leftover room first
	last     int   // entries of the last step
	at       int64 // when the last step was taken, Unix ms
	// when Seal may find something without being woken, Unix ms; never: nothing in memory will be due
	nextDue atomic.Int64
}

var _ emitter.Source = (*lane)(nil)

func (p *Partition) newLane(store *statestore.Handle) *lane {
	l := &lane{part: p, store: store}
	l.nextDue.Store(never)
	return l
}

// Seal implements emitter.Source. It asks no broker and waits for none, because a lane stands still during the call. If
// it is not known which partition a firing goes to, the firing is rolled back, as if its target were unhealthy.
func (l *lane) Seal(name string, room *emitter.Room) *emitter.Share {
	l.nextDue.Store(never)
	if l.checkpoints.mustWait() {
		return nil
	}
	within := l.within(*room)
	if l.suspects > 0 {
		within = timer.Size{Entries: 1, Bytes: 1} // one chunk: each suspect costs a round trip
	}
	step, next := l.step(within)
	if step == nil {
		l.nextDue.Store(next) // until here it was never, so a timer that was loaded in between wakes the lanes
		return nil
	}
	s := stepPool.Get().(*sealedStep)
	s.l, s.step = l, step
	s.build(name)
	*room = room.Minus(step.Size()).Minus(sizeOfEvents(s.eventCount))
	return s.share
}

// Wait implements emitter.Source: as of the last Seal.
func (l *lane) Wait() time.Duration {
	due := l.nextDue.Load()
	if due == never {
		return ownership.Forever
	}
	return max(0, l.part.clock.until(due))
}

// wakeForDue wakes the lanes if a timer in memory falls due earlier than they expect.
func (l *lane) wakeForDue() {
	if due, ok := l.subs.next(); ok && due < l.nextDue.Load() {
		l.part.o.Lanes.Wake()
	}
}

// within returns the part of a step's room that entries may take, so that an event for each of them fits too.
func (l *lane) within(room timer.Size) timer.Size {
	if !l.part.hasEvents() {
		return room
	}
	entries := max(1, min(room.Entries/2, int(room.Bytes/(2*eventBytes))))
	return timer.Size{Entries: entries, Bytes: room.Bytes - int64(entries)*eventBytes}
}

// passPause is ownership.PassPause in ms.
const passPause = int64(ownership.PassPause / time.Millisecond)

// step plans firings of due timers and takes a prefix of everything planned, which is in flight until sealedStep.commit
// or sealedStep.giveBack. If there is nothing to take, it returns nil and when to look again without being woken.
func (l *lane) step(room timer.Size) (step *planner.Step, next int64) {
	now := l.part.clock.millis()
	l.arrivals.notOpenedAhead(now)
	fire := l.roomToFire(room, timer.Size{})
	l.fire(now, fire)
	if l.subs.any((*planner.Planner).Relieved) {
		l.part.life.Wake.Send()
	}
	step = l.take(room, l.mayPass(now))
	if step != nil && l.backlog.sealed(now, room, step, l.late(now)) {
		l.part.life.Wake.Send() // intake that was held back goes on
	}
	due, ok := l.subs.next()
	switch {
	case step != nil:
		l.at = now
		if ok && due <= now {
			l.fireAhead(room, step.Firings())
		}
		return step, never
	case !ok || fire.IsUsedUp():
		due = never
	}
	if l.couldPass() {
		due = min(due, l.at+passPause)
	}
	return nil, due
}

// mayPass reports whether a step without entries may raise the position. A transaction leaves a marker behind
// its requests, and may leave aborted records. Usually the position passes those together with the requests before
// them. If they are read later, or if there are no requests before them, no step would pass them, and Kafka's
// tools would show a lag forever. Such a step costs as much as any, so there is at most one a second.
func (l *lane) mayPass(now int64) bool {
	return now < l.at || now >= l.at+passPause // earlier: the clock was set back
}

// couldPass reports whether a step without requests would raise the position.
func (l *lane) couldPass() bool {
	return l.subs.progress.Bound() > l.subs.Position() &&
		!l.subs.any(func(x *planner.Planner) bool { _, requests := x.Ready(); return requests })
}

// roomToFire returns how many firings may be planned for a step: see flow. out is the size of the firings in the step
// in flight, if there is one.
func (l *lane) roomToFire(step, out timer.Size) timer.Size {
	room := l.backlog.roomToFire()
	ready, requests := l.ready()
	if requests {
		step = l.backlog.share(step)
	}
	return room.Min(step.Minus(ready.Minus(out).Max(timer.Size{})))
}

// ready returns the firings and requests that wait to be taken: see planner.Ready.
func (l *lane) ready() (firings timer.Size, requests bool) {
	l.subs.ask(func(s *subPartition) {
		n, waits := s.planner.Ready()
		firings = firings.Plus(n)
		requests = requests || waits
	})
	return firings, requests
}

// fire plans firings of due timers. Each sub-partition gets an even part of the room, so a burst in one leaves the
// others theirs. Room that some do not need goes to those that have more.
func (l *lane) fire(now int64, room timer.Size) {
	all := l.subs.all
	n := len(all)
	part, fired, behind := room.Over(n), make([]timer.Size, n), l.backlog.behind(n)
	l.subs.each(min(part.Entries, l.last), func(s *subPartition) { fired[s.number] = s.fire(now, part, behind) })
	for _, f := range fired {
		room = room.Minus(f)
	}
	l.turn++
	for i := 0; i < n && n > 1; i++ {
		s := all[(l.turn+i)%n]
		if part.Minus(fired[s.number]).IsUsedUp() {
			room = room.Minus(s.fire(now, room, behind))
		}
	}
}

// fireAhead makes the sub-partitions plan firings for the next step while this one is in flight, so that the lane need
// not wait for planning, which takes about as long as a transaction. Each gets an even part of the room. step is the
// room that this step had, and out the size of its firings. The planned firings are due, and stand in the order that
// they would have if the next step were taken now. That step takes those that are planned by then, plans the rest
// itself, and checks the clock and the targets again. No more is planned than a step has room for.
func (l *lane) fireAhead(step, out timer.Size) {
	room := l.roomToFire(step, out)
	if room.IsUsedUp() {
		return
	}
	for _, s := range l.subs.all {
		s.inbox.update(func() { s.inbox.ahead = room.Over(len(l.subs.all)) })
	}
}

// take takes a step: see planner.Take. With pass it may be empty, if that raises the position. It may also be empty if
// ClockSkew asks for a step.
func (l *lane) take(room timer.Size, pass bool) *planner.Step {
	bound := l.subs.progress.Bound()
	l.subs.lock()
	defer l.subs.unlock()
	step := planner.Take(l.subs.planners, room, pass, bound)
	if step == nil && l.part.o.ClockSkew.Asks() {
		step = planner.TakeNone(l.subs.planners)
	}
	if l.last = 0; step != nil {
		l.last = step.Len()
	}
	return step
}

// late reports whether a sub-partition has timers that are late by our own doing: they should have been in an earlier
// step. It looks at the timer that fires next. One that was missed while no instance ran counts from when the partition
// went live, because timers that fall due since then wait behind it: they fire in the order of their due times.
func (l *lane) late(now int64) bool {
	return l.subs.any(func(x *planner.Planner) bool {
		at, ok := x.First(now)
		return ok && now-max(at.Due, l.arrivals.at(at.Generation()), l.arrivals.opened.Load()) > arrivalGrain
	})
}
