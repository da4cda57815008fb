package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// BurstConfig measures timers that are all due at one moment, some time after they
// were taken in.
type BurstConfig struct {
	Common
	Timers int
}

// DefaultBurst returns the usual workload.
func DefaultBurst() BurstConfig { return BurstConfig{Common: DefaultCommon(), Timers: 200_000} }

// How long before they are due the timers of a burst are sent, so that they are
// taken in by then: some time, and what it takes at this share of the limit.
const (
	burstLead  = 4 * time.Second
	burstShare = 0.1
)

// RunBurst measures a burst next to a pass-through of 1 record in and 1 out.
func RunBurst(ctx context.Context, c BurstConfig) ([]*Report, error) {
	if err := errors.Join(c.check(), wantTimers(c.Timers)); err != nil {
		return nil, err
	}
	return c.workload(ctx, func(ctx context.Context, r *run) error {
		rep := r.report("burst")
		rep.RatioIs, rep.CPURatioIs = "fired a second / bare 1:1", "of the service for a firing / of bare 1:1 for a record"
		return r.besideOneToOne(ctx, rep, c.Rounds, c.Timers, r.burst)
	})
}

// besideOneToOne measures something of n timers or records next to a pass-through of 1
// record in and 1 out, so many times.
func (r *run) besideOneToOne(ctx context.Context, rep *Report, rounds, n int, measure func(context.Context, *Report, int, *limit) (*Phase, error)) error {
	for range rounds {
		one, err := r.limit(ctx, rep, oneToOne)
		if err != nil {
			return err
		}
		if err := r.serveWarm(ctx); err != nil {
			return err
		}
		p, err := measure(ctx, rep, n, one)
		if err != nil {
			return err
		}
		rep.round(p.PerSecond, one.perSecond, p.CPU, one.cpu)
	}
	return nil
}

// burst measures taking in and firing apart.
func (r *run) burst(ctx context.Context, rep *Report, timers int, one *limit) (*Phase, error) {
	l, col, err := r.phase(ctx, "burst", timers)
	if err != nil {
		return nil, err
	}
	defer col.stop()
	m := &meter{run: r}
	defer r.profile("burst")()
	m.start(r.serving.pid())
	lead, err := leadOf(ctx, timers, one)
	if err != nil {
		return nil, fmt.Errorf("burst: %w", err)
	}
	due := m.begin.at.Add(lead).Truncate(time.Millisecond)
	if err := r.schedule(ctx, l, offer{timers: timers, due: func(int, time.Time) int64 { return due.UnixMilli() }}); err != nil {
		return nil, err
	}
	l.close()
	if err := r.awaitSettled(ctx); err != nil {
		return nil, err
	}
	m.stop()
	if !m.end.at.Before(due) {
		return nil, fmt.Errorf("burst: %d timers were not taken in within %s: try fewer", timers, lead)
	}
	taken := &Phase{Name: "taking in", Exact: Exactness{Scheduled: timers}}
	m.measure(taken, timers)
	taken.perSecond(timers, m.begin.at, m.end.at)
	sleepUntil(ctx, due)
	m.start(r.serving.pid())
	col.finish(ctx, r.bar("burst", timers))
	m.stop()
	p := &Phase{Name: "burst"}
	m.measure(p, timers)
	p.perSecond(timers, due, l.last)
	_, p.PeakRSS = memory(r.serving.pid())
	p.late(l, window{})
	rep.Phases = append(rep.Phases, taken, p)
	return p, p.verify(l)
}

// leadOf is how long before they fall due n timers are sent, so that all are taken in by then. A machine
// that is slow needs long: a run that ends before that would take them for lost.
func leadOf(ctx context.Context, n int, one *limit) (time.Duration, error) {
	lead := burstLead + time.Duration(float64(n)/(burstShare*one.perSecond)*float64(time.Second))
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= lead {
		return 0, fmt.Errorf("%d timers need %s to be taken in at the speed of this machine, and the run ends in %s: raise --timeout, or try fewer",
			n, lead.Round(time.Second), time.Until(end).Round(time.Second))
	}
	return lead, nil
}
