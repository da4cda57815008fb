package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// LatenessConfig measures how late emissions are at given rates.
type LatenessConfig struct {
	Common
	Rates    []float64 // timers a second, each a phase
	Duration time.Duration
	// Each timer is due between Least and Least plus Spread after it is sent.
	Least, Spread time.Duration
	IDs           int // transactional IDs in turn, of the bare loop
}

// DefaultLateness returns the usual workload.
func DefaultLateness() LatenessConfig {
	return LatenessConfig{
		Common: DefaultCommon(), Rates: []float64{1_000, 10_000}, Duration: 20 * time.Second,
		Least: time.Second, Spread: 4 * time.Second, IDs: 4,
	}
}

func (c *LatenessConfig) check() error {
	errs := []error{
		c.Common.check(),
		want(c.Duration > 0 && c.Duration <= time.Hour, "duration", c.Duration, "more than 0, at most 1h"),
		want(c.Least >= 0 && c.Spread >= 0, "spread", c.Spread, "0 or more, and so does least"),
		want(c.IDs >= 1 && c.IDs <= 4, "transactional-ids", c.IDs, "1 to 4"),
		want(len(c.Rates) > 0, "rates", "", "at least one"),
	}
	for _, rate := range c.Rates {
		errs = append(errs, want(rate >= 1 && rate <= MaxRate, "rates", rate, fmt.Sprint("1 to ", MaxRate, " a second")),
			wantTimers(int(rate*c.Duration.Seconds())))
	}
	return errors.Join(errs...)
}

// RunLateness measures, for each rate, the bare loop and then the whole path.
// It returns the report also with ErrInexact.
func RunLateness(ctx context.Context, c LatenessConfig) (*Report, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.workload(ctx, "lateness", func(ctx context.Context, r *run, rep *Report) error {
		for _, rate := range c.Rates {
			if err := r.late(ctx, rep, c, rate); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *run) late(ctx context.Context, rep *Report, c LatenessConfig, rate float64) error {
	n := int(rate * c.Duration.Seconds())
	if err := r.bare(ctx, rep, n, rate, c.IDs); err != nil {
		return err
	}
	bare := rep.Phases[len(rep.Phases)-1]
	if err := r.lives(ctx, rep, Phase{Name: fmt.Sprintf("%.0f/s", rate), Rate: rate}, n, c.Least, c.Spread); err != nil {
		return err
	}
	p := rep.Phases[len(rep.Phases)-1]
	rep.ratio(fmt.Sprintf("%.0f/s: p99 by timestamp / bare loop", rate), p.ByTimestamp.P99, bare.ByTimestamp.P99)
	rep.ratio(fmt.Sprintf("%.0f/s: p50 by receipt / bare loop", rate), p.ByReceipt.P50, bare.ByReceipt.P50)
	rep.ratio(fmt.Sprintf("%.0f/s: p99 by receipt / bare loop", rate), p.ByReceipt.P99, bare.ByReceipt.P99)
	return nil
}
