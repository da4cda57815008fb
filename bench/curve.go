package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/waterclock/waterclock/internal/node/config"
)

// curve is the name of the workload, whose report has a table of its own.
const curve = "curve"

// CurveConfig measures the cost of low lateness: processor time and lateness at given rates, with different firing
// intervals.
type CurveConfig struct {
	SteadyConfig
	// Intervals are the firing intervals, each of which gets an instance of its own. All are compared with the first
	// one.
	Intervals []time.Duration
	// Rest is how long an idle instance is measured, and then how long the brokers alone are; 0 for neither.
	Rest time.Duration
}

// DefaultCurve returns the usual rates and intervals.
func DefaultCurve() CurveConfig {
	c := CurveConfig{SteadyConfig: DefaultSteady(), Rest: time.Minute}
	c.Rates, c.Duration = []float64{100, 1_000, 5_000, 20_000}, 15*time.Second
	for _, ms := range []int{0, 5, 10, 20, 50, 100} {
		c.Intervals = append(c.Intervals, time.Duration(ms)*time.Millisecond)
	}
	return c
}

func (c *CurveConfig) check() error {
	return errors.Join(c.SteadyConfig.check(), c.checkOwn(), between("rest", 0, time.Hour, c.Rest),
		between("intervals", 0, config.MaxFiringInterval, c.Intervals...))
}

// measure measures each rate with each interval.
func (c *CurveConfig) measure(ctx context.Context, r *run) error {
	rep := r.report(curve, "", "")
	if err := rest(ctx, r, rep, c.Rest); err != nil {
		return err
	}
	return c.rounds(func() error {
		for _, rate := range c.Rates {
			for _, interval := range c.Intervals {
				if err := c.point(ctx, r, rep, rate, interval); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// point measures a rate with an interval.
func (s *SteadyConfig) point(ctx context.Context, r *run, rep *Report, rate float64, interval time.Duration) error {
	r.cfg.FiringInterval = interval
	if err := serveWarm(ctx, r); err != nil {
		return err
	}
	p, err := s.paced(ctx, r, rep, rate, fmt.Sprintf("%.0f/s, interval %s", rate, interval))
	if err != nil {
		return err
	}
	ms := float64(interval) / float64(time.Millisecond)
	p.Interval = &ms
	return r.unserve()
}

// restDelay is the idle time of an instance before it is measured.
const restDelay = 5 * time.Second

// rest measures an idle instance with its brokers, and then the brokers alone.
func rest(ctx context.Context, r *run, rep *Report, span time.Duration) error {
	if span == 0 {
		return nil
	}
	if err := serveWarm(ctx, r); err != nil {
		return err
	}
	idle := func(pid int) *CPU {
		m := &meter{r: r}
		defer r.profile("idle")()
		m.during(ctx, pid, windowAfter(time.Now(), Lives{Least: restDelay}, span))()
		// Per second instead of per timer: a µs is a millionth of a core.
		return m.end.since(m.begin, int(span/time.Second))
	}
	rep.Idle = idle(r.serving.pid())
	if err := r.unserve(); err != nil {
		return err
	}
	if alone := idle(os.Getpid()); alone != nil {
		rep.IdleBroker = alone.Broker
	}
	return ctx.Err()
}

// writeCurve writes the points of a curve. Each is the median of its rounds.
func (rep *Report) writeCurve(w io.Writer) {
	type point struct{ rate, interval float64 }
	var order []point
	of := make(map[point][]*Phase)
	for _, p := range rep.Phases {
		if p.Interval != nil && p.CPU != nil {
			at := point{p.Rate, *p.Interval}
			if of[at] == nil {
				order = append(order, at)
			}
			of[at] = append(of[at], p)
		}
	}
	g := &grid{}
	g.row("", "interval ms", "service µs", "broker µs", "of the first", "late ms", "p99", "steps/s", "timers each")
	rate, first := 0.0, 0.0
	for _, at := range order {
		value := func(figure func(*Phase) float64) float64 {
			values := make([]float64, len(of[at]))
			for i, p := range of[at] {
				values[i] = figure(p)
			}
			return median(values)
		}
		own, broker := value(func(p *Phase) float64 { return p.CPU.Own }),
			value(func(p *Phase) float64 { return p.CPU.Broker })
		name := ""
		if rate != at.rate {
			rate, first, name = at.rate, own+broker, fmt.Sprintf("%.0f/s", at.rate)
		}
		g.row(name, strconv.FormatFloat(at.interval, 'f', -1, 64), fmt.Sprintf("%.1f", own),
			fmt.Sprintf("%.1f", broker), fmt.Sprintf("%.2f", (own+broker)/first),
			fmt.Sprintf("%.1f", value(func(p *Phase) float64 { return p.ByReceipt.P50 })),
			fmt.Sprintf("%.1f", value(func(p *Phase) float64 { return p.ByReceipt.P99 })),
			fmt.Sprintf("%.0f", value(func(p *Phase) float64 { return p.Transactions })),
			fmt.Sprintf("%.1f", value(func(p *Phase) float64 { return p.PerStep })))
	}
	g.write(w)
	fmt.Fprintf(w, curveLegend, 100*rep.others())
	if rep.Idle != nil {
		const percent = 10_000 // millionths
		fmt.Fprintf(w, "With nothing to do: service %.2f %%, broker %.2f %% of a core; the broker alone %.2f %%.\n",
			rep.Idle.Own/percent, rep.Idle.Broker/percent, rep.IdleBroker/percent)
	}
}

// curveLegend explains the columns of a curve.
const curveLegend = `
service, broker: processor time for a timer; of the first: of both together at the first interval
late ms: by receipt, half of the timers and 99 of 100; steps: transactions
Others had at most %.0f %% of the machine in any phase.
`
