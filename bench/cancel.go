package bench

import (
	"context"
	"errors"
	"time"
)

// CancelConfig measures timers of which most are cancelled soon after they were
// scheduled.
type CancelConfig struct {
	Common
	Timers int
	Kept   int           // one in so many is not cancelled
	Least  time.Duration // each is due so long after it is sent
}

// DefaultCancel returns the usual workload, in which nine of ten are cancelled.
func DefaultCancel() CancelConfig {
	return CancelConfig{Common: DefaultCommon(), Timers: 500_000, Kept: 10, Least: 5 * time.Second}
}

// RunCancel measures requests next to a pass-through of 1 record in and 1 out, and
// next to as many lives of timers that nobody cancels.
func RunCancel(ctx context.Context, c CancelConfig) ([]*Report, error) {
	err := errors.Join(c.check(), wantTimers(c.Timers), wantSpan("least", c.Least),
		want(c.Least >= 2*maxAhead, "least", c.Least, "at least 2s: the cancels must be read before"),
		want(c.Kept >= 1, "kept", c.Kept, "1 or more"))
	if err != nil {
		return nil, err
	}
	return c.workload(ctx, func(ctx context.Context, r *run) error {
		rep := r.report("cancel")
		rep.RatioIs, rep.CPURatioIs = "requests a second / bare 1:1", "of the service for a request / of bare 1:1 for a record"
		for range c.Rounds {
			if err := r.cancels(ctx, rep, c); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *run) cancels(ctx context.Context, rep *Report, c CancelConfig) error {
	one, err := r.limit(ctx, rep, oneToOne)
	if err != nil {
		return err
	}
	if err := r.serveWarm(ctx); err != nil {
		return err
	}
	lives := r.newLives("life", c.Timers, c.Least, 0)
	all, err := r.takenAndFired(ctx, rep, lives)
	if err != nil {
		return err
	}
	lives = r.newLives("cancel (requests)", c.Timers, c.Least, 0)
	lives.cancel = func(i int) bool { return i%c.Kept != 0 }
	p, err := r.takenAndFired(ctx, rep, lives)
	if err != nil {
		return err
	}
	rep.round(p.PerSecond, one.perSecond, p.CPU, one.cpu)
	rep.ratio("requests a second / those of timers that nobody cancels", p.PerSecond, all.PerSecond)
	return nil
}

// takenAndFired measures how fast requests are taken in, and what each costs until
// the last timer has fired.
func (r *run) takenAndFired(ctx context.Context, rep *Report, l *lives) (*Phase, error) {
	taken := &Phase{Name: l.name}
	if err := l.fire(ctx, taken); err != nil {
		return nil, err
	}
	p, err := l.whole(rep)
	if err != nil {
		return nil, err
	}
	requests := p.Exact.Scheduled + p.Exact.Cancelled
	p.perSecond(requests, l.meter.begin.at, l.meter.begin.at.Add(time.Duration(taken.Seconds*float64(time.Second))))
	l.meter.measure(p, requests)
	return p, nil
}
