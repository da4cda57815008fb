package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/config"
)

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

// RunFixed measures a fixed-delay topic next to a pass-through of 1 record in and 1 out.
func RunFixed(ctx context.Context, c FixedConfig) ([]*Report, error) {
	c.Requests = "" // a fixed-delay topic is the run's own, so the instance is too
	var wrong error
	if c.Delay < config.MinDelay || !c.Local {
		wrong = errors.New("a fixed-delay topic needs an instance of the run's own (--local) and a delay of 1ms or more")
	}
	if err := errors.Join(c.check(), wantTimers(c.Records), wrong); err != nil {
		return nil, err
	}
	return c.workload(ctx, func(ctx context.Context, r *run) error {
		topic, err := r.makeTopic(ctx, "delayed")
		if err != nil {
			return err
		}
		r.delayed = config.DelayTopic{Topic: topic, Delay: c.Delay, Target: r.target}
		rep := r.report("fixed")
		rep.RatioIs, rep.CPURatioIs = "passed on a second / bare 1:1", "of the service for a record / of bare 1:1"
		return r.besideOneToOne(ctx, rep, c.Rounds, c.Records, r.fixed)
	})
}

// fixed sends records whose timestamps make them due at one moment, when all are in the
// log.
func (r *run) fixed(ctx context.Context, rep *Report, records int, one *limit) (*Phase, error) {
	l, col, err := r.phase(ctx, "fixed", records)
	if err != nil {
		return nil, err
	}
	defer col.stop()
	defer r.profile("fixed")()
	lead, err := leadOf(ctx, records, one)
	if err != nil {
		return nil, fmt.Errorf("fixed: %w", err)
	}
	due := time.Now().Add(lead).Truncate(time.Millisecond)
	o := offer{timers: records, due: func(int, time.Time) int64 { return due.UnixMilli() }, topic: r.delayed.Topic, delay: r.delayed.Delay}
	if err := r.schedule(ctx, l, o); err != nil {
		return nil, err
	}
	l.close()
	if !time.Now().Before(due) {
		return nil, errors.New("fixed: the records were not in the log when they fell due: try fewer")
	}
	sleepUntil(ctx, due)
	m := &meter{run: r}
	m.start(r.serving.pid())
	col.finish(ctx, r.bar("fixed", records))
	m.stop()
	p := &Phase{Name: "fixed"}
	m.measure(p, records)
	p.perSecond(records, due, l.last)
	_, p.PeakRSS = memory(r.serving.pid())
	p.late(l, window{})
	rep.Phases = append(rep.Phases, p)
	return p, p.verify(l)
}
