package partition

import (
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

// queueEntry is about how many bytes of memory a small request takes until it is applied: the record, the entry, the
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

// backlog counts the requests and firings that are not applied yet. Each of them is in one of the three
// counts at a time.
//
// Committed entries that are not applied count against intake and firings: if the store is slow, they are the greater
// part. Firings that are not committed have room of their own, because a backlog of them may last, and must not hold up
// the cancels that are written meanwhile. Each change goes to the budgets that partitions share. A full partition
// resumes when it has released memory. One that is not full, but has no room for its next record, is tried again soon
// (partlog.roomPause).
type backlog struct {
	intake  *budget.Account // requests, and what is committed
	emitted *budget.Account // firings

	mu        sync.Mutex // guards what follows
	requests  timer.Size // delivered, not committed
	firings   timer.Size // planned, not committed
	committed timer.Size // not applied
	out       int        // how many requests are in the step that is out
	flow      flow
	starved   bool // due timers wait for room; cleared by applied
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
	return b.intake.Set(QueueBytes(b.requests.Plus(b.committed)))
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

// sealed notes that a step is out, and the room that it had. It reports whether intake was held back for requests that
// are in the step now.
func (b *backlog) sealed(now int64, room timer.Size, s *planner.Step, late bool) (held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	step, requests := s.Size(), s.Requests().Entries
	b.out, held = requests, b.flow.held
	filled := max(float64(step.Entries)/float64(room.Entries), float64(step.Bytes)/float64(room.Bytes))
	b.flow.sealed(now, room.Entries, filled, b.requests.Entries, requests, s.Firings().Entries, late)
	return held
}

// returned notes that the step that was out was put back.
func (b *backlog) returned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out = 0
}

// commit notes that the step that was out is committed, and how long that took from its seal on.
func (b *backlog) commit(requests, firings timer.Size, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out, b.flow.took = 0, took
	b.requests, b.firings = b.requests.Minus(requests), b.firings.Minus(firings)
	b.committed = b.committed.Plus(requests).Plus(firings)
	b.tell()
}

// applied notes that entries were applied, and reports whether due timers waited for their room.
func (b *backlog) applied(n timer.Size) (starved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.committed = b.committed.Minus(n)
	b.tell()
	starved, b.starved = b.starved, false
	return starved
}

// roomToFire is the size of the firings that may be planned now: what the account of firings has left, or less if what
// is not applied has used up the account of requests.
func (b *backlog) roomToFire() timer.Size {
	b.mu.Lock()
	defer b.mu.Unlock()
	firings := roomOf(b.emitted.Limit())
	both := firings.Plus(roomOf(b.intake.Limit()))
	room := firings.Min(both.Minus(b.committed)).Minus(b.firings)
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
