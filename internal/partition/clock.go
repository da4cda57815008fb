package partition

import (
	"sync/atomic"
	"time"
)

// clock is the owner's clock, as it stands. It may be set back, and nothing here
// remembers how far ahead it has been: with a high mark everything scheduled
// below it would fire at once, and emissions would carry a time that no broker
// believes.
//
// Never early means: by this clock, when the step is sealed. A firing is planned when
// the clock has reached its due time; if it is set back before the firing is sealed
// again, the seal finds it not due and has it rolled back, and it fires when the time
// has come again. What is in a step is on its way.
type clock struct{ now func() time.Time }

// millis is Unix milliseconds.
func (c *clock) millis() int64 { return c.now().UnixMilli() }

// until is how long it takes until due, at full grain.
func (c *clock) until(due int64) time.Duration {
	return time.UnixMilli(due).Sub(c.now())
}

// Clocks is by how much this machine's clock was ahead of the brokers' when that
// was measured last.
type Clocks struct{ ahead atomic.Int64 }

func (c *Clocks) set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

// Ahead is negative while the clock is behind; 0 while nothing is known.
func (c *Clocks) Ahead() time.Duration { return time.Duration(c.ahead.Load()) }

// Jumped tells that the clock was set since it was measured.
func (c *Clocks) Jumped(by time.Duration) { c.ahead.Add(int64(by)) }
