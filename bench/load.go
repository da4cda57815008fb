package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// LoadConfig measures many timers that are due far in the future, and lateness with
// them.
type LoadConfig struct {
	SteadyConfig               // what is measured before and on top
	Pending      int           // timers
	Ahead        time.Duration // they are due between Ahead and twice that
}

// DefaultLoad returns the usual workload.
func DefaultLoad() LoadConfig {
	c := LoadConfig{SteadyConfig: DefaultSteady(), Pending: 2_000_000, Ahead: 24 * time.Hour}
	c.Rates = []float64{10_000}
	return c
}

// RunLoad measures taking in next to a pass-through of 1 record in and 1 out, and
// each rate on top of it next to the same rate before. It starts an instance of its
// own: nobody's topic should be left with that many timers.
func RunLoad(ctx context.Context, c LoadConfig) ([]*Report, error) {
	c.Local, c.Requests, c.Target = true, "", ""
	if err := errors.Join(c.check(), wantTimers(c.Pending), wantAhead(c.Ahead), want(c.Rounds == 1, "rounds", c.Rounds, "1")); err != nil {
		return nil, err
	}
	return c.workload(ctx, func(ctx context.Context, r *run) error {
		rep := r.report("load")
		rep.RatioIs, rep.CPURatioIs = "taken in a second / bare 1:1", "of the service for a timer / of bare 1:1 for a record"
		one, err := r.limit(ctx, rep, oneToOne)
		if err != nil {
			return err
		}
		if err := r.serveWarm(ctx); err != nil {
			return err
		}
		before := make([]*Phase, len(c.Rates))
		for i, rate := range c.Rates {
			if before[i], err = r.paced(ctx, rep, c.SteadyConfig, rate, fmt.Sprintf("%.0f/s before", rate)); err != nil {
				return err
			}
		}
		if err := r.load(ctx, rep, c, one); err != nil {
			return err
		}
		for i, rate := range c.Rates {
			if err := r.onTop(ctx, c, rate, before[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *run) load(ctx context.Context, rep *Report, c LoadConfig, one *limit) error {
	m := &meter{run: r}
	defer r.profile("load")()
	m.start(r.serving.pid())
	if err := r.scheduleFar(ctx, c.Pending, c.Ahead); err != nil {
		return err
	}
	m.stop()
	p := &Phase{Name: "load"}
	m.measure(p, c.Pending)
	rep.Phases = append(rep.Phases, p)
	p.perSecond(c.Pending, m.begin.at, m.end.at)
	_, p.PeakRSS = memory(r.serving.pid())
	disk, err := diskUse(r.settings().DataDir)
	if err != nil {
		return err
	}
	rep.Sizes = &Sizes{Pending: c.Pending, Request: r.requestBytes(c.Pending), Disk: float64(disk) / float64(c.Pending)}
	rep.round(p.PerSecond, one.perSecond, p.CPU, one.cpu)
	return r.allPending(ctx, p, c.Pending, pendingTimeout)
}

// pendingTimeout bounds how long the last of what is taken in may be applied.
const pendingTimeout = 10 * time.Second

// allPending asks the instance whether it has exactly as many timers, for so long.
func (r *run) allPending(ctx context.Context, p *Phase, timers int, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		n, err := r.serving.metric(ctx, "waterclock_pending_timers")
		if err != nil {
			return err
		}
		if int(n) == timers || time.Now().After(deadline) {
			p.Exact = Exactness{Scheduled: timers, Lost: max(0, timers-int(n)), Altered: max(0, int(n)-timers)}
			return p.Exact.err(p.Name)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(barEvery):
		}
	}
}

// onTop measures a rate while the timers are pending.
func (r *run) onTop(ctx context.Context, c LoadConfig, rate float64, before *Phase) error {
	rep := r.report("steady on top of load")
	rep.Rate = rate
	rep.RatioIs, rep.CPURatioIs = "p99 by receipt / without the load", "of the service for a timer / without the load"
	p, err := r.paced(ctx, rep, c.SteadyConfig, rate, fmt.Sprintf("%.0f/s on top", rate))
	if err != nil {
		return err
	}
	rep.round(p.ByReceipt.P99, before.ByReceipt.P99, p.CPU, before.own())
	rep.ratio("p50 by receipt / without the load", p.ByReceipt.P50, before.ByReceipt.P50)
	return nil
}
