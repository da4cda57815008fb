package partition

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/transaction"
)

// lane is what the partition is to the lane that makes its steps: it plans what is due, seals it with what requests have
// changed, and hands committed steps to the keeper. It implements transaction.Source. All calls follow each other (see
// ownership.Steps), but for Wait and wakeForDue, which are safe for all.
type lane struct {
	*owned
	subs      *subPartitions // nil until the partition is acquired
	toPark    *parkInbox
	questions *Questions
	handover  *handover

	suspects int          // entries that are not committed and are suspects
	stepped  int64        // when the last step was sealed, Unix ms
	nextDue  atomic.Int64 // when Seal may find something by itself, Unix ms; never: something wakes the lane
}

func newLane(own *owned) *lane {
	l := &lane{owned: own, handover: newHandover()}
	l.nextDue.Store(never)
	return l
}

// forever is how long a source sleeps that something else wakes.
const forever = time.Duration(math.MaxInt64)

// Seal implements transaction.Source. It asks no broker, and waits for none: the lane
// stands still meanwhile. What cannot be placed by
// what is known is rolled back like what goes to an unhealthy target.
func (l *lane) Seal(step string, room *transaction.Room) *transaction.Share {
	l.nextDue.Store(never)
	return l.life.Steps.Seal(step, room, l.seal)
}

// seal makes a share of what is due.
func (l *lane) seal(name string, room *transaction.Room) *transaction.Share {
	if l.handover.full() {
		return nil
	}
	within := l.within(*room)
	if l.suspects > 0 {
		within = timer.Size{Entries: 1, Bytes: 1} // one chunk: each suspect costs a round trip
	}
	step := l.step(within)
	if step == nil {
		return nil
	}
	s := &sealed{l: l, step: step}
	s.build(name)
	*room = room.Minus(step.Size()).Minus(sizeOfEvents(s.told))
	return s.share
}

// step plans what is due and takes a prefix of the sequences; nil if nothing is
// planned.
func (l *lane) step(room timer.Size) *planner.Step {
	l.subs.arrivals.notOpenedAhead(l.clock.millis())
	now, fire := l.clock.millis(), l.roomToFire(room, timer.Size{})
	l.subs.fire(now, fire)
	if l.subs.relieved() {
		l.life.Kick()
	}
	step := l.subs.take(room, l.mayPass(now))
	if step != nil && l.subs.backlog.sealed(now, room, step, l.late(now)) {
		l.life.Kick() // what was held back goes on
	}
	due, ok := l.subs.next()
	if step != nil {
		l.stepped = now
		if ok && due <= now {
			l.fireAhead(room, step.Firings())
		}
		return step
	}
	if ok = ok && !fire.IsUsedUp(); l.subs.couldPass() && (!ok || due > l.stepped+passPause) {
		due, ok = l.stepped+passPause, true
	}
	if ok {
		l.nextDue.Store(due) // what is due sooner meanwhile finds it never, and wakes the lane
	}
	return nil
}

// passPause is ownership.PassPause in ms.
const passPause = int64(ownership.PassPause / time.Millisecond)

// mayPass reports whether a step without entries may raise the position. A transaction leaves a marker behind
// its requests, and may leave aborted records. Mostly the position passes those together with the requests before
// them. If they are read later, or if there are no requests before them, no step would pass them, and Kafka's
// tools would show a lag for ever. It costs a step, so it is done once a second at most.
func (l *lane) mayPass(now int64) bool {
	return now < l.stepped || now >= l.stepped+passPause // sooner: the clock was set back
}

// fireAhead has firings planned for the next step while one is out. step is the room that this one had, and out the
// firings that it has. Otherwise the lane would wait for the planning, which takes about as long as a transaction.
// They are due, and stand where they would if the next step were sealed now; its seal looks at clock and targets
// again. No more is planned than a step has room for, and nothing if all that is due goes into one step.
func (l *lane) fireAhead(step, out timer.Size) {
	room := l.roomToFire(step, out)
	if !room.IsUsedUp() {
		l.subs.fireAhead(room)
	}
}

// roomToFire is how many firings may be planned for a step, and how many bytes of them: see flow. out are the
// firings of the step before it, if that is out.
func (l *lane) roomToFire(step, out timer.Size) timer.Size {
	room := l.subs.backlog.roomToFire()
	ready, requests := l.subs.ready()
	if requests {
		step = l.subs.backlog.share(step)
	}
	return room.Min(step.Minus(ready.Minus(out).Max(timer.Size{})))
}

// Wait implements transaction.Source: as of the last Seal.
func (l *lane) Wait() time.Duration {
	due := l.nextDue.Load()
	if due == never {
		return forever
	}
	return max(0, l.clock.until(due))
}

// wakeForDue has the lane seal when something in memory falls due sooner than it
// thinks.
func (l *lane) wakeForDue() {
	if due, ok := l.subs.next(); ok && due < l.nextDue.Load() {
		l.o.Lanes.Wake()
	}
}

// late reports whether a sub has timers that are late by our own doing: they should have been sealed before.
// It looks at the timer that fires next. One that was missed while nobody ran counts from when the gate opened,
// because timers that fall due since then wait behind it: they fire in the order of their due times.
func (l *lane) late(now int64) bool {
	return l.subs.any(func(x *planner.Planner) bool {
		at, ok := x.First(now)
		return ok && now-max(at.Due, l.subs.arrivals.at(at.Generation()), l.subs.arrivals.opened.Load()) > arrivalGrain
	})
}

// within is the part of a room that entries may take so that their events fit too: one for each entry at most.
func (l *lane) within(room timer.Size) timer.Size {
	if !l.tells() {
		return room
	}
	entries := max(1, min(room.Entries/2, int(room.Bytes/(2*eventBytes))))
	return timer.Size{Entries: entries, Bytes: room.Bytes - int64(entries)*eventBytes}
}
