package planner

import (
	"math"

	"github.com/waterclock/waterclock/internal/partition/memtable"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// Lowest is below every pending timer, Highest above.
var (
	Lowest  = timer.Ref{Due: math.MinInt64, Offset: math.MinInt64}
	Highest = timer.Ref{Due: math.MaxInt64, Offset: math.MaxInt64}
)

// Memory is about how many bytes an idle planner takes, with its goroutine. No account includes that.
const Memory = 24 << 10

// Planner has the known and planned state of one partition, or of a part of it. Make one with [New].
type Planner struct {
	known  known
	ahead  int64 // see the constant
	began  int64 // Unix ms: when the partition was acquired
	open   bool
	opened int64 // Unix ms: occurrences due by then were missed, because no instance had the partition
	tally  tally

	sequence    sequence
	due         dueItems
	rescheduled timer.Size // planned by reschedule since the last Fire
	recurrences recurrences
}

// Stats are the sizes and the state of a planner.
type Stats struct {
	Position int64     // of the last committed step: every request below it is settled
	Horizon  timer.Ref // where the next scan of the store begins, unless memory is full
	Full     bool      // memory is full, until Relieved
	// Oldest is the earliest due time in memory, whether timers may fire or not; it may be early by up to one slot of
	// the table. Uncommitted is the earliest due time of a firing that is planned and not committed, including sealed
	// ones; a firing that was rolled back counts until its step is committed. Both are Never if there is none.
	Oldest, Uncommitted int64

	IDs        int   // that are in memory
	Bytes      int64 // about the memory of soon timers
	DirtyBytes int64 // about the memory of changes that are neither being flushed nor soon
	Changed    int   // about how many IDs the store may lack
	Flushes    int64 // flushes that have ended
	Wanted     bool  // a timer waits for a flush so that it can be parked
	// Crowded: missed timers take so much memory that no more are to be admitted. It ends when they have fired, or were
	// skipped or parked.
	Crowded bool
}

// New returns a planner of a partition whose requests are settled up to position. Its soon timers may take about that
// many bytes, and a quarter more at most. now is in Unix milliseconds, here and everywhere.
func New(position, now, bytes int64) *Planner { return newPlanner(position, now, bytes, grain) }

func newPlanner(position, now, bytes int64, grain uint) *Planner {
	return &Planner{
		known: known{table: memtable.New(now, grain), topics: make(topicNames), horizon: Lowest, limit: bytes},
		ahead: ahead, began: now, sequence: sequence{position: position},
		recurrences: recurrences{new(calendar.Cache)}, tally: tally{count: new(Count)},
	}
}

// Share makes the planner count its timers together with others, and share their cache of parsed schedules. With many
// distinct expressions these take several megabytes.
func (p *Planner) Share(c *Count, schedules *calendar.Cache) {
	p.tally.count, p.recurrences.schedules = c, schedules
}

// Open lets timers fire. The caller has planned every request that was in the log when the partition was acquired.
// Occurrences that were due by now were missed.
func (p *Planner) Open(now int64) { p.open, p.opened = true, now }

// Next returns when Fire may have something to do, false for never. The time is never later than the earliest due time
// in memory.
func (p *Planner) Next() (due int64, ok bool) {
	if !p.open {
		return 0, false
	}
	return p.known.table.Next()
}

// First returns the place of the timer that fires next, and whether it may fire now.
func (p *Planner) First(now int64) (at timer.Ref, ok bool) {
	at, ok = p.known.table.First(now)
	return at, ok && p.open
}

// Stats returns the present figures.
func (p *Planner) Stats() Stats {
	d, stats := &p.known.dirty, p.known.table.Stats()
	changed := len(d.items) + len(d.flushing) + stats.Changed + stats.Tombstones
	oldest, ok := p.known.table.Next()
	if !ok {
		oldest = Never
	}
	return Stats{
		Position: p.sequence.position, Horizon: p.known.horizon, Full: p.known.full, Oldest: oldest,
		Uncommitted: p.sequence.oldest(),
		IDs:         stats.IDs, Bytes: p.known.held(), DirtyBytes: d.bytes + stats.DirtyBytes, Changed: changed,
		Flushes: d.flushes, Wanted: d.wanted, Crowded: p.known.missed > p.known.limit/2,
	}
}
