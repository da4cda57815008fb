package partition

import (
	"sync/atomic"
	"time"
)

// clock is the owner's clock: Unix milliseconds that never go backwards within
// one take.
type clock struct {
	now  func() time.Time
	last atomic.Int64
}

func (c *clock) millis() int64 {
	n := c.now().UnixMilli()
	for {
		last := c.last.Load()
		if n <= last {
			return last
		}
		if c.last.CompareAndSwap(last, n) {
			return n
		}
	}
}

// until is how long it takes until due, by the owner's clock, at full grain.
func (c *clock) until(due int64) time.Duration {
	return time.UnixMilli(due).Sub(c.now())
}
