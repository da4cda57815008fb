package partition

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kit/clocks"
)

const (
	// skewEvery is how often the clocks are compared.
	skewEvery = time.Minute
	// skewTimeout bounds one comparison.
	skewTimeout = 5 * time.Second
)

// ClockSkew compares this machine's clock with the brokers'. Once in a while it reads back a committed record of a
// changelog, for the LogAppendTime that the leader gave it.
//
// Once a minute any committed step will do. After the clock was set none may come: while targets reject the clock, no
// timer fires. So then partitions seal a step even if they have nothing to seal (Asks), until one is committed.
type ClockSkew struct {
	client *kgo.Client
	clocks *clocks.Clocks
	wake   func() // makes the lanes seal
	want   atomic.Int32
	offers chan stamp
}

// The values of ClockSkew.want.
const (
	noStep  = iota
	anyStep // the next one that is committed
	ownStep // the same, and partitions seal a step for it
)

// stamp is a record that was written between two moments.
type stamp struct {
	target        partlog.Log
	offset        int64
	before, after clocks.Mark
	asked         bool // ownStep was wanted
}

// NewClockSkew returns a ClockSkew that Run serves. It measures known, and wakes the lanes with wake.
func NewClockSkew(cl *kgo.Client, known *clocks.Clocks, wake func()) *ClockSkew {
	c := &ClockSkew{client: cl, clocks: known, wake: wake, offers: make(chan stamp, 1)}
	c.want.Store(anyStep)
	return c
}

// Run reads back the records that are offered, until ctx ends.
func (c *ClockSkew) Run(ctx context.Context) error {
	t := time.NewTicker(skewEvery)
	defer t.Stop()
	owed := false // a comparison that was asked for could not be made
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			if owed {
				c.Want()
			}
			c.want.CompareAndSwap(noStep, anyStep)
		case x := <-c.offers:
			counts, err := c.look(ctx, x)
			if owed = x.asked && err != nil; x.asked && err == nil && !counts {
				c.Want() // most likely the step was sealed before the clock was set
			}
		}
	}
}

// Want asks for a comparison now.
func (c *ClockSkew) Want() {
	c.want.Store(ownStep)
	c.wake()
}

// Asks reports whether a partition is to seal a step although it has nothing to seal. A nil ClockSkew asks for none.
func (c *ClockSkew) Asks() bool { return c != nil && c.want.Load() == ownStep }

// look reads a record back and measures the clocks by its timestamp. It reports whether the measurement counts. If not,
// the estimate stays as it is.
func (c *ClockSkew) look(ctx context.Context, x stamp) (counts bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, skewTimeout)
	defer cancel()
	rec, err := partlog.NewReader(c.client, x.target, x.offset).Record(ctx) // once its transaction has its marker
	return rec != nil && c.clocks.Measured(x.before, x.after, rec.Timestamp), err
}

// Offer is called for every committed step, with one of its records and the times when the step was sealed and
// committed. It takes the record if one is wanted, instead of one that Run has not looked at yet, and never waits. A
// nil ClockSkew takes nothing.
func (c *ClockSkew) Offer(target partlog.Log, offset int64, before, after clocks.Mark) {
	if c == nil || c.want.Load() == noStep {
		return
	}
	want := c.want.Swap(noStep)
	if want == noStep {
		return
	}
	x := stamp{target, offset, before, after, want == ownStep}
	for {
		select {
		case c.offers <- x:
			return
		case former := <-c.offers:
			x.asked = x.asked || former.asked
		}
	}
}

// clock is the owner's clock. (Package clocks says what other clocks are for.) It may be set back, and nothing here
// remembers how far ahead it was. If it remembered the highest time, timers due before that would fire immediately, and
// emissions would carry a timestamp that no broker accepts.
//
// Never early means: by this clock, when the step is sealed. A firing is planned when the clock has reached its due
// time. If the clock is set back before the firing is sealed again, the seal finds that it is not due and rolls it
// back. It fires when the time has come again. A firing whose step is already in flight stays in it.
type clock struct{ now func() time.Time }

// millis returns Unix milliseconds.
func (c *clock) millis() int64 { return c.now().UnixMilli() }

// mark returns the present moment.
func (c *clock) mark() clocks.Mark { return clocks.At(c.now()) }

// until returns the time until due. It is finer than milliseconds.
func (c *clock) until(due int64) time.Duration {
	return time.UnixMilli(due).Sub(c.now())
}
