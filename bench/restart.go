package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/node/config"
)

// RestartConfig measures how long an instance takes to be ready with many pending timers, and how much memory and disk
// they take. It starts instances of its own.
type RestartConfig struct {
	Common
	Pending int
	Overdue int // timers that fall due while no instance runs, at each clean stop
}

// DefaultRestart returns the usual workload.
func DefaultRestart() RestartConfig {
	c := RestartConfig{Common: DefaultCommon(), Pending: 2_000_000, Overdue: 1_000}
	c.Local = true
	return c
}

func (rc *RestartConfig) check() error {
	return errors.Join(rc.checkOwn(), wantTimers(rc.Pending), between("overdue", 0, MaxTimers, rc.Overdue))
}

// restart is a run whose instance is started several times. The instance is a static member of the run's own group, so
// its partitions wait for it, and the time to ready does not include the group's session timeout.
type restart struct {
	*run
	c   *RestartConfig
	cfg *config.Config
	rep *Report
}

// measure measures each start. A start without the directory is compared with a plain consumer of the changelog.
func (rc *RestartConfig) measure(ctx context.Context, r *run) error {
	return newRestart(rc, r, r.report("restart", "", "")).starts(ctx)
}

func newRestart(c *RestartConfig, r *run, rep *Report) *restart {
	s := &restart{run: r, c: c, cfg: r.settings(), rep: rep}
	s.rep.RatioIs, s.rep.CPURatioIs = "replayed a second without the directory / plain consumer",
		"of the service for an offset / of the consumer for a record"
	s.cfg.InstanceID, s.cfg.OnStop = r.name, config.Stay
	return s
}

func (r *restart) starts(ctx context.Context) error {
	empty, err := r.launched(ctx, "empty", 0)
	if err != nil {
		return err
	}
	if err := r.scheduleFar(ctx, r.nextBatch(0), r.c.Pending); err != nil {
		return err
	}
	_, peak := memory(r.serving.pid())
	r.serving.kill()
	if _, err := r.launched(ctx, "after kill -9", r.c.Pending); err != nil {
		return err
	}
	clean, err := r.again(ctx, "after a clean stop", "overdue, clean stop", false)
	if err != nil {
		return err
	}
	disk, err := diskUse(r.cfg.DataDir)
	if err != nil {
		return err
	}
	n := float64(r.c.Pending)
	r.rep.Sizes = &Sizes{
		Pending: r.c.Pending, Request: requestBytes(r.run, r.c.Pending), Disk: float64(disk) / n,
		Memory: float64(clean.RSS-empty.RSS) / n, PeakMemory: float64(peak-empty.RSS) / n,
	}
	r.rep.PeakRSS = peak
	consumer, err := r.consume(ctx)
	if err != nil {
		return err
	}
	noDirectory, err := r.again(ctx, "without its directory", "overdue, no directory", true)
	if err != nil {
		return err
	}
	records := float64(noDirectory.Replayed)
	r.rep.round(records/noDirectory.Seconds, consumer.PerSecond, &CPU{Own: noDirectory.CPU * 1e6 / records},
		consumer.CPU.own())
	return nil
}

// consume measures a plain consumer of the changelog.
func (r *restart) consume(ctx context.Context) (*Phase, error) {
	n := r.c.Pending
	loop, err := r.bare.newLoop(ctx,
		order{Kind: kindRead, Name: r.name + "-read", In: changelog(r.requests), Records: n})
	if err != nil {
		return nil, err
	}
	defer loop.end()
	m := &meter{r: r.run}
	m.start(loop.Pid())
	if err := loop.work(ctx, time.Now()); err != nil {
		return nil, err
	}
	m.stop()
	p := r.rep.add(&Phase{Name: "plain consumer", Bare: true, Exact: history.Counts{Scheduled: n, Received: n}})
	p.perSecond(n, m.begin.at, m.end.at)
	m.measure(p, n)
	return p, nil
}

// launched starts the instance and measures until it is ready.
func (r *restart) launched(ctx context.Context, name string, pending int) (*Start, error) {
	start := time.Now()
	i, err := r.launch(r.cfg)
	if err != nil {
		return nil, err
	}
	r.serving = i
	if err := i.ready(ctx, r.partitions); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	st := Start{Name: name, Pending: pending, Seconds: time.Since(start).Seconds(),
		CPU: max(0, cpuTime(i.pid()).Seconds())}
	st.RSS, st.PeakRSS = memory(i.pid())
	if st.Replayed, err = i.metric(ctx, "waterclock_replayed_offsets_total"); err != nil {
		return nil, err
	}
	r.rep.Starts = append(r.rep.Starts, st)
	return &r.rep.Starts[len(r.rep.Starts)-1], nil
}

// again stops the instance cleanly, lets timers fall due, and starts it again, with its directory or without. Each of
// those timers must then fire once.
func (r *restart) again(ctx context.Context, name, overdue string, wipe bool) (*Start, error) {
	if err := r.serving.stop(); err != nil {
		return nil, err
	}
	r.serving = nil
	if wipe {
		if err := os.RemoveAll(r.cfg.DataDir); err != nil {
			return nil, fmt.Errorf("delete the directory: %w", err)
		}
	}
	p, err := r.begin(ctx, overdue, r.c.Overdue)
	if err != nil {
		return nil, err
	}
	defer p.stopReading()
	o := offer{timers: r.c.Overdue, rate: overdueRate, due: func(_ int, now time.Time) int64 { return now.UnixMilli() }}
	if err := r.schedule(ctx, p.batch, o); err != nil {
		return nil, err
	}
	st, err := r.launched(ctx, name, r.c.Pending)
	if err != nil {
		return nil, err
	}
	ready := time.Now()
	p.finish(ctx)
	if _, last := p.Span(); last.After(ready) {
		st.OverdueSeconds = last.Sub(ready).Seconds()
	}
	told := r.rep.add(&Phase{Name: overdue})
	told.late(p.batch, window{})
	return st, told.verify(p.batch)
}

// overdueRate is how many timers a second are scheduled while no instance runs.
const overdueRate = 100_000
