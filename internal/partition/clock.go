package partition

import (
	"time"

	"github.com/waterclock/waterclock/internal/clocks"
)

// clock is the owner's clock (package clocks says what others are for), as it stands. It may be set back, and nothing here
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

// mark returns the present moment.
func (c *clock) mark() clocks.Mark { return clocks.At(c.now()) }

// until is how long it takes until due, at full grain.
func (c *clock) until(due int64) time.Duration {
	return time.UnixMilli(due).Sub(c.now())
}
