package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/waterclock/waterclock"
)

// LoadConfig measures many timers that are due far in the future, and the lateness of others on top of them.
type LoadConfig struct {
	SteadyConfig     // the rates that are measured before and on top
	Pending      int // timers
}

// DefaultLoad returns the usual workload.
func DefaultLoad() LoadConfig {
	c := LoadConfig{SteadyConfig: DefaultSteady(), Pending: 2_000_000}
	c.Rates, c.Local = []float64{10_000}, true
	return c
}

func (l *LoadConfig) check() error {
	return errors.Join(l.SteadyConfig.check(), l.checkOwn(), wantTimers(l.Pending), between("rounds", 1, 1, l.Rounds))
}

// measure compares accepting timers with a 1:1 pass-through, and each rate on top of them with the same rate before.
func (l *LoadConfig) measure(ctx context.Context, r *run) error {
	rep := r.report("load", "taken in a second / bare 1:1", "of the service for a timer / of bare 1:1 for a record")
	one, err := r.limitThenServe(ctx, rep, oneToOne)
	if err != nil {
		return err
	}
	before := make([]*Phase, len(l.Rates))
	for i, rate := range l.Rates {
		if before[i], err = l.paced(ctx, r, rep, rate, fmt.Sprintf("%.0f/s before", rate)); err != nil {
			return err
		}
	}
	if err := l.load(ctx, r, rep, one); err != nil {
		return err
	}
	for i, rate := range l.Rates {
		top := r.report("steady on top of load", "p99 by receipt / without the load",
			"of the service for a timer / without the load")
		top.Rate = rate
		p, err := l.paced(ctx, r, top, rate, fmt.Sprintf("%.0f/s on top", rate))
		if err != nil {
			return err
		}
		top.round(p.ByReceipt.P99, before[i].ByReceipt.P99, p.CPU, before[i].CPU.own())
		top.ratio("p50 by receipt / without the load", p.ByReceipt.P50, before[i].ByReceipt.P50)
	}
	return nil
}

func (l *LoadConfig) load(ctx context.Context, r *run, rep *Report, one *limit) error {
	m := &meter{r: r}
	defer r.profile("load")()
	m.start(r.serving.pid())
	if err := r.scheduleFar(ctx, r.nextBatch(0), l.Pending); err != nil {
		return err
	}
	m.stop()
	p := rep.add(&Phase{Name: "load"})
	m.measure(p, l.Pending)
	p.perSecond(l.Pending, m.begin.at, m.end.at)
	_, p.PeakRSS = memory(r.serving.pid())
	disk, err := diskUse(r.settings().DataDir)
	if err != nil {
		return err
	}
	rep.Sizes = &Sizes{Pending: l.Pending, Request: requestBytes(r, l.Pending),
		Disk: float64(disk) / float64(l.Pending)}
	rep.round(p.PerSecond, one.perSecond, p.CPU, one.cpu)
	return r.serving.allPending(ctx, p, l.Pending, pendingTimeout)
}

// Timers that stay pending are due between farAhead and twice farAhead from now.
const farAhead = 24 * time.Hour

// scheduleFar schedules timers that are not due during the run, and waits until they have been accepted.
func (r *run) scheduleFar(ctx context.Context, b *batch, timers int) error {
	random := rand.New(rand.NewPCG(3, 4))
	return r.scheduleUnbooked(ctx, b, offer{timers: timers, due: func(_ int, now time.Time) int64 {
		return now.Add(farAhead).UnixMilli() + random.Int64N(farAhead.Milliseconds())
	}})
}

// requestBytes returns about how many bytes a request has if there are that many timers.
func requestBytes(r *run, timers int) int {
	headers := len(waterclock.HeaderAt) + len("1700000000000") + len(waterclock.HeaderTargetTopic) + len(r.target)
	return len(r.name) + len("-1-") + len(strconv.Itoa(timers)) + r.ValueBytes + headers
}
