package partition

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/partition/questions"
	"github.com/waterclock/waterclock/internal/partition/tracker"
	"github.com/waterclock/waterclock/internal/rates"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// subPartitions are the sub-partitions of a partition. Each has one planner. A hash of the ID chooses the
// sub-partition, so everything that package planner promises holds for the IDs of each. They live for one
// acquisition, and nothing of them is stored: the next acquisition may have another number of them, and has
// another hash.
//
// Requests are planned side by side and settled in the order of their log (planner.Take says why no gap is
// ever stored). So if one sub-partition is held up, by a slow look-up or by many requests for its IDs, later
// requests of all of them are settled later. The firings of the others do not wait. The backlog bounds how far
// the others plan ahead.
//
// All share one store. A scan of it is split by ID, and each planner takes the rows above its own horizon. A checkpoint
// freezes all planners between two steps.
//
// This type chooses planners and takes their locks. It does nothing else: receiver hands out requests, lane plans and
// takes steps, and keeper, checkpoints and parking apply, flush, load and park. The last five methods are for package
// questions.
//
// Each planner has a lock, subPartition.mu. These goroutines take it: planAll of the sub-partition, the lane's, the
// keeper's, the forecast's, and callers of questions.Planners and Status. Several locks are taken in the order of the
// numbers. A goroutine that holds one may wait only for locks that are taken last: those of backlog and its budgets,
// arrivals, Targets, Health, and the cache of schedules. There is no I/O under it, except that the rules of a time zone
// may be read from disk. Mostly it is held for less than a millisecond. A commit holds all of them, so a caller that
// holds all of them sees each step whole or not at all. What follows from committed steps alone (see checkpoints)
// changes under all of them, so one is enough to read it.
type subPartitions struct {
	all      []*subPartition
	planners []*planner.Planner // of all, each guarded by its lock
	count    *planner.Count
	seed     maphash.Seed
	progress *tracker.Tracker // how far they have planned the requests that they were handed
}

var _ questions.Planners = (*subPartitions)(nil)

// subPartition is one sub-partition: a planner and its inbox.
type subPartition struct {
	part     *Partition
	store    *statestore.Handle
	subs     *subPartitions
	backlog  *backlog
	arrivals *arrivals
	rates    *rates.Holding
	number   int
	inbox    *inbox

	mu      sync.Mutex // guards the following fields
	planner *planner.Planner
	work    work
	// toPark has the timers that Fire has held back and the keeper has not taken yet, toParkBytes their memory. They
	// are put here in the same hold of the lock in which Fire marks their items. So whoever sees a timer marked as
	// being parked either finds it here or knows that the keeper is at it.
	toPark      []planner.Parkings
	toParkBytes int64
}

// locked calls f with the lock held.
func (s *subPartition) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// muchToDo is the number of entries or changes from which on a goroutine for each sub-partition pays.
const muchToDo = 1000

// newSubPartitions makes planners for a partition whose requests are settled below from. All planners of a
// request topic share one cache of schedules, so a tenant's expressions are held once.
func newSubPartitions(l *lane, from, pending int64) *subPartitions {
	p := l.part
	n := p.o.SubPartitions()
	subs := &subPartitions{seed: maphash.MakeSeed(), progress: tracker.New(n, from),
		count: planner.NewCount(pending)}
	busy := p.o.Metrics.planningTime(p.o.Topics.Request.Name, p.o.Partition)
	for i := range n {
		x := planner.New(from, p.clock.millis(), p.o.Memory.Wheel.Limit()/int64(n))
		x.Share(subs.count, p.o.Rules.Schedules())
		subs.all = append(subs.all, &subPartition{part: p, store: l.store, subs: subs, backlog: l.backlog,
			arrivals: l.arrivals, rates: l.rates, number: i, inbox: &inbox{wake: beats.NewSignal()},
			work: work{busy: busy, share: 1 / float64(n)}, planner: x})
		subs.planners = append(subs.planners, x)
	}
	return subs
}

// of returns the sub-partition that an ID belongs to.
func (sp *subPartitions) of(id []byte) *subPartition {
	if len(sp.all) == 1 {
		return sp.all[0]
	}
	return sp.all[maphash.Bytes(sp.seed, id)%uint64(len(sp.all))]
}

// split distributes timers to the sub-partitions, in their order.
func (sp *subPartitions) split(timers []*timer.Timer) [][]*timer.Timer {
	parts := make([][]*timer.Timer, len(sp.all))
	if len(parts) == 1 {
		parts[0] = timers
		return parts
	}
	for _, t := range timers {
		n := sp.of(t.ID).number
		parts[n] = append(parts[n], t)
	}
	return parts
}

// give calls f for each sub-partition that some of the timers belong to, with those timers, and with its lock held.
func (sp *subPartitions) give(timers []*timer.Timer, f func(*planner.Planner, []*timer.Timer)) {
	parts := sp.split(timers)
	sp.ask(func(s *subPartition) {
		if part := parts[s.number]; len(part) > 0 {
			f(s.planner, part)
		}
	})
}

// lock takes all locks.
func (sp *subPartitions) lock() {
	for _, s := range sp.all {
		s.mu.Lock()
	}
}

func (sp *subPartitions) unlock() {
	for _, s := range sp.all {
		s.mu.Unlock()
	}
}

// each calls f for each sub-partition, without its lock. It calls them side by side if there are many entries.
func (sp *subPartitions) each(entries int, f func(*subPartition)) {
	var others sync.WaitGroup
	defer others.Wait()
	for _, s := range sp.all[1:] {
		if entries >= muchToDo {
			others.Go(func() { f(s) })
		} else {
			f(s)
		}
	}
	f(sp.all[0])
}

// ask calls f for each sub-partition in turn, with its lock held.
func (sp *subPartitions) ask(f func(*subPartition)) {
	for _, s := range sp.all {
		s.mu.Lock()
		f(s)
		s.mu.Unlock()
	}
}

// any reports whether f holds for one of the planners. It asks all of them.
func (sp *subPartitions) any(f func(*planner.Planner) bool) (found bool) {
	sp.ask(func(s *subPartition) { found = f(s.planner) || found })
	return found
}

// next is when a firing may next be planned: see planner.Next.
func (sp *subPartitions) next() (due int64, ok bool) {
	sp.ask(func(s *subPartition) {
		if d, found := s.planner.Next(); found && (!ok || d < due) {
			due, ok = d, true
		}
	})
	return due, ok
}

// size returns the number of IDs in memory, and about how many bytes the memtables hold.
func (sp *subPartitions) size() (items int, bytes int64) {
	sp.ask(func(s *subPartition) {
		stats := s.planner.Stats()
		items, bytes = items+stats.IDs, bytes+stats.Bytes
	})
	return items, bytes
}

// overdue returns for how long the oldest timer in memory has been due that is not planned yet, and the oldest one
// whose firing is not committed.
func (sp *subPartitions) overdue(now int64) (unplanned, uncommitted time.Duration) {
	oldest, entry := int64(never), int64(never)
	sp.ask(func(s *subPartition) {
		stats := s.planner.Stats()
		oldest, entry = min(oldest, stats.Oldest), min(entry, stats.Uncommitted)
	})
	since := func(due int64) time.Duration { return time.Duration(max(0, now-due)) * time.Millisecond }
	return since(oldest), since(min(oldest, entry))
}

// The following methods implement questions.Planners.

// Committed returns the timer that is pending under an ID, if the planner knows: see planner.Committed.
func (sp *subPartitions) Committed(id []byte) (t *timer.Timer, known bool) {
	s := sp.of(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.planner.Committed(id)
}

// Pending returns the number of pending timers in the committed state.
func (sp *subPartitions) Pending() int64 {
	sp.lock()
	defer sp.unlock()
	return sp.count.Committed()
}

// Position returns the position of the last committed step.
func (sp *subPartitions) Position() int64 {
	s := sp.all[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.planner.Stats().Position
}

// Lacks is how many flushes have ended, and about how many IDs the store may lack, of all planners together.
func (sp *subPartitions) Lacks() (flushes int64, ids int) {
	sp.ask(func(s *subPartition) {
		stats := s.planner.Stats()
		flushes, ids = flushes+stats.Flushes, ids+stats.Changed
	})
	return flushes, ids
}

// Collect collects the changes that the store may lack. It returns false if more flushes have ended by now.
func (sp *subPartitions) Collect(u *planner.Unflushed, flushes int64) (current bool) {
	sp.lock()
	defer sp.unlock()
	for _, x := range sp.planners {
		flushes -= x.Stats().Flushes
	}
	if flushes != 0 {
		return false
	}
	u.Collect(sp.planners)
	return true
}
