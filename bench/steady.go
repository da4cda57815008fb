package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// SteadyConfig measures how late emissions are at given rates.
type SteadyConfig struct {
	Common
	Rates    []float64     // timers a second, one after the other
	Duration time.Duration // of what is measured of each
	// Each timer is due between Least and Least plus Spread after it is sent. So
	// long the measured time is preceded by timers that warm up.
	Least, Spread time.Duration
	// Every is the interval of recurring timers that are measured at each rate too, as
	// many as make it; 0: none are.
	Every time.Duration
}

// DefaultSteady returns the usual workload.
func DefaultSteady() SteadyConfig {
	return SteadyConfig{
		Common: DefaultCommon(), Rates: []float64{1_000, 10_000, 30_000}, Duration: 20 * time.Second,
		Least: time.Second, Spread: 4 * time.Second,
	}
}

func (c *SteadyConfig) check() error {
	errs := []error{
		c.Common.check(), wantSpan("least", c.Least), wantSpan("spread", c.Spread),
		want(c.Duration > 0 && c.Duration <= time.Hour, "duration", c.Duration, "more than 0, at most 1h"),
		want(len(c.Rates) > 0, "rates", "", "at least one"),
		want(c.Every == 0 || c.Every >= time.Second && c.Every <= time.Hour && c.Every%time.Millisecond == 0, "every", c.Every, "whole milliseconds, 1s to 1h, or 0"),
	}
	for _, rate := range c.Rates {
		errs = append(errs, want(rate >= 1 && rate <= MaxRate, "rates", rate, fmt.Sprint("1 to ", MaxRate, " a second")),
			wantTimers(int(rate*(c.lead()+c.Duration).Seconds())))
		if c.Every > 0 {
			errs = append(errs, wantTimers(c.recurring(rate)), wantTimers(c.recurring(rate)*c.occurrences()))
		}
	}
	return errors.Join(errs...)
}

// lead is how long a rate goes on before it is measured: until as many timers fall
// due as are scheduled.
func (c *SteadyConfig) lead() time.Duration { return c.Least + c.Spread }

// RunSteady measures, for each rate, a bare loop of steps and then the whole path,
// and reports each rate by itself.
func RunSteady(ctx context.Context, c SteadyConfig) ([]*Report, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.workload(ctx, func(ctx context.Context, r *run) error {
		for _, rate := range c.Rates {
			rep := r.report("steady")
			rep.Rate = rate
			rep.RatioIs, rep.CPURatioIs = "p99 by receipt / bare loop of steps", "of the service for a timer / of the bare loop for one"
			for range c.Rounds {
				if err := r.steady(ctx, rep, c, rate); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (r *run) steady(ctx context.Context, rep *Report, c SteadyConfig, rate float64) error {
	bare, err := r.steps(ctx, rep, c, order{Rate: rate, Fanout: oneToThree.fanout})
	if err != nil {
		return err
	}
	if err := r.serveWarm(ctx); err != nil {
		return err
	}
	p, err := r.paced(ctx, rep, c, rate, fmt.Sprintf("%.0f/s", rate))
	if err != nil {
		return err
	}
	rep.round(p.ByReceipt.P99, bare.ByReceipt.P99, p.CPU, bare.own())
	rep.ratio("p50 by receipt / bare loop of steps", p.ByReceipt.P50, bare.ByReceipt.P50)
	rep.ratio("of the service for a transaction / of the bare loop for one", p.own()*p.PerStep, bare.own()*bare.PerStep)
	if c.Every == 0 {
		return nil
	}
	return r.recur(ctx, rep, c, rate, p)
}

// measured is the span of due times that count, of timers sent from begin on.
func (c *SteadyConfig) measured(begin time.Time) window {
	from := begin.Add(c.lead())
	return window{from, from.Add(c.Duration)}
}

// meterDuring reads what is used within w, which has not begun. It ends with w or
// ctx.
func (r *run) meterDuring(ctx context.Context, m *meter, pid int, w window) (done <-chan struct{}) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		if !sleepUntil(ctx, w.from) {
			return
		}
		m.start(pid)
		sleepUntil(ctx, w.to)
		m.stop()
	}()
	return over
}

func sleepUntil(ctx context.Context, at time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Until(at)):
		return true
	}
}

// paced schedules timers at a rate for as long as it takes, and measures them.
func (r *run) paced(ctx context.Context, rep *Report, c SteadyConfig, rate float64, name string) (*Phase, error) {
	l := r.newLives(name, int(rate*(c.lead()+c.Duration).Seconds()), c.Least, c.Spread)
	l.rate = rate
	m := &meter{run: r}
	w := c.measured(time.Now())
	over := r.meterDuring(ctx, m, r.serving.pid(), w)
	err := l.fire(ctx, nil)
	<-over
	if err != nil {
		return nil, err
	}
	p, err := l.whole(rep)
	if err != nil {
		return nil, err
	}
	p.PerSecond = 0
	p.late(l.ledger, w)
	m.measure(p, l.ledger.receivedIn(w))
	return p, nil
}

// steps measures the bare loop that is fed from memory, with the Rate, the Interval and the Fanout of o.
// Beside lives a producer sends as many requests as it would for the service.
func (r *run) steps(ctx context.Context, rep *Report, c SteadyConfig, o order) (*Phase, error) {
	timers := int(o.Rate * (c.lead() + c.Duration).Seconds())
	requests, err := r.unread(ctx)
	if err != nil {
		return nil, err
	}
	o.Kind, o.Name, o.In, o.IDs, o.Records = "steps", fmt.Sprintf("%s-steps-%d", r.name, r.phases), requests, MaxIDs, timers
	o.Prefix, o.ValueBytes, o.Partitions = fmt.Sprintf("%s-%d-", r.name, r.phases), r.ValueBytes, r.Partitions
	p := &Phase{Name: "bare loop", Bare: true, Rate: o.Rate}
	l := newLedger(o.Prefix, r.ValueBytes, timers)
	err = r.bare(ctx, o, l, func(ctx context.Context, loop *loop, col *collector) error {
		first := time.Now().Truncate(time.Millisecond).Add(stepsDelay)
		for i := range timers {
			l.schedule(dueOf(first, i, o.Rate).UnixMilli())
		}
		l.close()
		w := c.measured(first)
		m := &meter{run: r}
		over := r.meterDuring(ctx, m, loop.Pid(), w)
		beside := make(chan error, 1)
		go func() {
			if o.Fanout < oneToThree.fanout {
				beside <- nil // firings: they were scheduled before
				return
			}
			unread := newLedger(o.Prefix, r.ValueBytes, timers)
			beside <- r.schedule(ctx, unread, offer{timers: timers, rate: o.Rate, topic: requests, due: func(_ int, now time.Time) int64 { return now.UnixMilli() }})
		}()
		err := errors.Join(loop.work(ctx, first), <-beside)
		if err == nil {
			col.finish(ctx, r.bar(p.Name, timers))
		}
		<-over
		p.late(l, w)
		m.measure(p, l.receivedIn(w))
		p.PerStep = float64(timers) / float64(loop.steps)
		return err
	})
	if err != nil {
		return nil, err
	}
	rep.Phases = append(rep.Phases, p)
	return p, p.verify(l)
}

// unread makes the topic of a phase that is written and not read.
func (r *run) unread(ctx context.Context) (string, error) {
	r.phases++
	return r.makeTopic(ctx, fmt.Sprintf("unread-%d", r.phases))
}

// stepsDelay is how long before its first timer is due a bare loop is told of it.
const stepsDelay = time.Second
