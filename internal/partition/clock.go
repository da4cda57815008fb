package partition

import (
	"time"

	"github.com/waterclock/waterclock/internal/kit/clocks"
)

// clock is the owner's clock. (Package clocks says what other clocks are for.) It may be set back, and nothing here
// remembers how far ahead it was. If it remembered the highest time, timers due before that would fire at once, and
// emissions would carry a timestamp that no broker accepts.
//
// Never early means: by this clock, when the step is sealed. A firing is planned when the clock has reached its due
// time. If the clock is set back before the firing is sealed again, the seal finds that it is not due and rolls it
// back. It fires when the time has come again. A firing whose step is already out stays in it.
type clock struct{ now func() time.Time }

// millis returns Unix milliseconds.
func (c *clock) millis() int64 { return c.now().UnixMilli() }

// mark returns the present moment.
func (c *clock) mark() clocks.Mark { return clocks.At(c.now()) }

// until returns the time until due. It is finer than milliseconds.
func (c *clock) until(due int64) time.Duration {
	return time.UnixMilli(due).Sub(c.now())
}
