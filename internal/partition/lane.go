package partition

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/internal/partition/questions"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/transaction"
)

// lane is the partition as the lanes of package transaction see it. It seals what stepPlanner takes into a share of a
// transaction, and hands committed steps to the keeper. It implements transaction.Source. Its calls follow each other
// (see ownership.Steps), except Wait and wakeForDue, which are safe for concurrent use.
type lane struct {
	*owned
	steps     *stepPlanner // nil until the partition is acquired
	questions *questions.Questions
	handover  *handover

	suspects int          // how many uncommitted entries are suspects
	nextDue  atomic.Int64 // when Seal may find something without being woken, Unix ms; never: nothing in memory will be due
}

func newLane(own *owned) *lane {
	l := &lane{owned: own, handover: newHandover()}
	l.nextDue.Store(never)
	return l
}

// forever is how long a source sleeps until it is woken.
const forever = time.Duration(math.MaxInt64)

// Seal implements transaction.Source. It asks no broker and waits for none, because the lane stands still meanwhile. If
// what is known does not say which partition a firing goes to, the firing is rolled back, as if its target were
// unhealthy.
func (l *lane) Seal(step string, room *transaction.Room) *transaction.Share {
	l.nextDue.Store(never)
	return l.life.Steps.Seal(l, step, room, l.seal)
}

// seal makes a share of what can go into a step now.
func (l *lane) seal(name string, room *transaction.Room) *transaction.Share {
	if l.handover.full() {
		return nil
	}
	within := l.within(*room)
	if l.suspects > 0 {
		within = timer.Size{Entries: 1, Bytes: 1} // one chunk: each suspect costs a round trip
	}
	step, next := l.steps.step(within)
	if step == nil {
		l.nextDue.Store(next) // until here it was never, so a timer that was loaded meanwhile wakes the lanes
		return nil
	}
	s := &sealedStep{l: l, step: step}
	s.build(name)
	*room = room.Minus(step.Size()).Minus(sizeOfEvents(s.eventCount))
	return s.share
}

// Wait implements transaction.Source: as of the last Seal.
func (l *lane) Wait() time.Duration {
	due := l.nextDue.Load()
	if due == never {
		return forever
	}
	return max(0, l.clock.until(due))
}

// wakeForDue wakes the lanes if a timer in memory falls due earlier than they expect.
func (l *lane) wakeForDue() {
	if due, ok := l.steps.subs.next(); ok && due < l.nextDue.Load() {
		l.o.Lanes.Wake()
	}
}

// within returns the part of a step's room that entries may take, so that an event for each of them fits too.
func (l *lane) within(room timer.Size) timer.Size {
	if !l.hasEvents() {
		return room
	}
	entries := max(1, min(room.Entries/2, int(room.Bytes/(2*eventBytes))))
	return timer.Size{Entries: entries, Bytes: room.Bytes - int64(entries)*eventBytes}
}
