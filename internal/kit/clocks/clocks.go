// Package clocks decides which clock may be used for which purpose. Code that needs the brokers' time uses it. The
// age of a view follows from the timestamps of records instead: see statestore.Handle.Live.
//
//	before := clocks.At(wall())
//	... // a broker stamps a record
//	c.Measured(before, clocks.At(wall()), stamped)
//	now := c.Brokers(clocks.At(wall()))
//
// There are three clocks:
//
//   - The owner's clock is that of the machine. It decides when timers fire, when a request is too late and how far
//     ahead a timer may be due. Nothing corrects it.
//   - The brokers' clock is estimated from the LogAppendTime of our own records: a broker stamped the record at some
//     moment between two readings of our clock. The estimate is used for timestamps that brokers check, for a metric,
//     and in messages for people.
//   - A producer's clock is in the timestamps of its records. Delays count from it; it decides nothing else.
//
// An estimate never causes a permanent rejection. So a record of a fixed-delay topic whose timestamp is far ahead
// waits: only the leader decides, by its own clock and when the record is written (message.timestamp.after.max.ms). A
// request that is due beyond the horizon is rejected by the owner's clock, which would also decide when it fires,
// with an hour's grace for the producer's clock.
//
// # Why the estimate can be trusted
//
// A measurement yields two things: the broker's timestamp, and the time that passed between our readings before and
// after, by the monotonic clock. So at the second reading the broker's clock showed the timestamp plus at most that
// time. These things can go wrong:
//
//   - The measurement took long (a claim that is read hours later, a commit that was resolved). It proves little and
//     does not count ([MaxWidth]).
//   - During the measurement our clock was set, or the machine was suspended (the wall clock jumps, the monotonic one
//     does not). It does not count.
//   - After the measurement our clock was set, or the machine was suspended. This process cannot tell the two apart,
//     and they mean opposite things: the brokers' time follows the monotonic clock if our clock was set, and the wall
//     clock if the machine slept. So the offset is unknown until the next measurement ([Clocks.Ahead]), and the
//     brokers' time follows the monotonic clock ([Clocks.Brokers]), which is right or too early: by default brokers
//     reject a timestamp that is more than an hour ahead of them, and never one that is behind.
//   - After the measurement a broker's clock was set. We only notice at the next measurement, a minute later. Until
//     then a timestamp may be rejected: the step is retried until it is accepted.
//   - The machine stopped with both its clocks (a virtual machine that was paused), or was suspended and its clock
//     set back by exactly that time. We do not notice this either: until the next measurement [Clocks.Ahead] returns
//     the old offset, and [Clocks.Brokers] is too early.
package clocks

import (
	"sync"
	"time"
)

const (
	// MaxWidth is how long a measurement may take; longer ones do not count.
	MaxWidth = 5 * time.Second
	// maxStep is how far the wall clock may diverge from the monotonic one before it counts as
	// set, or the machine as suspended.
	maxStep = 100 * time.Millisecond
)

// Mark is one moment, by the wall clock and by the monotonic one.
type Mark struct {
	Wall int64 // the owner's clock, Unix milliseconds
	mono time.Time
}

// At returns the present moment, at which the owner's clock shows wall.
func At(wall time.Time) Mark { return Mark{wall.UnixMilli(), time.Now()} }

// took returns how long this machine ran between m and the later n, and by how much more (less if negative) the wall
// clock advanced.
func (m Mark) took(n Mark) (took, stepped time.Duration) {
	took = n.mono.Sub(m.mono)
	return took, time.Duration(n.Wall-m.Wall)*time.Millisecond - took
}

// Passed returns the most time that may have passed between two moments, by either of this machine's clocks: the
// monotonic one stands still while the machine is suspended, and the wall clock can be set. Limits of age, which a use
// must not exceed, count with it.
func Passed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// Clocks holds our estimate of the brokers' clock. The zero value knows nothing.
type Clocks struct {
	mu    sync.Mutex // guards the fields below
	known bool
	at    Mark
	shows time.Time // the brokers' clock then
}

// Measured takes a measurement: a broker stamped a record between two moments. It reports whether the
// measurement counts.
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

// Ahead returns by how much the owner's clock is ahead of the brokers', plus or minus half of MaxWidth;
// negative while it is behind. It is unknown before the first measurement, and from when the clock was
// set or the machine was suspended until the next one. The package comment says when it may be wrong.
func (c *Clocks) Ahead(now Mark) (ahead time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0, false
	}
	_, stepped := c.at.took(now)
	return time.UnixMilli(c.at.Wall).Sub(c.shows), stepped.Abs() <= maxStep
}

// Brokers returns the time that the brokers' clock shows now, or an earlier one: see the package comment. Before the
// first measurement it returns the owner's clock.
func (c *Clocks) Brokers(now Mark) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return time.UnixMilli(now.Wall)
	}
	took, _ := c.at.took(now)
	return c.shows.Add(took)
}
