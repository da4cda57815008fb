// Package clocks decides what a clock may be used for. All who look at another clock than the
// owner's do so here.
//
//   - The owner's clock, which is the machine's, decides when timers fire, what is too late and how
//     far ahead a timer may be due. It is what it is: nobody corrects it.
//   - The brokers' clock is known by its LogAppendTime of a record of ours, which it wrote at some
//     moment between two of ours: an estimate, with a width. It goes into timestamps that brokers
//     look at, into a metric, and into sentences for people.
//   - A producer's clock is in the timestamps of its records. It says what a delay counts from, and
//     no more.
//
// Nothing is refused for good by an estimate. So a record of a fixed-delay topic whose timestamp lies
// far ahead waits: the one clock that may judge it is its leader's when it is written
// (message.timestamp.after.max.ms). A request that is due beyond the horizon is refused by the owner's
// clock, which also decides when it would fire, with an hour's grace for the producer's.
//
// # Why an estimate is right
//
// It is that the brokers' clock shows so much now. Two things are known of a measurement: what the
// broker stamped, and how long before and after it we looked, by the monotonic clock. So when we looked
// again the broker's clock showed what it stamped, and as much more as it took, at most. What may be
// wrong with it, and what is done:
//
//   - It took long: a claim that is read hours later, a commit that was resolved. It says little, and
//     does not count ([MaxWidth]).
//   - Our clock was set meanwhile, or the machine was suspended (the wall clock jumps, the monotonic
//     one does not). It does not count.
//   - Our clock was set since, or the machine was suspended. From here these look the same, and mean
//     opposite things: what the brokers show follows the monotonic clock if we were set, and the wall
//     clock if we slept. So the offset is not known until it is measured again ([Clocks.Ahead]), and
//     the brokers' time follows the monotonic clock ([Clocks.Brokers]), which is right or too early:
//     brokers refuse a timestamp that is ahead of them by an hour, and none that is behind, unless
//     they are configured to.
//   - A broker's clock was set since. Nobody tells, and the next measurement, a minute later, finds it.
//     Meanwhile a timestamp may be refused: the step is tried again until it is taken.
package clocks

import (
	"sync"
	"time"
)

const (
	// MaxWidth is how long a measurement may have taken that counts.
	MaxWidth = 5 * time.Second
	// maxStep is how far the wall clock may get away from the monotonic one until it counts as
	// set, or the machine as suspended.
	maxStep = 100 * time.Millisecond
)

// Mark is one moment, by the wall clock and by the monotonic one.
type Mark struct {
	Wall int64 // the owner's clock, Unix milliseconds
	mono time.Time
}

// At is now, the owner's clock being wall.
func At(wall time.Time) Mark { return Mark{wall.UnixMilli(), time.Now()} }

// took is how long it was from m to the later n while this machine ran, and stepped by how much the
// wall clock has gone further, or less far.
func (m Mark) took(n Mark) (took, stepped time.Duration) {
	took = n.mono.Sub(m.mono)
	return took, time.Duration(n.Wall-m.Wall)*time.Millisecond - took
}

// Clocks is what is known of the brokers' clock. The zero value knows nothing.
type Clocks struct {
	mu    sync.Mutex // guards what follows
	known bool
	at    Mark
	shows time.Time // the brokers' clock then
}

// Measured takes that a broker stamped a record between two moments, and reports whether that
// counts.
func (c *Clocks) Measured(before, after Mark, stamped time.Time) bool {
	took, stepped := before.took(after)
	if took < 0 || took > MaxWidth || stepped.Abs() > maxStep {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.at, c.shows = true, after, stamped.Add(took/2)
	return true
}

// Ahead is by how much the owner's clock is ahead of the brokers', give or take half of MaxWidth, and
// negative while it is behind. It is not known before the first measurement, and after the clock was
// set or the machine was suspended until the next one.
func (c *Clocks) Ahead(now Mark) (ahead time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0, false
	}
	_, stepped := c.at.took(now)
	return time.UnixMilli(c.at.Wall).Sub(c.shows), stepped.Abs() <= maxStep
}

// Brokers is what the brokers' clock shows now, as far as it is known, or something earlier; the
// owner's clock if nothing is known.
func (c *Clocks) Brokers(now Mark) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return time.UnixMilli(now.Wall)
	}
	took, _ := c.at.took(now)
	return c.shows.Add(took)
}
