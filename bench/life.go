package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// LifeConfig measures schedule-and-fire: timers are scheduled as fast as the instances
// take them in, and fire while others are still scheduled.
type LifeConfig struct {
	Common
	Timers int
	// Each is due between Least and Least plus Spread after it is sent.
	Least, Spread time.Duration
}

// DefaultLife returns the usual workload of timers that live two seconds.
func DefaultLife() LifeConfig {
	return LifeConfig{Common: DefaultCommon(), Timers: 1_000_000, Least: 2 * time.Second}
}

// DefaultWait returns the usual workload of timers that wait for a while.
func DefaultWait() LifeConfig {
	return LifeConfig{Common: DefaultCommon(), Timers: 1_000_000, Least: 15 * time.Second, Spread: 45 * time.Second}
}

func (c *LifeConfig) check() error {
	return errors.Join(c.Common.check(), wantTimers(c.Timers), wantSpan("least", c.Least), wantSpan("spread", c.Spread))
}

// RunLife measures lives next to a pass-through of 1 record in and 3 out.
func RunLife(ctx context.Context, c LifeConfig) ([]*Report, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.workload(ctx, func(ctx context.Context, r *run) error { return r.lifeRounds(ctx, c) })
}

func (r *run) lifeRounds(ctx context.Context, c LifeConfig) error {
	rep := r.report("life")
	rep.RatioIs, rep.CPURatioIs = "lives a second / bare 1:3", "of the service for a life / of bare 1:3 for a record"
	for range c.Rounds {
		three, err := r.limit(ctx, rep, oneToThree)
		if err != nil {
			return err
		}
		p, err := r.live(ctx, rep, c)
		if err != nil {
			return err
		}
		rep.round(p.PerSecond, three.perSecond, p.CPU, three.cpu)
	}
	return nil
}

func (r *run) live(ctx context.Context, rep *Report, c LifeConfig) (*Phase, error) {
	if err := r.serveWarm(ctx); err != nil {
		return nil, err
	}
	l := r.newLives("life", c.Timers, c.Least, c.Spread)
	if err := l.fire(ctx, nil); err != nil {
		return nil, err
	}
	return l.whole(rep)
}

// RunWait measures timers that wait: taking them in, next to a pass-through of 1
// record in and 1 out, and all of it, next to that and a bare loop of firings at
// the rate at which they fall due.
func RunWait(ctx context.Context, c LifeConfig) ([]*Report, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.workload(ctx, func(ctx context.Context, r *run) error {
		rep := r.report("wait")
		rep.RatioIs, rep.CPURatioIs = "taken in a second / bare 1:1", "of the service for a life / of bare 1:1 and a bare firing"
		for range c.Rounds {
			if err := r.wait(ctx, rep, c); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *run) wait(ctx context.Context, rep *Report, c LifeConfig) error {
	one, err := r.limit(ctx, rep, oneToOne)
	if err != nil {
		return err
	}
	firing, err := r.firings(ctx, rep, c)
	if err != nil {
		return err
	}
	if err := r.serveWarm(ctx); err != nil {
		return err
	}
	l := r.newLives("wait", c.Timers, c.Least, c.Spread)
	taken := &Phase{Name: "taking in"}
	if err := l.fire(ctx, taken); err != nil {
		return err
	}
	rep.Phases = append(rep.Phases, taken)
	p, err := l.whole(rep)
	if err != nil {
		return err
	}
	p.PerSecond = 0 // their due times decide
	rep.round(taken.PerSecond, one.perSecond, p.CPU, one.cpu+firing.own())
	return nil
}

// firingsFor is how long bare firings are measured, after firingsLead.
const (
	firingsFor  = 10 * time.Second
	firingsLead = time.Second
)

// firings measures a bare loop that does what timers that have waited cost at least: it writes emission and
// tombstone at the rate at which they fall due, in steps that begin as often as the service's.
func (r *run) firings(ctx context.Context, rep *Report, c LifeConfig) (*Phase, error) {
	spread := max(c.Spread, time.Second)
	s := SteadyConfig{Duration: min(spread, firingsFor), Least: firingsLead}
	return r.steps(ctx, rep, s, order{Rate: float64(c.Timers) / spread.Seconds(), Interval: r.cfg.FiringInterval, Fanout: 2})
}

// lives are timers that fall due while others are still scheduled.
type lives struct {
	*run
	name          string
	timers        int
	rate          float64 // a second; 0 for as fast as the instances take them in
	least, spread time.Duration
	cancel        func(i int) bool // which ones are cancelled; nil for none

	ledger *ledger
	meter  meter
}

func (r *run) newLives(name string, timers int, least, spread time.Duration) *lives {
	return &lives{run: r, name: name, timers: timers, least: least, spread: spread, meter: meter{run: r}}
}

// serveWarm sees to it that an instance runs and has done what it does once.
func (r *run) serveWarm(ctx context.Context) error {
	if r.serving != nil {
		return nil
	}
	if err := r.serve(ctx); err != nil {
		return err
	}
	const warmTimers, warmSpread = 20_000, time.Second
	l := r.newLives("warm-up", min(warmTimers, r.PassRecords), 0, warmSpread)
	if err := l.fire(ctx, nil); err != nil {
		return err
	}
	return l.ledger.result().err(l.name)
}

// fire schedules the timers and waits until they have fired. If taken is not nil it
// is made the phase in which they were taken in.
func (l *lives) fire(ctx context.Context, taken *Phase) error {
	led, col, err := l.phase(ctx, l.name, l.timers)
	if err != nil {
		return err
	}
	l.ledger = led
	defer col.stop()
	defer l.profile(l.name)()
	random := rand.New(rand.NewPCG(1, 2))
	l.meter.start(l.serving.pid())
	err = l.schedule(ctx, led, offer{timers: l.timers, rate: l.rate, cancel: l.cancel, due: func(_ int, now time.Time) int64 {
		return now.Add(l.least).UnixMilli() + 1 + random.Int64N(1+l.spread.Milliseconds())
	}})
	if err != nil {
		return err
	}
	led.close()
	if taken != nil {
		if err := l.takenIn(ctx, taken); err != nil {
			return err
		}
	}
	col.finish(ctx, l.bar(l.name, l.timers))
	l.meter.stop()
	return nil
}

// takenIn waits until all requests are taken in, and says how that was.
func (l *lives) takenIn(ctx context.Context, p *Phase) error {
	if err := l.awaitSettled(ctx); err != nil {
		return err
	}
	l.meter.stop()
	p.perSecond(l.timers, l.meter.begin.at, l.meter.end.at)
	l.meter.measure(p, l.timers)
	_, p.PeakRSS = memory(l.serving.pid())
	p.Exact = Exactness{Scheduled: l.timers}
	if l.ledger.received() > 0 {
		p.Note = "some fired before all were taken in"
	}
	return nil
}

// whole is the phase of all of it.
func (l *lives) whole(rep *Report) (*Phase, error) {
	p := &Phase{Name: l.name, Rate: l.rate}
	rep.Phases = append(rep.Phases, p)
	p.perSecond(l.timers, l.meter.begin.at, l.ledger.last)
	l.meter.measure(p, l.timers)
	_, p.PeakRSS = memory(l.serving.pid())
	p.late(l.ledger, window{})
	if err := p.verify(l.ledger); err != nil {
		return nil, fmt.Errorf("%s: %w", rep.Workload, err)
	}
	return p, nil
}
