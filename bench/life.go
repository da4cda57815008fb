package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// LifeConfig measures schedule-and-fire: timers are scheduled as fast as the instances accept them, and fire while
// others are still being scheduled.
type LifeConfig struct {
	Common
	Lives
	Timers int
}

// DefaultLife returns the usual workload of timers that live two seconds.
func DefaultLife() LifeConfig {
	return LifeConfig{Common: DefaultCommon(), Timers: 1_000_000, Lives: Lives{Least: 2 * time.Second}}
}

func (lc *LifeConfig) check() error {
	return errors.Join(lc.Common.check(), wantTimers(lc.Timers), lc.Lives.check())
}

// measure measures lives next to a pass-through of 1 record in and 3 out.
func (lc *LifeConfig) measure(ctx context.Context, r *run) error {
	rep := r.report("life", "lives a second / bare 1:3", "of the service for a life / of bare 1:3 for a record")
	return lc.rounds(func() error {
		three, err := r.limitThenServe(ctx, rep, oneToThree)
		if err != nil {
			return err
		}
		l := lives{Lives: lc.Lives, name: "life", timers: lc.Timers}
		if err := l.fire(ctx, r, nil); err != nil {
			return err
		}
		p, err := l.tell(rep, l.meter.begin.at)
		if err != nil {
			return err
		}
		rep.round(p.PerSecond, three.perSecond, p.CPU, three.cpu)
		return nil
	})
}

// WaitConfig measures timers that wait.
type WaitConfig struct{ LifeConfig }

// DefaultWait returns the usual workload of timers that wait for a while.
func DefaultWait() WaitConfig {
	return WaitConfig{LifeConfig{Common: DefaultCommon(), Timers: 1_000_000,
		Lives: Lives{15 * time.Second, 45 * time.Second}}}
}

// firingsFor is the duration of the measurement of bare firings, after firingsLead.
const (
	firingsFor  = 10 * time.Second
	firingsLead = time.Second
)

// measure compares accepting timers with a 1:1 pass-through. It compares the cost of whole lives with that pass-through
// plus a bare loop, which does the least that firing timers takes: it writes emission and tombstone at the rate at
// which timers fall due, in steps that are as frequent as the service's.
func (w *WaitConfig) measure(ctx context.Context, r *run) error {
	rep := r.report("wait", "taken in a second / bare 1:1", "of the service for a life / of bare 1:1 and a bare firing")
	return w.rounds(func() error {
		one, err := r.bare.limit(ctx, rep, oneToOne)
		if err != nil {
			return err
		}
		spread := max(w.Spread, time.Second)
		firing, err := r.bare.steps(ctx, rep, Lives{Least: firingsLead}, min(spread, firingsFor),
			order{Rate: float64(w.Timers) / spread.Seconds(), Interval: r.cfg.FiringInterval, Fanout: 2})
		if err != nil {
			return err
		}
		if err := serveWarm(ctx, r); err != nil {
			return err
		}
		l := lives{Lives: w.Lives, name: "wait", timers: w.Timers}
		if err := l.fire(ctx, r, rep); err != nil {
			return err
		}
		p, err := l.tell(rep, l.meter.begin.at)
		if err != nil {
			return err
		}
		p.PerSecond = 0 // their due times decide
		rep.round(l.taken.PerSecond, one.perSecond, p.CPU, one.cpu+firing.CPU.own())
		return nil
	})
}

// lives are timers that fall due while others are still scheduled.
type lives struct {
	Lives
	name   string
	timers int
	rate   float64 // a second; 0 for as fast as the instances accept them

	*phase        // once they have fired
	taken  *Phase // the phase of accepting them, if requested
}

// limitThenServe measures a pass-through and then calls serveWarm.
func (r *run) limitThenServe(ctx context.Context, rep *Report, fanout int) (*limit, error) {
	l, err := r.bare.limit(ctx, rep, fanout)
	if err != nil {
		return l, err
	}
	return l, serveWarm(ctx, r)
}

// serveWarm starts the instance unless it runs, and lets it fire some timers.
func serveWarm(ctx context.Context, r *run) error {
	if r.serving != nil {
		return nil
	}
	if err := r.serve(ctx); err != nil {
		return err
	}
	const warmTimers, warmSpread = 20_000, time.Second
	l := lives{Lives: Lives{Spread: warmSpread}, name: "warm-up", timers: min(warmTimers, r.PassRecords)}
	if err := l.fire(ctx, r, nil); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil { // missing timers may come later
		return fmt.Errorf("%s: %d of %d timers had fired: %w", l.name, l.Received(), l.timers, err)
	}
	return l.Counts().Err(l.name)
}

// fire schedules the timers and waits until they have fired. With a report, it adds a phase for accepting them.
func (l *lives) fire(ctx context.Context, r *run, rep *Report) (err error) {
	if l.phase, err = r.begin(ctx, l.name, l.timers); err != nil {
		return err
	}
	defer l.stopReading()
	defer r.profile(l.name)()
	l.start(r.serving.pid())
	err = r.schedule(ctx, l.batch, offer{timers: l.timers, rate: l.rate, due: l.due()})
	if err != nil {
		return err
	}
	l.Close()
	if rep != nil {
		if l.taken, err = l.takenIn(ctx, rep); err != nil {
			return err
		}
	}
	l.finish(ctx)
	l.stop()
	return nil
}

// due draws the due time of a timer that is sent now, in Unix milliseconds.
func (l Lives) due() func(int, time.Time) int64 {
	random := rand.New(rand.NewPCG(1, 2))
	return func(_ int, now time.Time) int64 {
		return now.Add(l.Least).UnixMilli() + 1 + random.Int64N(1+l.Spread.Milliseconds())
	}
}
