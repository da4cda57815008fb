package partition

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/tracker"
	"github.com/waterclock/waterclock/statestore"
)

// subPartitions are the sub-partitions of a partition: one planner each. A hash says which of them an ID
// belongs to, so all that package planner promises holds for the IDs of each. The rest of the partition
// does not know how many there are. They live from one acquisition to the next, and nothing of them is
// stored: each life may have another number, and has another hash.
//
// Requests are planned side by side and settled in the order of their log (planner.Take has the argument
// why no gap is ever stored). So if one sub-partition is held up, by a slow look-up or by many requests
// for its IDs, later requests of all of them are settled later. The firings of the others do not wait.
// How far the others plan ahead is bounded by what intake may deliver (backlog).
//
// All share one store. A scan of it is split by ID, and each planner takes what lies above its own
// horizon. The goroutine that folds steps freezes all planners for a checkpoint, between two steps.
//
// Locks: each sub has one. Several are taken in the order of their
// numbers. They are held for about a millisecond at most: over no I/O, and over no lock but those of the
// tracker, arrivals, Targets and Health. A commit holds all of them, so whoever holds all of them sees each
// step whole or not at all.
type subPartitions struct {
	*owned
	planning
	all      []*subPartition
	planners []*planner.Planner // of all, each guarded by its lock
	seed     maphash.Seed
	turn     int // the lane's own: the sub whose firings get the room left over by others first
	last     int // the lane's own: entries of the last step

	mu      sync.Mutex // guards tracker
	tracker *tracker.Tracker
}

// planning is what planning needs besides planners.
type planning struct {
	store    *statestore.Handle
	backlog  *backlog
	arrivals *arrivals
	toPark   *parkInbox
	strayed  *atomic.Bool // a request has come whose ID belongs on another partition
}

// subPartition is one of them.
type subPartition struct {
	subs   *subPartitions
	number int
	inbox  *inbox

	mu      sync.Mutex // guards planner
	planner *planner.Planner
}

// foldAtOnce is about how many changes and entries are folded while the planner is
// locked: half a millisecond's worth.
const foldAtOnce = 2000

// muchToDo is how many entries or changes are worth a goroutine for each sub.
const muchToDo = 1000

// newSubPartitions makes planners for a partition whose requests are settled below from. All planners of a
// request topic share one cache of schedules, so a tenant's expressions are held once.
func newSubPartitions(own *owned, with planning, from, pending int64) *subPartitions {
	n := 1
	if own.o.SubPartitions != nil {
		n = own.o.SubPartitions()
	}
	all := &subPartitions{owned: own, planning: with, seed: maphash.MakeSeed(), tracker: tracker.New(n, from)}
	count := new(planner.Count)
	for i := range n {
		x := planner.New(from, own.clock.millis(), own.o.Memory.Wheel.Limit()/int64(n))
		x.Share(own.o.Rules.Schedules())
		x.CountIn(count)
		all.all = append(all.all, &subPartition{subs: all, number: i, inbox: newInbox(), planner: x})
		all.planners = append(all.planners, x)
	}
	all.planners[0].Begin(pending)
	return all
}

// of is the sub that an ID belongs to.
func (a *subPartitions) of(id []byte) *subPartition {
	if len(a.all) == 1 {
		return a.all[0]
	}
	return a.all[maphash.Bytes(a.seed, id)%uint64(len(a.all))]
}

// lock takes all locks.
func (a *subPartitions) lock() {
	for _, s := range a.all {
		s.mu.Lock()
	}
}

func (a *subPartitions) unlock() {
	for _, s := range a.all {
		s.mu.Unlock()
	}
}

// each calls f for each sub, without its lock; side by side if there are many entries.
func (a *subPartitions) each(entries int, f func(*subPartition)) {
	var others sync.WaitGroup
	defer others.Wait()
	for _, s := range a.all[1:] {
		if entries >= muchToDo {
			others.Go(func() { f(s) })
		} else {
			f(s)
		}
	}
	f(a.all[0])
}

// ask calls f for each sub in turn, with its lock held.
func (a *subPartitions) ask(f func(*subPartition)) {
	for _, s := range a.all {
		s.mu.Lock()
		f(s)
		s.mu.Unlock()
	}
}

// any reports whether f holds for one of the planners.
func (a *subPartitions) any(f func(*planner.Planner) bool) (found bool) {
	a.ask(func(s *subPartition) { found = found || f(s.planner) })
	return found
}

// sum adds up f over the planners.
func (a *subPartitions) sum(f func(*planner.Planner) int64) (n int64) {
	a.ask(func(s *subPartition) { n += f(s.planner) })
	return n
}

// earliest is the least that f returns of a planner; false if it returns nothing of any.
func (a *subPartitions) earliest(f func(*planner.Planner) (int64, bool)) (due int64, ok bool) {
	a.ask(func(s *subPartition) {
		if d, has := f(s.planner); has && (!ok || d < due) {
			due, ok = d, true
		}
	})
	return due, ok
}

// next is when fire may next have something to do: see planner.Next.
func (a *subPartitions) next() (due int64, ok bool) { return a.earliest((*planner.Planner).Next) }

// crowded reports whether there is no room for more timers that were parked.
func (a *subPartitions) crowded() bool { return a.any((*planner.Planner).Crowded) }

// wanted reports whether a timer waits for a checkpoint of the store.
func (a *subPartitions) wanted() bool { return a.any((*planner.Planner).Wanted) }

// relieved reports, once for each time, that a wheel which was full has room again.
func (a *subPartitions) relieved() (any bool) {
	a.ask(func(s *subPartition) { any = s.planner.Relieved() || any })
	return any
}

// deltaBytes is about what the deltas hold.
func (a *subPartitions) deltaBytes() int64 { return a.sum((*planner.Planner).DeltaBytes) }

// pending is how many timers are pending by what is committed.
func (a *subPartitions) pending() (n int64) {
	a.lock()
	defer a.unlock()
	for _, x := range a.planners {
		n += x.Pending()
	}
	return n
}

// position is that of the last step that is committed.
func (a *subPartitions) position() int64 {
	s := a.all[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.planner.Position()
}

// size is how many IDs something is kept of, and about how many bytes the wheels hold.
func (a *subPartitions) size() (items int, bytes int64) {
	a.ask(func(s *subPartition) {
		n, held := s.planner.Size()
		items, bytes = items+n, bytes+held
	})
	return items, bytes
}

// overdue is how long ago the oldest timer in memory fell due whose firing is not planned yet, and
// the same for the oldest one whose firing is not committed.
func (a *subPartitions) overdue(now int64) (unplanned, uncommitted time.Duration) {
	since := func(f func(*planner.Planner) (int64, bool)) time.Duration {
		due, ok := a.earliest(f)
		if !ok {
			return 0
		}
		return time.Duration(max(0, now-due)) * time.Millisecond
	}
	unplanned = since((*planner.Planner).Oldest)
	return unplanned, max(unplanned, since((*planner.Planner).Uncommitted))
}

// Requests.

// hand gives requests, in the order of their log, each to the sub of its ID. There are no more below next.
func (a *subPartitions) hand(recs []*kgo.Record, next int64) {
	parts := make([][]*kgo.Record, len(a.all))
	if len(a.all) == 1 {
		parts[0] = recs
	} else {
		for _, r := range recs {
			n := a.of(r.Key).number
			parts[n] = append(parts[n], r)
		}
	}
	runs := make([]tracker.Run, len(parts))
	for i, part := range parts {
		if n := len(part); n > 0 {
			runs[i] = tracker.Run{First: part[0].Offset, Behind: part[n-1].Offset + 1}
		}
	}
	a.handed(runs, next)
	for i, part := range parts {
		for len(part) > 0 {
			n, bytes := batchOf(part)
			a.put(a.all[i], delivery{recs: part[:n], position: part[n-1].Offset + 1, bytes: bytes})
			part = part[n:]
		}
	}
}

// handOne gives a sub one request that stands for all up to a position.
func (a *subPartitions) handOne(d delivery) {
	s := a.of(d.recs[0].Key)
	runs := make([]tracker.Run, len(a.all))
	runs[s.number] = tracker.Run{First: d.recs[0].Offset, Behind: d.position}
	a.handed(runs, d.position)
	a.put(s, d)
}

func (a *subPartitions) handed(runs []tracker.Run, next int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tracker.Hand(runs)
	a.tracker.Pass(next)
}

func (a *subPartitions) put(s *subPartition, d delivery) {
	a.backlog.delivered(timer.Size{Entries: len(d.recs), Bytes: d.bytes})
	s.inbox.put(d)
}

// open lets timers fire: those of each sub as soon as it has planned what it was handed so far. Any cancel
// of theirs that could still win is among that.
func (a *subPartitions) open() {
	for _, s := range a.all {
		s.inbox.put(delivery{open: true})
	}
}

// bound is the position below which all subs have planned.
func (a *subPartitions) bound() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tracker.Bound()
}

// planned notes that a sub has planned all its requests below a position.
func (a *subPartitions) planned(s *subPartition, position int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tracker.Planned(s.number, position)
}

// Steps.

// ready is what waits to be taken: see planner.Ready.
func (a *subPartitions) ready() (firings timer.Size, requests bool) {
	a.ask(func(s *subPartition) {
		n, waits := s.planner.Ready()
		firings = firings.Plus(n)
		requests = requests || waits
	})
	return firings, requests
}

// fire plans firings of due timers. Each sub has an even part of the room, so a burst in one leaves the
// others theirs. What they do not need is for those that have more.
func (a *subPartitions) fire(now int64, room timer.Size) {
	n := len(a.all)
	part, all, behind := room.Over(n), make([]timer.Size, n), a.backlog.behind(n)
	a.each(min(part.Entries, a.last), func(s *subPartition) { all[s.number] = s.fire(now, part, behind) })
	for _, fired := range all {
		room = room.Minus(fired)
	}
	a.turn++
	for i := 0; i < n && n > 1; i++ {
		s := a.all[(a.turn+i)%n]
		if part.Minus(all[s.number]).IsUsedUp() {
			room = room.Minus(s.fire(now, room, behind))
		}
	}
}

// couldPass reports whether a step without requests would raise the position.
func (a *subPartitions) couldPass() bool {
	return a.bound() > a.position() && !a.any(func(x *planner.Planner) bool { _, requests := x.Ready(); return requests })
}

// fireAhead has the subs plan firings for the next step while one is out, an even part of the room each.
// The next seal takes those that are planned by then, and plans the rest itself (fire).
func (a *subPartitions) fireAhead(room timer.Size) {
	for _, s := range a.all {
		s.inbox.putAhead(room.Over(len(a.all)))
	}
}

// take seals a step: see planner.Take. With pass it may be empty, if that raises the position.
func (a *subPartitions) take(room timer.Size, pass bool) *planner.Step {
	bound := a.bound()
	a.lock()
	defer a.unlock()
	step := planner.Take(a.planners, room, pass, bound)
	if a.last = 0; step != nil {
		a.last = step.Len()
	}
	return step
}

// commit takes the step that is out off the sequences.
func (a *subPartitions) commit() {
	a.lock()
	defer a.unlock()
	planner.Commit(a.planners)
}

// putBack has the step that is out sealed again.
func (a *subPartitions) putBack() {
	a.lock()
	defer a.unlock()
	planner.Return(a.planners)
}

// fold takes a step into the deltas, and returns by how many more timers are pending.
func (a *subPartitions) fold(step *planner.Step) (pending int) {
	each := make([]int, len(a.all))
	a.each(step.Len(), func(s *subPartition) {
		for done := false; !done; {
			var more int
			s.mu.Lock()
			more, done = s.planner.Fold(step.Segments[s.number], foldAtOnce)
			s.mu.Unlock()
			each[s.number] += more
		}
	})
	for _, n := range each {
		pending += n
	}
	return pending
}

// freeze begins a checkpoint of the store, and returns what is to be written; thaw ends it.
func (a *subPartitions) freeze() []timer.Change {
	parts, n := make([][]timer.Change, len(a.all)), 0
	a.ask(func(s *subPartition) { n += s.planner.Changed() })
	a.each(n, func(s *subPartition) {
		s.mu.Lock()
		defer s.mu.Unlock()
		parts[s.number] = s.planner.Freeze()
	})
	if len(parts) == 1 {
		return parts[0]
	}
	return slices.Concat(parts...)
}

func (a *subPartitions) thaw() { a.ask(func(s *subPartition) { s.planner.Thaw() }) }

// Loads, parked timers, look-ups.

// loadFrom gives the wheels so many bytes in all, and returns where a scan is to begin; false if all are full.
func (a *subPartitions) loadFrom(wheels int64) (from timer.Ref, ok bool) {
	a.ask(func(s *subPartition) {
		s.planner.Resize(wheels / int64(len(a.all)))
		if at, has := s.planner.LoadFrom(); has && (!ok || at.Compare(from) < 0) {
			from, ok = at, true
		}
	})
	return from, ok
}

// split sorts timers by sub, in their order.
func (a *subPartitions) split(timers []*timer.Timer) [][]*timer.Timer {
	parts := make([][]*timer.Timer, len(a.all))
	if len(parts) == 1 {
		parts[0] = timers
		return parts
	}
	for _, t := range timers {
		n := a.of(t.ID).number
		parts[n] = append(parts[n], t)
	}
	return parts
}

// load takes in the timers that a scan has found between two places.
func (a *subPartitions) load(from, to timer.Ref, timers []*timer.Timer) {
	parts := a.split(timers)
	a.ask(func(s *subPartition) { s.planner.Load(from, to, parts[s.number]) })
}

// lower has each sub load its timers again from the place of the first one of these on.
func (a *subPartitions) lower(timers []*timer.Timer) {
	parts := a.split(timers)
	a.ask(func(s *subPartition) {
		if part := parts[s.number]; len(part) > 0 {
			s.planner.Lower(part[0].Ref())
		}
	})
}

// admit lets parked timers pass: see planner.Admit.
func (a *subPartitions) admit(timers []*timer.Timer, permit any, now int64) {
	parts := a.split(timers)
	a.ask(func(s *subPartition) {
		if part := parts[s.number]; len(part) > 0 {
			s.planner.Admit(part, permit, now)
		}
	})
}

// reckons reports whether a timer's recurrence can be worked out: see planner.Reckons.
func (a *subPartitions) reckons(t *timer.Timer) bool { return a.planners[0].Reckons(t) }

// committed is what the planner knows of the committed state of an ID.
func (a *subPartitions) committed(id []byte) planner.Committed {
	s := a.of(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.planner.Committed(id)
}
