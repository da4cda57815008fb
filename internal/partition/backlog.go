package partition

import (
	"sync"
	"time"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

// queueEntry is about how many bytes of memory a small request takes until it is committed: the record, the entry, the
// item, the bytes for the changelog. Each queued request or firing counts as at least that.
const queueEntry = 1024

// QueueBytes returns how many bytes of a budget queued requests or firings count as.
func QueueBytes(n timer.Size) int64 { return max(n.Bytes, int64(n.Entries)*queueEntry) }

// RoomFor returns how much an account has room for, if the next record takes this many bytes.
func RoomFor(a *budget.Account, next int64) timer.Size {
	return roomOf(a.Room(max(next, queueEntry)))
}

// roomOf returns the largest size that counts as this many bytes.
func roomOf(bytes int64) timer.Size {
	return timer.Size{Entries: int(bytes / queueEntry), Bytes: bytes}
}

// backlog counts the requests and firings that are not committed yet.
//
// Firings have room of their own, because a backlog of them may last, and must not hold up the cancels that clients
// send in the meantime. Each change goes to the budgets that partitions share. A full partition resumes when it has
// released memory. One that is not full, but has no room for its next record, is tried again soon (partlog.roomPause).
type backlog struct {
	intake  *budget.Account // requests
	emitted *budget.Account // firings

	mu       sync.Mutex // guards the following fields
	requests timer.Size // delivered, not committed
	firings  timer.Size // planned, not committed
	out      int        // how many requests are in the step in flight
	flow     flow
	starved  bool // due timers wait for room; cleared by commit
}

// newBacklog returns an empty backlog, and tells the budgets.
func newBacklog(intake, emitted *budget.Account) *backlog {
	b := &backlog{intake: intake, emitted: emitted}
	b.tell()
	return b
}

// tell tells the budgets, and reports whether intake has used its memory. b.mu is held.
func (b *backlog) tell() (full bool) {
	b.emitted.Set(QueueBytes(b.firings))
	return b.intake.Set(QueueBytes(b.requests))
}

func (b *backlog) delivered(n timer.Size) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests = b.requests.Plus(n)
	b.tell()
}

func (b *backlog) fired(n timer.Size) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.firings = b.firings.Plus(n)
	b.tell()
}

// share is how much of a step firings may have while requests wait.
func (b *backlog) share(step timer.Size) timer.Size {
	b.mu.Lock()
	defer b.mu.Unlock()
	return timer.Size{Entries: int(b.flow.share(int64(step.Entries))), Bytes: b.flow.share(step.Bytes)}
}

// sealed notes that a step is in flight, and the room that it had. It reports whether intake was held back for the
// limit since the last seal.
func (b *backlog) sealed(now int64, room timer.Size, s *planner.Step, late bool) (held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	step, requests := s.Size(), s.Requests().Entries
	b.out, held = requests, b.flow.held
	filled := max(float64(step.Entries)/float64(room.Entries), float64(step.Bytes)/float64(room.Bytes))
	b.flow.sealed(now, room.Entries, filled, b.requests.Entries, requests, s.Firings().Entries, late)
	return held
}

// returned notes that the step in flight was put back.
func (b *backlog) returned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out = 0
}

// commit notes that the step in flight is committed, and how long that took from its seal on. It reports whether due
// timers waited for room.
func (b *backlog) commit(requests, firings timer.Size, took time.Duration) (starved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out, b.flow.took = 0, took
	b.requests, b.firings = b.requests.Minus(requests), b.firings.Minus(firings)
	b.tell()
	starved, b.starved = b.starved, false
	return starved
}

// roomToFire is the size of the firings that may be planned now: the rest of the account of firings.
func (b *backlog) roomToFire() timer.Size {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := roomOf(b.emitted.Limit()).Minus(b.firings)
	b.starved = room.IsUsedUp()
	return room
}

// behind is the size of the firings that each of n planners may have behind requests that are not settled. Together
// that is half of the account of firings. A sole planner needs no bound.
func (b *backlog) behind(n int) timer.Size {
	if n == 1 {
		return timer.Unlimited
	}
	return roomOf(b.emitted.Limit() / 2).Over(n)
}

// full reports whether memory or flow holds intake back.
func (b *backlog) full(paused bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	enough := b.flow.full(b.requests.Entries-b.out, paused)
	return b.tell() || enough
}

// room is the size of the requests that may be delivered now. The next one takes this many bytes.
func (b *backlog) room(next int64) timer.Size {
	b.mu.Lock()
	defer b.mu.Unlock()
	return RoomFor(b.intake, next)
}

// onTheirWay is the size of delivered requests and planned firings that are not committed.
func (b *backlog) onTheirWay() timer.Size {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests.Plus(b.firings)
}

// flow decides how much of a step is for firings and how much for requests, and whether intake reads on. It is
// arithmetic: it has no clock and no lock. backlog.mu guards it.
//
// # Purpose
//
// Requests beyond the capacity wait in Kafka's log, where they cost nothing. A request that was read costs memory while
// it waits in a queue. If it falls due there, its firing waits behind it. Timers that are read faster than they fire
// overflow to the store, so each of them costs more, and all of them are later.
//
// # The law
//
//  1. Firings go first. A step takes due timers before any request. While requests wait, firings have half of its room,
//     or four fifths of it if due timers are late by our own doing. The rest is the floor for requests: cancels are
//     read, however late timers are.
//  2. Intake reads for the next step and no further. limit is how many requests may wait to be sealed. Each seal
//     changes it. It falls if the partition filled at least 75 % of its part of the step and left a fifth of the
//     requests that waited, if timers are late, or if the last step took longer than longStep. Otherwise it grows if it
//     held intake back. If intake was not held back for firingsFor, the limit falls slowly to four times what steps use
//     of it. So a request waits for about one step, and a firing that it makes due is in the same step or the next.
//  3. If no timer fires, reading makes none late. Then intake reads two steps ahead.
//
// # Why this is stable
//
// limit falls by a quarter or grows by an eighth, at most once in a step. TCP's congestion control works the same way
// (it adds a constant, where we add an eighth, because steps differ in size by a hundred times). So limit hovers around
// the capacity. The partitions of a lane see the same long steps and end up with even parts. A partition that reads
// little never reaches its limit. limit is never below a fifth of the partition's part of the step, nor below
// leastReadAhead. So a hot partition does not stop the intake of others, and the limit grows again in steps with room.
// The cause of a small limit is forgotten within some twenty steps.
//
// Intake that was held back is slow to come back: the fetch under way leaves the partition out, and waits for data of
// the others, up to partlog.fetchWait (100 ms) if they have none. Steps in the meantime have no requests, which says
// nothing about the right limit. That is the purpose of firingsFor. Without it, a partition that caught up alone
// hovered around a fifth of a step, at half its pace, although processors were idle.
//
// # Its premises
//
// Late means late by our own doing, counted from the latest of three moments: the timer was due, its request was read,
// the catch-up barrier opened. So timers that were missed while no instance ran get their four fifths too: timers that
// fall due later wait behind them. Parked and paused timers are in no wheel, so they do not push others aside. Firings
// come first because the planner puts them before all requests except those of their own IDs. Intake that was held back
// resumes because each seal and each commit checks whether it may.
type flow struct {
	limit   int           // how many requests may wait to be sealed; 0: there was no step yet
	held    bool          // intake was held back for the limit since the last seal
	heldAt  int64         // when a seal last found held, Unix ms
	late    bool          // the last seal left timers that are late by our own doing
	firedAt int64         // when a step last had firings, Unix ms
	took    time.Duration // how long the last committed step took, from seal to commit
}

const (
	// maxReadAhead is how many requests may wait at most.
	maxReadAhead = 2 * emitter.MaxStepEntries
	// leastReadAhead is how many may always wait.
	leastReadAhead = 100
	// longStep is how long a step may take before less is taken in, while timers fire. The lanes' limit (type size in
	// emitter/size.go, with a longStep of its own that need not equal this one) makes steps smaller for another reason:
	// it leaves out round trips, which fewer entries would not shorten, and stops at half a step. If brokers are slow
	// all steps are long, however small, and requests that were read wait for them.
	longStep = 100 * time.Millisecond
	// firingsFor is how long after a firing more of them are expected, and how long after a seal found intake held back
	// the limit does not fall for want of use, in ms.
	firingsFor = 1000
)

// share is how much of a step's room, in entries or bytes, firings may take while requests wait.
func (f *flow) share(room int64) int64 {
	if f.late {
		return (4*room + 4) / 5
	}
	return (room + 1) / 2
}

// sealed notes a seal at now (Unix ms) and works out the limit anew. room is how many entries the partition could have
// in the step, and filled which part of that it took, from 0 to 1. waited is how many requests there were; requests and
// firings are how many of each it took. late says that it left timers that are late by our own doing.
func (f *flow) sealed(now int64, room int, filled float64, waited, requests, firings int, late bool) {
	held := f.held
	f.held, f.late = false, late
	f.heldAt, f.firedAt = min(f.heldAt, now), min(f.firedAt, now) // the clock may have been set back
	if held {
		f.heldAt = now
	}
	if firings > 0 {
		f.firedAt = now
	}
	if now-f.firedAt > firingsFor {
		f.limit = min(max(2*room, leastReadAhead), maxReadAhead)
		return
	}
	limit := f.readAhead()
	switch {
	case late, filled >= 0.75 && 4*waited > 5*requests, f.took > longStep:
		limit -= limit / 4
	case held:
		limit += limit/8 + 1
	case limit > 4*requests && now-f.heldAt > firingsFor:
		limit -= limit / 8
	}
	f.limit = max(min(limit, room), room/5, leastReadAhead)
}

// readAhead is how many requests may wait to be sealed.
func (f *flow) readAhead() int {
	if f.limit == 0 {
		return maxReadAhead
	}
	return f.limit
}

// full reports whether intake is to be held back, while this many requests wait to be sealed. It pauses at the limit
// and, once paused, goes on at half of it.
func (f *flow) full(waiting int, paused bool) bool {
	limit := f.readAhead()
	f.held = f.held || waiting >= limit
	return waiting >= limit || paused && waiting > limit/2
}
