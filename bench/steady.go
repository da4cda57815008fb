package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// SteadyConfig measures how late emissions are at given rates.
type SteadyConfig struct {
	Common
	Lives                  // timers are sent for so long before the measured time, too
	Rates    []float64     // timers a second, one after the other
	Duration time.Duration // of what is measured of each
	// Every is the interval of recurring timers that are measured at each rate too, as
	// many as make it; 0: none are.
	Every time.Duration
}

// DefaultSteady returns the usual workload.
func DefaultSteady() SteadyConfig {
	return SteadyConfig{
		Common: DefaultCommon(), Rates: []float64{1_000, 10_000, 30_000}, Duration: 20 * time.Second,
		Lives: Lives{Least: time.Second, Spread: 4 * time.Second},
	}
}

func (c *SteadyConfig) check() error {
	errs := []error{
		c.Common.check(), c.Lives.check(), between("rates", 1, MaxRate, c.Rates...),
		want(c.Duration > 0 && c.Duration <= time.Hour, "duration", c.Duration, "more than 0, at most 1h"),
		want(c.Every == 0 || c.Every >= time.Second && c.Every <= time.Hour && c.Every%time.Millisecond == 0, "every", c.Every, "whole milliseconds, 1s to 1h, or 0"),
	}
	for _, rate := range c.Rates {
		errs = append(errs, wantTimers(timersIn(rate, c.lead()+c.Duration)))
		if c.Every > 0 {
			errs = append(errs, wantTimers(c.recurring(rate), c.recurring(rate)*c.occurrences()))
		}
	}
	return errors.Join(errs...)
}

// measure measures, for each rate, a bare loop of steps and then the whole path,
// and reports each rate by itself.
func (c *SteadyConfig) measure(ctx context.Context, r *run) error {
	for _, rate := range c.Rates {
		rep := r.report("steady")
		rep.Rate = rate
		rep.RatioIs, rep.CPURatioIs = "p99 by receipt / bare loop of steps", "of the service for a timer / of the bare loop for one"
		if err := c.rounds(func() error { return c.steady(ctx, r, rep, rate) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *SteadyConfig) steady(ctx context.Context, r *run, rep *Report, rate float64) error {
	bare, err := r.bare.steps(ctx, rep, c.Lives, c.Duration, order{Rate: rate, Fanout: oneToThree})
	if err != nil {
		return err
	}
	if err := serveWarm(ctx, r); err != nil {
		return err
	}
	p, err := c.paced(ctx, r, rep, rate, fmt.Sprintf("%.0f/s", rate))
	if err != nil {
		return err
	}
	rep.round(p.ByReceipt.P99, bare.ByReceipt.P99, p.CPU, bare.CPU.own())
	rep.ratio("p50 by receipt / bare loop of steps", p.ByReceipt.P50, bare.ByReceipt.P50)
	rep.ratio("of the service for a transaction / of the bare loop for one", p.CPU.own()*p.PerStep, bare.CPU.own()*bare.PerStep)
	if c.Every == 0 {
		return nil
	}
	return c.recur(ctx, r, rep, rate, p)
}

// windowAfter is the measured span of due times, of timers sent from begin on.
func windowAfter(begin time.Time, l Lives, d time.Duration) window {
	from := begin.Add(l.lead())
	return window{from, from.Add(d)}
}

// paced schedules timers at a rate, before the measured time and in it.
func (c *SteadyConfig) paced(ctx context.Context, r *run, rep *Report, rate float64, name string) (*Phase, error) {
	l := lives{Lives: c.Lives, name: name, timers: timersIn(rate, c.lead()+c.Duration), rate: rate}
	m := &meter{r: r}
	w := windowAfter(time.Now(), c.Lives, c.Duration)
	over := m.during(ctx, r.serving.pid(), w)
	err := l.fire(ctx, r, nil)
	<-over
	if err != nil {
		return nil, err
	}
	p, err := l.tell(rep, l.meter.begin.at)
	if err != nil {
		return nil, err
	}
	p.Rate, p.PerSecond = rate, 0
	p.late(l.batch, w)
	m.measure(p, l.receivedIn(w))
	return p, nil
}

// recurSettle is how long after the last first firing of recurring timers the measured
// time begins: the cost of scheduling them is over then.
const recurSettle = time.Second

// recurring is how many timers of the interval make a rate.
func (c *SteadyConfig) recurring(rate float64) int {
	return max(1, int(math.Round(rate*c.Every.Seconds())))
}

// occurrences is how many each of them has: so many that the first one of them goes on to
// the end of the measured time, which begins when the last one has fired once.
func (c *SteadyConfig) occurrences() int {
	return 2 + int(math.Ceil(float64(recurSettle+c.Duration)/float64(c.Every)))
}

// recur measures recurring timers that make the same rate of firings as plain ones that
// were measured before. They are scheduled at that rate too, for as long as an interval,
// so their firings are spread over it.
func (c *SteadyConfig) recur(ctx context.Context, r *run, rep *Report, rate float64, plain *Phase) error {
	timers, last := c.recurring(rate), c.occurrences()
	b := r.nextBatch(0)
	b.recurring = timers
	b.open(timers * last)
	for range timers * last {
		b.Schedule(math.MaxInt64 - 1) // until it is sent
	}
	p, err := r.collect(ctx, fmt.Sprintf("%.0f/s every %s", rate, c.Every), r.target, b, timers*last)
	if err != nil {
		return err
	}
	defer p.stopReading()
	defer r.profile(p.name)()
	w := windowAfter(time.Now(), Lives{Least: c.Least, Spread: c.Every + recurSettle}, c.Duration)
	over := p.during(ctx, r.serving.pid(), w)
	err = r.schedule(ctx, b, offer{timers: timers, rate: rate, every: c.Every, last: last, due: Lives{Least: c.Least}.due()})
	if err != nil {
		return err
	}
	p.finish(ctx)
	<-over
	told, err := p.tell(rep, time.Time{})
	if err != nil {
		return err
	}
	told.Rate, told.Seconds, told.PerSecond = rate, 0, 0
	told.late(b, w)
	p.measure(told, b.receivedIn(w))
	rep.ratio("p99 by receipt of recurring timers / of plain ones", told.ByReceipt.P99, plain.ByReceipt.P99)
	rep.ratio("p50 by receipt of recurring timers / of plain ones", told.ByReceipt.P50, plain.ByReceipt.P50)
	rep.ratio("of the service for a firing / for a plain timer", told.CPU.own(), plain.CPU.own())
	return nil
}
