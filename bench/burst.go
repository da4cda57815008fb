package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/node/config"
)

// BurstConfig measures timers that are all due at one moment, some time after they were accepted.
type BurstConfig struct {
	Common
	Timers int
}

// DefaultBurst returns the usual workload.
func DefaultBurst() BurstConfig { return BurstConfig{Common: DefaultCommon(), Timers: 200_000} }

func (b *BurstConfig) check() error { return errors.Join(b.Common.check(), wantTimers(b.Timers)) }

// measure measures a burst next to a pass-through of 1 record in and 1 out. Taking in and firing are measured
// separately.
func (b *BurstConfig) measure(ctx context.Context, r *run) error {
	rep := r.report("burst", "fired a second / bare 1:1", "of the service for a firing / of bare 1:1 for a record")
	return atOnce(ctx, r, rep, b.Timers, offer{}, func(p *phase) error {
		_, err := p.takenIn(ctx, rep)
		return err
	})
}

// FixedConfig measures a fixed-delay topic: records that all fall due at one moment.
type FixedConfig struct {
	Common
	Records int
	Delay   time.Duration // from 1ms
}

// DefaultFixed returns the usual workload.
func DefaultFixed() FixedConfig {
	return FixedConfig{Common: DefaultCommon(), Records: 200_000, Delay: 2 * time.Second}
}

func (f *FixedConfig) check() error {
	return errors.Join(f.checkOwn(), wantTimers(f.Records), between("delay", config.MinDelay, 24*time.Hour, f.Delay))
}

// measure measures a fixed-delay topic next to a pass-through of 1 record in and 1 out.
func (f *FixedConfig) measure(ctx context.Context, r *run) error {
	topic, err := r.makeTopic(ctx, "delayed")
	if err != nil {
		return err
	}
	r.delayed = config.DelayTopic{Topic: topic, Delay: f.Delay, Target: r.target}
	rep := r.report("fixed", "passed on a second / bare 1:1", "of the service for a record / of bare 1:1")
	return atOnce(ctx, r, rep, f.Records, offer{topic: topic, delay: f.Delay}, func(*phase) error { return nil })
}

// The timers of a burst are sent early enough to be accepted before they are due. The lead is a fixed time plus the
// time that accepting them takes at this share of the bare limit.
const (
	burstLead  = 4 * time.Second
	burstShare = 0.1
)

// atOnce measures n timers or records that are due at one moment next to a pass-through of 1
// record in and 1 out. It calls sent when all of them are in the log.
func atOnce(ctx context.Context, r *run, rep *Report, n int, o offer, sent func(*phase) error) error {
	return r.rounds(func() error {
		one, err := r.limitThenServe(ctx, rep, oneToOne)
		if err != nil {
			return err
		}
		p, err := r.begin(ctx, rep.Workload, n)
		if err != nil {
			return err
		}
		defer p.stopReading()
		defer r.profile(rep.Workload)()
		lead, err := leadOf(ctx, n, one)
		if err != nil {
			return fmt.Errorf("%s: %w", rep.Workload, err)
		}
		p.start(r.serving.pid())
		due := p.meter.begin.at.Add(lead).Truncate(time.Millisecond)
		o.timers, o.due = n, func(int, time.Time) int64 { return due.UnixMilli() }
		if err := r.schedule(ctx, p.batch, o); err != nil {
			return err
		}
		if err := sent(p); err != nil {
			return err
		}
		fired, err := p.fireAt(ctx, rep, due)
		if err != nil {
			return err
		}
		rep.round(fired.PerSecond, one.perSecond, fired.CPU, one.cpu)
		return nil
	})
}

// fireAt measures the firings of timers that are all due at one future moment.
func (p *phase) fireAt(ctx context.Context, rep *Report, due time.Time) (*Phase, error) {
	if !time.Now().Before(due) {
		return nil, fmt.Errorf("%s: %d timers fell due before they were taken in: try fewer", rep.Workload, p.timers)
	}
	sleepUntil(ctx, due)
	p.start(p.r.serving.pid())
	p.finish(ctx)
	p.stop()
	return p.tell(rep, due)
}

// leadOf returns how long before their due time n timers are sent, so that all of them are accepted by then. On a
// slow machine that is long. It returns an error if the run would end first, because then it would count timers as
// lost.
func leadOf(ctx context.Context, n int, one *limit) (time.Duration, error) {
	lead := burstLead + seconds(float64(n)/(burstShare*one.perSecond))
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= lead {
		return 0, fmt.Errorf("%d timers need %s to be taken in at the speed of this machine, and the run ends in "+
			"%s: raise --timeout, or try fewer",
			n, lead.Round(time.Second), time.Until(end).Round(time.Second))
	}
	return lead, nil
}
