package planner

import (
	"math"

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
	known  known
	behind timer.Size // see Behind
	ahead  int64      // see the constant
	open   bool
	opened int64 // what was due by then was missed: nobody ran, Unix ms
	wanted bool  // see Wanted; ended by BeginFlush
	tally  tally

	sequence  sequence
	committed []*Segment // that are not applied to the end
	due       dueItems
	moved     timer.Size // what reschedule has planned, until Fire tells
	schedules *calendar.Cache
}

// New returns a planner of a partition whose requests are settled up to position. It
// keeps timers of about so many bytes that fire soon, and a quarter more at most. now is
// in Unix milliseconds, here and everywhere.
func New(position, now, bytes int64) *Planner { return newPlanner(position, now, bytes, grain) }

func newPlanner(position, now, bytes int64, grain uint) *Planner {
	return &Planner{
		known: known{table: memtable.New(now, grain), topics: make(map[string]string), horizon: Lowest, limit: bytes},
		ahead: ahead, behind: timer.Size{Entries: math.MaxInt, Bytes: math.MaxInt64}, sequence: sequence{position: position}, schedules: new(calendar.Cache), tally: tally{count: new(Count)},
	}
}

// Share makes the planner keep parsed schedules where other planners do. With many distinct expressions they take several
// megabytes.
func (p *Planner) Share(schedules *calendar.Cache) { p.schedules = schedules }

// Open lets timers fire: every request that was in the log when the partition was
// acquired is planned. What was due by now was missed.
func (p *Planner) Open(now int64) { p.open, p.opened = true, now }

// Begin tells how many timers were pending when the partition was acquired.
func (p *Planner) Begin(pending int64) {
	p.tally.settled = pending
	p.tally.count.n.Add(pending)
}

// CountIn has the planner count its timers together with others.
func (p *Planner) CountIn(c *Count) { p.tally.count = c }

// Next returns when Fire may next have something to do, false for never. It is never
// later than the earliest due time in memory.
func (p *Planner) Next() (due int64, ok bool) {
	if !p.open {
		return 0, false
	}
	return p.Oldest()
}

// Oldest returns the earliest due time in memory, whether timers may fire or not; it
// may be early by up to one slot of the table. False means that nothing is in memory.
func (p *Planner) Oldest() (due int64, ok bool) {
	return p.known.table.Next()
}

// First returns the place of the timer that fires next, if that may fire now.
func (p *Planner) First(now int64) (at timer.Ref, ok bool) {
	first, ok := p.known.table.First(now)
	return timer.Ref{Due: first.Due, Offset: first.Seq}, ok && p.open
}

// Size is how many IDs something is kept of, and about how many bytes the timers that are soon take.
func (p *Planner) Size() (ids int, bytes int64) { return p.known.table.Len(), p.known.held() }
