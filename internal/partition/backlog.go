package partition

import (
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/budget"
	"github.com/waterclock/waterclock/internal/planner"
)

// queueEntry is about what a small request takes on its way, all in all: the record, the
// entry, the item, the bytes for the changelog. What is on its way counts as so many
// bytes for each at least.
const queueEntry = 1024

// load is a number of requests or firings, and about how many bytes they hold.
type load struct {
	entries int
	bytes   int64
}

func loadOf(entries int, bytes int64) load { return load{entries, bytes} }

func (l *load) add(entries int, bytes int64) { l.entries, l.bytes = l.entries+entries, l.bytes+bytes }

func (l *load) plus(o load) load { return load{l.entries + o.entries, l.bytes + o.bytes} }

// held is how many bytes the load counts as.
func (l *load) held() int64 { return QueueBytes(l.entries, l.bytes) }

// QueueBytes is what entries that hold so many bytes count as while they are on their
// way.
func QueueBytes(entries int, bytes int64) int64 { return max(bytes, int64(entries)*queueEntry) }

// roomOf is the largest load that counts as so many bytes.
func roomOf(bytes int64) load { return load{int(bytes / queueEntry), bytes} }

// backlog counts what is on its way and not folded into the delta yet. Each entry is
// in one of the three counts at a time.
//
// What is committed and not folded counts against intake and firings: if the store
// is slow it is the greater part. Firings that are not committed have room of their
// own, because a backlog of them may last, and must not hold up the cancels that are written
// meanwhile. Each change of either is told to a budget that partitions share. A partition
// that found no room looks again when it has let go of something itself.
type backlog struct {
	intake  *budget.Account // requests, and what is committed
	emitted *budget.Account // firings

	mu        sync.Mutex // guards what follows
	requests  load       // delivered, not committed
	firings   load       // planned, not committed
	committed load       // not folded
	out       int        // requests of the step that is out
	flow      flow
	starved   bool // due timers wait for room; ended by folded
}

// newBacklog returns an empty one, and tells the budgets.
func newBacklog(intake, emitted *budget.Account) *backlog {
	b := &backlog{intake: intake, emitted: emitted}
	b.settle()
	return b
}

// reset forgets all counts.
func (b *backlog) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests, b.firings, b.committed, b.starved = load{}, load{}, load{}, false
	b.out, b.flow = 0, flow{}
	b.settle()
}

// settle tells the budgets, and reports whether intake has enough. b.mu is held.
func (b *backlog) settle() (full bool) {
	held := b.requests.plus(b.committed)
	b.emitted.Set(b.firings.held())
	return b.intake.Set(held.held())
}

func (b *backlog) delivered(entries int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests.add(entries, bytes)
	b.settle()
}

func (b *backlog) fired(entries int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.firings.add(entries, bytes)
	b.settle()
}

// share is how much of a step firings may have while requests wait.
func (b *backlog) share(step load) load {
	b.mu.Lock()
	defer b.mu.Unlock()
	return load{int(b.flow.share(int64(step.entries))), b.flow.share(step.bytes)}
}

// sealed notes that a step is out, and the room that it had. It reports whether intake was held back
// for requests that do not wait any more.
func (b *backlog) sealed(now int64, room load, s *planner.Step, late bool) (held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	requests, _ := s.Requests()
	firings, _ := s.Firings()
	b.out, held = requests, b.flow.held
	filled := max(float64(s.Len())/float64(room.entries), float64(s.Bytes())/float64(room.bytes))
	b.flow.sealed(now, room.entries, filled, b.requests.entries, requests, firings, late)
	return held
}

// returned notes that the step that was out is back.
func (b *backlog) returned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out = 0
}

// commit notes that the step that was out is committed, and how long that took from its seal on.
func (b *backlog) commit(requests, firings load, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out, b.flow.took = 0, took
	b.requests.add(-requests.entries, -requests.bytes)
	b.firings.add(-firings.entries, -firings.bytes)
	both := requests.plus(firings)
	b.committed.add(both.entries, both.bytes)
	b.settle()
}

// folded notes that entries were folded, and reports whether due timers waited for their room.
func (b *backlog) folded(l load) (starved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.committed.add(-l.entries, -l.bytes)
	b.settle()
	starved, b.starved = b.starved, false
	return starved
}

// roomToFire is how many firings may be planned now, and how many bytes of them: what the
// share of firings has left, less if what is not folded has used up that of requests.
func (b *backlog) roomToFire() load {
	b.mu.Lock()
	defer b.mu.Unlock()
	firings := roomOf(b.emitted.Limit())
	both := firings.plus(roomOf(b.intake.Limit()))
	room := load{
		min(firings.entries, both.entries-b.committed.entries) - b.firings.entries,
		min(firings.bytes, both.bytes-b.committed.bytes) - b.firings.bytes,
	}
	b.starved = room.entries <= 0 || room.bytes <= 0
	return room
}

// behind is how many firings each of n planners may have behind requests that are not settled, and how many bytes of
// them: together half of the share of firings.
func (b *backlog) behind(n int) load {
	half := roomOf(b.emitted.Limit() / 2)
	return load{half.entries / n, half.bytes / int64(n)}
}

// full reports whether intake is to be held back: by memory, or by flow.
func (b *backlog) full(paused bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	enough := b.flow.full(b.requests.entries-b.out, paused)
	return b.settle() || enough
}

// onTheirWay are the requests that are delivered, and the firings that are planned, and not committed.
func (b *backlog) onTheirWay() load {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests.plus(b.firings)
}
