package partition

import (
	"time"

	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

// stepPlanner plans the content of the next step, and takes it from the planners. All calls are the lane's.
type stepPlanner struct {
	*owned
	subs     *subPartitions
	backlog  *backlog
	arrivals *arrivals

	turn int   // which sub-partition gets leftover room first
	last int   // entries of the last step
	at   int64 // when the last step was taken, Unix ms
}

// passPause is ownership.PassPause in ms.
const passPause = int64(ownership.PassPause / time.Millisecond)

// step plans firings of due timers and takes a prefix of everything planned, which is out until commit or putBack. If
// there is nothing to take, it returns nil and when to look again without being woken.
func (p *stepPlanner) step(room timer.Size) (step *planner.Step, next int64) {
	now := p.clock.millis()
	p.arrivals.notOpenedAhead(now)
	fire := p.roomToFire(room, timer.Size{})
	p.fire(now, fire)
	if p.subs.any((*planner.Planner).Relieved) {
		p.life.Wake.Send()
	}
	step = p.take(room, p.mayPass(now))
	if step != nil && p.backlog.sealed(now, room, step, p.late(now)) {
		p.life.Wake.Send() // intake that was held back goes on
	}
	due, ok := p.subs.next()
	switch {
	case step != nil:
		p.at = now
		if ok && due <= now {
			p.fireAhead(room, step.Firings())
		}
		return step, never
	case !ok || fire.IsUsedUp():
		due = never
	}
	if p.couldPass() {
		due = min(due, p.at+passPause)
	}
	return nil, due
}

// mayPass reports whether a step without entries may raise the position. A transaction leaves a marker behind
// its requests, and may leave aborted records. Usually the position passes those together with the requests before
// them. If they are read later, or if there are no requests before them, no step would pass them, and Kafka's
// tools would show a lag forever. Such a step costs as much as any, so there is at most one a second.
func (p *stepPlanner) mayPass(now int64) bool {
	return now < p.at || now >= p.at+passPause // earlier: the clock was set back
}

// couldPass reports whether a step without requests would raise the position.
func (p *stepPlanner) couldPass() bool {
	return p.subs.progress.bound() > p.subs.Position() && !p.subs.any(func(x *planner.Planner) bool { _, requests := x.Ready(); return requests })
}

// roomToFire returns how many firings may be planned for a step: see flow. out is the size of the firings in the step
// that is out, if there is one.
func (p *stepPlanner) roomToFire(step, out timer.Size) timer.Size {
	room := p.backlog.roomToFire()
	ready, requests := p.ready()
	if requests {
		step = p.backlog.share(step)
	}
	return room.Min(step.Minus(ready.Minus(out).Max(timer.Size{})))
}

// ready returns what waits to be taken: see planner.Ready.
func (p *stepPlanner) ready() (firings timer.Size, requests bool) {
	p.subs.ask(func(s *subPartition) {
		n, waits := s.planner.Ready()
		firings = firings.Plus(n)
		requests = requests || waits
	})
	return firings, requests
}

// fire plans firings of due timers. Each sub-partition gets an even part of the room, so a burst in one leaves the
// others theirs. Room that some do not need goes to those that have more.
func (p *stepPlanner) fire(now int64, room timer.Size) {
	all := p.subs.all
	n := len(all)
	part, fired, behind := room.Over(n), make([]timer.Size, n), p.backlog.behind(n)
	p.subs.each(min(part.Entries, p.last), func(s *subPartition) { fired[s.number] = s.fire(now, part, behind) })
	for _, f := range fired {
		room = room.Minus(f)
	}
	p.turn++
	for i := 0; i < n && n > 1; i++ {
		s := all[(p.turn+i)%n]
		if part.Minus(fired[s.number]).IsUsedUp() {
			room = room.Minus(s.fire(now, room, behind))
		}
	}
}

// fireAhead makes the sub-partitions plan firings for the next step while this one is out, so that the lane need not
// wait for planning, which takes about as long as a transaction. Each gets an even part of the room. step is the room
// that this step had, and out the size of its firings. The planned firings are due, and stand where they would if the
// next step were taken now. That step takes those that are planned by then, plans the rest itself, and checks the clock
// and the targets again. No more is planned than a step has room for.
func (p *stepPlanner) fireAhead(step, out timer.Size) {
	room := p.roomToFire(step, out)
	if room.IsUsedUp() {
		return
	}
	for _, s := range p.subs.all {
		s.inbox.putAhead(room.Over(len(p.subs.all)))
	}
}

// take takes a step: see planner.Take. With pass it may be empty, if that raises the position.
func (p *stepPlanner) take(room timer.Size, pass bool) *planner.Step {
	bound := p.subs.progress.bound()
	p.subs.lock()
	defer p.subs.unlock()
	step := planner.Take(p.subs.planners, room, pass, bound)
	if p.last = 0; step != nil {
		p.last = step.Len()
	}
	return step
}

// commit takes the step that is out off the sequences.
func (p *stepPlanner) commit() {
	p.subs.lock()
	defer p.subs.unlock()
	planner.Commit(p.subs.planners)
}

// putBack ends the step that is out as if it had never been taken.
func (p *stepPlanner) putBack() {
	p.subs.lock()
	defer p.subs.unlock()
	planner.Return(p.subs.planners)
}

// late reports whether a sub-partition has timers that are late by our own doing: they should have been in an earlier
// step. It looks at the timer that fires next. One that was missed while no instance ran counts from when the partition
// went live, because timers that fall due since then wait behind it: they fire in the order of their due times.
func (p *stepPlanner) late(now int64) bool {
	return p.subs.any(func(x *planner.Planner) bool {
		at, ok := x.First(now)
		return ok && now-max(at.Due, p.arrivals.at(at.Generation()), p.arrivals.opened.Load()) > arrivalGrain
	})
}
