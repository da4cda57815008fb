// Package upcoming counts how many pending timers of a partition fall due in each second of the next hour.
//
// Nobody but a timer service knows its load ahead, and a count must cost little: a partition may have millions of
// timers pending, most of them on disk. So Counts follows the changes of committed steps, which costs an addition
// each, and reads the store once for each second of time, an hour before that second comes.
//
//	         base                      edge                        end
//	          │  everything is counted  │  changes since the last    │
//	   past   │                         │  checkpoint of the store   │   not counted
//	──────────┴─────────────────────────┴────────────────────────────┴──────────────► due
//
// What is pending is what the store holds, changed by what its last checkpoint lacks. So a scan of the store as the
// last checkpoint left it, added to the changes since then, is exact, and from then on every change keeps it exact.
// The edge moves up by such scans. After an acquisition it moves from now to an hour ahead, then with the clock.
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
	// cells is how many seconds there are counts for. Those beyond the edge let changes be known before a scan: a
	// checkpoint has to be written before what lies beyond the end comes below it, in eight minutes.
	cells = int64(Reach/time.Second) + early + slice + 480
	// setBack is how many seconds the clock may be set back without all being counted again.
	setBack = 60

	none = math.MinInt64
)

// Counts are the counts of one partition. Make them with [New].
//
// Invariants: a cell of [base, edge) has how many timers are pending that fall due in its second. A cell of
// [edge, base+cells) has by how many those are more than the last checkpoint of the store has, as far as known
// reaches. The cells of a scan that is under way have what came since the checkpoint that it reads.
type Counts struct {
	cell  [cells]int32 // by second modulo cells
	base  int64        // seconds since 1970, like all of these
	edge  int64
	known int64 // below it every change since the last checkpoint is in its cell
	clean bool  // there was no change since then
	scan  int64 // the end of the scan under way; none if there is none
}

// New returns counts of a partition of which the store has everything, at now in Unix milliseconds.
func New(now int64) *Counts {
	at := Second(now)
	return &Counts{base: at, edge: at, known: at + cells, clean: true, scan: none}
}

// Second is the second since 1970 that an instant lies in, in Unix milliseconds.
func Second(ms int64) int64 {
	if ms < 0 {
		return (ms+1)/1000 - 1
	}
	return ms / 1000
}

func (c *Counts) at(second int64) *int32 { return &c.cell[(second%cells+cells)%cells] } // a clock may show a time before 1970

// Add takes in that n more timers are pending which fall due at an instant, in Unix milliseconds.
func (c *Counts) Add(due int64, n int32) {
	c.clean = false
	if s := Second(due); s >= c.base && s < c.base+cells {
		*c.at(s) += n
	}
}

// Freeze notes that a checkpoint of the store is about to be written, of all changes so far.
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

// Scan returns the seconds to read next: [from, to). The caller reads the store as the last checkpoint has left it, while
// none is being written, and then calls Scanned or Failed. ok is false if there is nothing to read now.
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

// Scanned takes in what a scan that began at from has found, by second.
func (c *Counts) Scanned(from int64, found []int32) {
	to := from + int64(len(found))
	if c.scan != to {
		return // the clock was set back meanwhile
	}
	for i, n := range found {
		if s := from + int64(i); s >= c.base {
			*c.at(s) += n
		}
	}
	c.scan, c.edge = none, max(c.edge, to)
}

// Failed ends a scan that has found nothing. There is none until the next checkpoint: the cells have more than what came
// since the last one.
func (c *Counts) Failed() {
	if c.scan != none {
		c.scan, c.known, c.clean = none, min(c.known, c.edge), false
	}
}

// Windows are the times ahead that are shown, the shortest first.
var Windows = [...]time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, Reach}

// Due is how many timers fall due within each of the Windows.
type Due [len(Windows)]int64

// Within returns how many pending timers fall due within each of the Windows from now, in Unix milliseconds. Those that
// should have fired in this second and have not count too, those that are later do not. Of the last second it takes the
// part that lies within. What is not counted yet is missing; complete says that nothing is.
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
