// Package upcoming counts how many pending timers of a partition fall due in each second of the next hour.
//
// A timer service knows its future load, and a count of it must cost little: a partition may have millions of timers
// pending, most of them on disk. So Counts follows the changes of committed steps, which costs one addition each, and
// reads the store once for each second of time, an hour before that second comes.
//
//	         base                      edge                        end
//	          │  everything is counted  │  changes since the last    │
//	   past   │                         │  checkpoint of the store   │   not counted
//	──────────┴─────────────────────────┴────────────────────────────┴──────────────► due
//
// The pending timers are those in the store, plus the changes since its last checkpoint. So a scan of the store as the
// last checkpoint left it, added to those changes, is exact, and from then on every change keeps it exact. Such scans
// move the edge up: after an acquisition from now to an hour ahead, and then with the clock.
//
// The package is pure: it has no clock, no goroutine and no I/O. The caller holds a lock over all calls.
package upcoming

import (
	"math"
	"time"
)

const (
	// Reach is how far ahead timers are counted.
	Reach = time.Hour
	// slice is how many seconds one scan reads.
	slice = 60
	// early is how many seconds more than Reach are counted, so that the longest window is always complete.
	early = 60
	// cells is the number of seconds with a count. Cells beyond the edge collect changes before a scan. A checkpoint
	// must be written within eight minutes, before seconds beyond the end come below it.
	cells = int64(Reach/time.Second) + early + slice + 480
	// setBack is how many seconds the clock may be set back before everything is counted again.
	setBack = 60

	none = math.MinInt64
)

// Counts are the counts of one partition. Make them with [New].
//
// Invariants: a cell in [base, edge) has the number of pending timers that fall due in its second. A cell in [edge,
// base+cells) has the change of that number since the last checkpoint of the store; it is complete below known. The
// cells of a scan that is under way have the changes since the checkpoint that the scan reads.
type Counts struct {
	cell  [cells]int32 // by second modulo cells
	base  int64        // seconds since 1970, like all of these
	edge  int64
	known int64 // below it every change since the last checkpoint is in its cell
	clean bool  // there was no change since the last checkpoint
	scan  int64 // the end of the scan under way; none if there is none
}

// New returns counts of a partition whose store is complete, at now in Unix milliseconds.
func New(now int64) *Counts {
	at := Second(now)
	return &Counts{base: at, edge: at, known: at + cells, clean: true, scan: none}
}

// Second returns the second since 1970 of an instant in Unix milliseconds.
func Second(ms int64) int64 {
	if ms < 0 {
		return (ms+1)/1000 - 1
	}
	return ms / 1000
}

// a clock may show a time before 1970
func (c *Counts) at(second int64) *int32 { return &c.cell[(second%cells+cells)%cells] }

// Add counts n more pending timers that fall due at an instant, in Unix milliseconds.
func (c *Counts) Add(due int64, n int32) {
	c.clean = false
	if s := Second(due); s >= c.base && s < c.base+cells {
		*c.at(s) += n
	}
}

// Freeze notes that a checkpoint of the store, with all changes so far, is about to be written.
func (c *Counts) Freeze() {
	for s := max(c.edge, c.scan); s < c.base+cells; s++ {
		*c.at(s) = 0
	}
	c.known, c.clean = c.base+cells, true
}

// Advance follows the clock, in Unix milliseconds.
func (c *Counts) Advance(now int64) {
	to := Second(now)
	if to < c.base-setBack {
		clear(c.cell[:])
		c.base, c.edge, c.known, c.scan = to, to, to, none
		if c.clean {
			c.known = to + cells
		}
		return
	}
	for s := c.base; s < min(to, c.base+cells); s++ {
		*c.at(s) = 0
	}
	c.base = max(c.base, to)
	c.edge = max(c.edge, c.base)
	if c.clean {
		c.known = c.base + cells
	}
}

// Scan returns the seconds to read next: [from, to). The caller reads the store as the last checkpoint left it, while
// no checkpoint is being written, and then calls Scanned or Failed. ok is false if there is nothing to read now.
func (c *Counts) Scan() (from, to int64, ok bool) {
	goal := c.base + int64(Reach/time.Second) + early
	if c.scan != none || c.edge >= goal {
		return 0, 0, false
	}
	to = min(c.edge+slice, c.known)
	if to <= c.edge {
		return 0, 0, false
	}
	c.scan = to
	return c.edge, to, true
}

// Scanned adds the result of a scan that began at from, by second.
func (c *Counts) Scanned(from int64, found []int32) {
	to := from + int64(len(found))
	if c.scan != to {
		return // the clock was set back in the meantime
	}
	for i, n := range found {
		if s := from + int64(i); s >= c.base {
			*c.at(s) += n
		}
	}
	c.scan, c.edge = none, max(c.edge, to)
}

// Failed ends a scan without a result. The cells of the scan have the changes since the checkpoint that it read. If
// there were none since the last checkpoint, the cells can be read again immediately, and they have to be: there may be
// no further checkpoint. Otherwise they wait for the next one, which is certain to come, because there is something to
// write.
func (c *Counts) Failed() {
	for s := c.edge; c.clean && s < c.scan; s++ {
		*c.at(s) = 0
	}
	if c.scan != none && !c.clean {
		c.known = min(c.known, c.edge)
	}
	c.scan = none
}

// Windows are the periods ahead that are reported, the shortest first.
var Windows = [...]time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, Reach}

// Due is the number of timers that fall due within each of the Windows.
type Due [len(Windows)]int64

// Within returns how many pending timers fall due within each of the Windows from now, in Unix milliseconds. Timers
// that were due earlier in this second and have not fired are counted; timers that are later than that are not. Of the
// last second it counts the share that lies within the window. Seconds that are not counted yet are missing; complete
// says that there are none.
func (c *Counts) Within(now int64) (due Due, complete bool) {
	s, sum := max(c.base, Second(now)), int64(0)
	i := (s%cells + cells) % cells
	last := int64(0)
	for w, d := range Windows {
		until := now + d.Milliseconds()
		for last = Second(until); s < min(last, c.edge); s++ {
			sum += int64(c.cell[i])
			if i++; i == cells {
				i = 0
			}
		}
		if due[w] = sum; last >= s && last < c.edge {
			due[w] += int64(*c.at(last)) * (until - last*1000) / 1000
		}
	}
	return due, c.edge > last
}
