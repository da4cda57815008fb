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
	// skewTimeout bounds one comparison, skewWait each of its fetches.
	skewTimeout, skewWait = 5 * time.Second, 100 * time.Millisecond
)

// ClockSkew compares this machine's clock with the brokers'. Once in a while it reads back a committed record of a
// changelog, for the LogAppendTime that the leader gave it.
type ClockSkew struct {
	client *kgo.Client
	clocks *clocks.Clocks
	wanted atomic.Bool
	offers chan stamp
}

// stamp is a record that was written between two moments.
type stamp struct {
	target        partlog.Log
	offset        int64
	before, after clocks.Mark
}

// NewClockSkew returns a ClockSkew that Run serves. It measures known.
func NewClockSkew(cl *kgo.Client, known *clocks.Clocks) *ClockSkew {
	s := &ClockSkew{client: cl, clocks: known, offers: make(chan stamp, 1)}
	s.wanted.Store(true)
	return s
}

// Run reads back the records that are offered, until ctx ends.
func (c *ClockSkew) Run(ctx context.Context) error {
	t := time.NewTicker(skewEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			c.wanted.Store(true)
		case x := <-c.offers:
			c.look(ctx, x)
		}
	}
}

// Want asks for a comparison with the next committed step.
func (c *ClockSkew) Want() { c.wanted.Store(true) }

// look reads a record back and measures the clocks by its timestamp. If it cannot, the estimate stays as it is.
func (c *ClockSkew) look(ctx context.Context, x stamp) {
	ctx, cancel := context.WithTimeout(ctx, skewTimeout)
	defer cancel()
	r := partlog.NewReader(c.client, x.target, x.offset)
	r.SetMaxBytes(1)
	for r.Position() <= x.offset { // it cannot be read before the marker of its transaction
		page, err := r.Next(ctx, skewWait)
		if err != nil {
			return
		}
		if len(page.Records) > 0 && page.Records[0].Offset == x.offset {
			c.clocks.Measured(x.before, x.after, page.Records[0].Timestamp)
		}
	}
}

// Offer is called for every committed step, with one of its records and the times when the step was sealed and
// committed. It takes the record if one is wanted, and never waits. A nil ClockSkew takes nothing.
func (c *ClockSkew) Offer(target partlog.Log, offset int64, before, after clocks.Mark) {
	if c == nil || !c.wanted.CompareAndSwap(true, false) {
		return
	}
	select {
	case c.offers <- stamp{target, offset, before, after}:
	default:
	}
}

// clock is the owner's clock. (Package clocks says what other clocks are for.) It may be set back, and nothing here
// remembers how far ahead it was. If it remembered the highest time, timers due before that would fire immediately, and
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
