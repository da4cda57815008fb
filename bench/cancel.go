package bench

import (
	"context"
	"errors"
	"math"
	"time"
)

// CancelConfig measures timers of which most are cancelled soon after they were
// scheduled.
type CancelConfig struct {
	Common
	Timers int
	Kept   int           // one timer in Kept is not cancelled
	Least  time.Duration // each is due so long after it is sent
}

// DefaultCancel returns the usual workload, in which nine of ten are cancelled.
func DefaultCancel() CancelConfig {
	return CancelConfig{Common: DefaultCommon(), Timers: 500_000, Kept: 10, Least: 5 * time.Second}
}

func (c *CancelConfig) check() error {
	return errors.Join(c.Common.check(), wantTimers(c.Timers), between("kept", 1, math.MaxInt, c.Kept),
		between("least", 2*maxAhead, time.Hour, c.Least)) // the cancels must be read before
}

// measure measures requests next to a pass-through of 1 record in and 1 out, and
// next to as many lives without cancels.
func (c *CancelConfig) measure(ctx context.Context, r *run) error {
	rep := r.report("cancel")
	rep.RatioIs, rep.CPURatioIs = "requests a second / bare 1:1", "of the service for a request / of bare 1:1 for a record"
	return c.rounds(func() error {
		one, err := r.bare.limit(ctx, rep, oneToOne)
		if err != nil {
			return err
		}
		if err := serveWarm(ctx, r); err != nil {
			return err
		}
		all, err := c.requests(ctx, r, rep, "life", nil)
		if err != nil {
			return err
		}
		p, err := c.requests(ctx, r, rep, "cancel (requests)", func(i int) bool { return i%c.Kept != 0 })
		if err != nil {
			return err
		}
		rep.round(p.PerSecond, one.perSecond, p.CPU, one.cpu)
		rep.ratio("requests a second / those of timers that nobody cancels", p.PerSecond, all.PerSecond)
		return nil
	})
}

// requests measures how fast requests are taken in, and what each costs until
// the last timer has fired.
func (c *CancelConfig) requests(ctx context.Context, r *run, rep *Report, name string, cancel func(int) bool) (*Phase, error) {
	l := lives{Lives: Lives{Least: c.Least}, name: name, timers: c.Timers, cancel: cancel}
	if err := l.fire(ctx, r, &Report{}); err != nil {
		return nil, err
	}
	p, err := l.tell(rep, l.meter.begin.at)
	if err != nil {
		return nil, err
	}
	n := p.Exact.Scheduled + p.Exact.Cancelled
	p.perSecond(n, l.meter.begin.at, l.meter.begin.at.Add(seconds(l.taken.Seconds)))
	l.measure(p, n)
	return p, nil
}
