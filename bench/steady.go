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
	Lives                  // timers are sent for that long before the measurement begins
	Rates    []float64     // timers a second, in the order in which they are measured
	Duration time.Duration // of the measurement of each rate
}

// DefaultSteady returns the usual workload.
func DefaultSteady() SteadyConfig {
	return SteadyConfig{
		Common: DefaultCommon(), Rates: []float64{1_000, 10_000, 30_000}, Duration: 20 * time.Second,
		Lives: Lives{Least: time.Second, Spread: 4 * time.Second},
	}
}

func (s *SteadyConfig) check() error {
	errs := []error{
		s.Common.check(), s.Lives.check(), between("rates", 1, MaxRate, s.Rates...),
		want(s.Duration > 0 && s.Duration <= time.Hour, "duration", s.Duration, "more than 0, at most 1h"),
	}
	for _, rate := range s.Rates {
		errs = append(errs, wantTimers(timersIn(rate, s.lead()+s.Duration)))
	}
	return errors.Join(errs...)
}

// measure measures a bare loop of steps and then the service at each rate. Each rate has a report of its own.
func (s *SteadyConfig) measure(ctx context.Context, r *run) error {
	for _, rate := range s.Rates {
		rep := r.report("steady", "p99 by receipt / bare loop of steps",
			"of the service for a timer / of the bare loop for one")
		rep.Rate = rate
		if err := s.rounds(func() error { return s.steady(ctx, r, rep, rate) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *SteadyConfig) steady(ctx context.Context, r *run, rep *Report, rate float64) error {
	bare, err := r.bare.steps(ctx, rep, s.Lives, s.Duration, order{Rate: rate, Fanout: oneToThree})
	if err != nil {
		return err
	}
	if err := serveWarm(ctx, r); err != nil {
		return err
	}
	p, err := s.paced(ctx, r, rep, rate, fmt.Sprintf("%.0f/s", rate))
	if err != nil {
		return err
	}
	rep.round(p.ByReceipt.P99, bare.ByReceipt.P99, p.CPU, bare.CPU.own())
	rep.ratio("p50 by receipt / bare loop of steps", p.ByReceipt.P50, bare.ByReceipt.P50)
	rep.ratio("of the service for a transaction / of the bare loop for one", p.CPU.own()*p.PerStep,
		bare.CPU.own()*bare.PerStep)
	return nil
}

// windowAfter returns the measured span of due times, of timers that are sent from begin on.
func windowAfter(begin time.Time, l Lives, d time.Duration) window {
	from := begin.Add(l.lead())
	return window{from, from.Add(d)}
}

// paced schedules timers at a rate, before and during the measurement.
func (s *SteadyConfig) paced(ctx context.Context, r *run, rep *Report, rate float64, name string) (*Phase, error) {
	l := lives{Lives: s.Lives, name: name, timers: timersIn(rate, s.lead()+s.Duration), rate: rate}
	m := &meter{r: r}
	w := windowAfter(time.Now(), s.Lives, s.Duration)
	over := m.during(ctx, r.serving.pid(), w)
	err := l.fire(ctx, r, nil)
	over()
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
