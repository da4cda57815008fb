package planner

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/waterclock/waterclock/internal/calendar"
	"github.com/waterclock/waterclock/internal/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// Lowest is below every pending timer, Highest above.
var (
	Lowest  = timer.Ref{Due: math.MinInt64, Offset: math.MinInt64}
	Highest = timer.Ref{Due: math.MaxInt64, Offset: math.MaxInt64}
)

// Memory is about what a planner takes that has nothing to do, with its goroutine, in bytes: no account has that.
const Memory = 24 << 10

// Planner is what is known and planned of one partition, or of a part of it. Make one with [New].
type Planner struct {
	// table is what is known, by ID. What is not in it is in the store as it is, or nowhere.
	table   *memtable.Table
	items   []*Item // by the number of their objects; those of free numbers are empty, or nil
	scratch []byte
	topics  map[string]string // see topic
	behind  *behindRoom       // see Behind
	// horizon is a place in the order of firing. Invariant: every pending timer below it is
	// soon, or waits, or is parked; a record that is later lies at or above it, and the store
	// lacks that. Loads raise the horizon. Evictions lower it, and then loads begin there again.
	// What was admitted, or has waited, may be soon above it: a load passes over that.
	//
	// No stale row gets into the wheel, and no row is missed, because of two things. Load does
	// not take an ID of which something is known. And between a scan and the Load of what it
	// found nothing is forgotten that the store has learned meanwhile: see the caller's duties.
	horizon timer.Ref
	limit   int64 // of bytes, see New
	bytes   int64 // held by the items that are soon
	missed  int64 // bytes, of the items whose missed is set: see Crowded
	latest  int64 // no item was missed by later, see notAhead
	ahead   int64 // see the constant
	full    bool  // load no more; ended by Relieved
	open    bool
	opened  int64 // what was due by then was missed: nobody ran, Unix ms
	wanted  bool  // see Wanted; ended by Freeze
	count   *Count
	settled int64 // timers that are pending by what is committed
	leaving int64 // entries that leave, see note

	sequence  sequence
	delta     delta
	commits   int64      // steps
	committed []*Segment // that are not folded to the end
	notes     *notes     // of steps, for who asks; nil: nobody does
	due       dueItems
	moved     Fired // what reschedule has planned, until Fire tells
	schedules *calendar.Cache
}

// New returns a planner of a partition whose requests are settled up to position. It
// keeps timers of about so many bytes in its wheel, and a quarter more at most. now is
// in Unix milliseconds, here and everywhere.
func New(position, now, bytes int64) *Planner { return newPlanner(position, now, bytes, grain) }

func newPlanner(position, now, bytes int64, grain uint) *Planner {
	return &Planner{
		table: memtable.New(now, grain), topics: make(map[string]string), horizon: Lowest, limit: bytes, ahead: ahead,
		sequence: sequence{position: position}, schedules: new(calendar.Cache), count: new(Count),
	}
}

// Share has the planner remember schedules where others do: it is some megabytes of them
// where each of many timers has an expression of its own.
func (p *Planner) Share(schedules *calendar.Cache) { p.schedules = schedules }

// Open lets timers fire: every request that was in the log when the partition was
// acquired is planned. What was due by now was missed.
func (p *Planner) Open(now int64) { p.open, p.opened = true, now }

// Begin tells how many timers were pending when the partition was acquired.
func (p *Planner) Begin(pending int64) {
	p.settled = pending
	p.count.n.Add(pending)
}

// CountIn has the planner count its timers together with others.
func (p *Planner) CountIn(c *Count) { p.count = c }

// Count is how many timers are pending once all that is planned is committed, and how many
// entries leave, see note; of all planners that share it. Those may plan side by side, so mu is
// held from when one asks whether there may be one more until that is counted. What else changes
// the number leaves it as it was, or makes it less.
type Count struct {
	mu sync.Mutex
	n  atomic.Int64
}

// Next returns when Fire may next have something to do, false for never. It is never
// later than the earliest due time in memory.
func (p *Planner) Next() (due int64, ok bool) {
	if !p.open {
		return 0, false
	}
	return p.Oldest()
}

// Oldest returns the earliest due time in memory, whether timers may fire or not; it
// may say too early by what a slot of the wheel spans. false: there is none.
func (p *Planner) Oldest() (due int64, ok bool) {
	return p.table.Next()
}

// First returns the place of the timer that fires next, if that may fire now.
func (p *Planner) First(now int64) (at timer.Ref, ok bool) {
	first, ok := p.table.First(now)
	return timer.Ref{Due: first.Due, Offset: first.Seq}, ok && p.open
}

// Size is how many IDs something is kept of, and about how many bytes the timers that are soon take.
func (p *Planner) Size() (ids int, bytes int64) { return p.table.Len(), p.held() }

func (p *Planner) held() int64 { return p.bytes + p.table.SoonBytes() }

// set makes t the planned state of an item.
func (p *Planner) set(it *Item, t *timer.Timer) {
	p.become(it, t)
	switch {
	case t == nil:
	case it.ref.Compare(p.horizon) < 0:
		p.insert(it)
	default:
		p.postpone(it)
	}
}

// become makes t the planned state of an item, in no wheel. What was missed of the same timer
// stays missed: a pause, a resume or a trigger does not undo that.
func (p *Planner) become(it *Item, t *timer.Timer) {
	missed, same := it.missed, it.timer != nil && t != nil && it.timer.Offset == t.Offset
	p.drop(it)
	if it.ref, it.timer = t.Ref(), t; same {
		p.miss(it, missed)
	}
}

// miss notes that what is due by an instant was missed, 0 for none, if that makes a difference to the item's
// timer: with catch-up none that occurrence does not fire. An item that is noted is in memory
// until that is decided, for the store does not know it.
func (p *Planner) miss(it *Item, by int64) {
	p.unmiss(it)
	t := it.timer
	if by != 0 && t.Recurrence != nil && t.Recurrence.CatchUp == timer.CatchUpNone && t.Due <= by && !t.IsPaused() { // else a resume decides
		it.missed = by
		p.missed += Held(t)
		p.latest = max(p.latest, by)
	}
}

// notAhead ends that something was missed by a clock that was ahead, and is set back: what comes now
// was not missed, and is neither let go nor kept for that.
func (p *Planner) notAhead(now int64) {
	p.opened = min(p.opened, now)
	if p.latest <= now+p.ahead {
		return
	}
	if p.latest = 0; p.missed == 0 {
		return
	}
	var all []*Item // before one of them is forgotten
	for _, it := range p.items {
		if it != nil && it.missed != 0 {
			all = append(all, it)
		}
	}
	for _, it := range all {
		if p.miss(it, min(it.missed, now)); it.missed == 0 {
			p.release(it) // it may have been kept for that
		}
	}
}

func (p *Planner) unmiss(it *Item) {
	if it.missed != 0 {
		it.missed = 0
		p.missed -= Held(it.timer)
	}
}

// drop takes an item's pending timer out of memory.
func (p *Planner) drop(it *Item) {
	p.table.Remove(it.number)
	if it.near {
		p.left(it)
	}
	p.unmiss(it)
	it.timer, it.permit, it.waiting, it.parking = nil, nil, false, false
}

// insert has an item that is neither soon nor later be soon.
func (p *Planner) insert(it *Item) {
	p.table.Put(it.number, memtable.Soon, memtable.Key{Due: it.timer.FiresAt(), Seq: it.ref.Offset})
	p.delta.bytes -= it.deltaBytes()
	it.near = true
	p.delta.bytes += it.deltaBytes()
	p.bytes += Held(it.timer)
}

// left notes that an item was taken out of what is soon.
func (p *Planner) left(it *Item) {
	p.delta.bytes -= it.deltaBytes()
	it.near = false
	p.delta.bytes += it.deltaBytes()
	p.bytes -= Held(it.timer)
}

// postpone has an item that is neither soon nor later be later.
func (p *Planner) postpone(it *Item) { p.table.Put(it.number, memtable.Later, key(it.ref)) }

// release looks at an item that the planner may need no longer: what waited for its entries is
// soon again, and looked at when due; what the store knows as well
// is forgotten, unless it is to fire soon; what only waits to be due is encoded.
func (p *Planner) release(it *Item) {
	if it.waiting && it.entries == 0 {
		it.waiting = false
		p.insert(it)
	}
	if !it.kept() && !it.near && !it.parking && it.missed == 0 {
		p.drop(it)
		p.forget(it)
		return
	}
	p.encode(it)
}
