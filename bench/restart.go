package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/config"
)

// RestartConfig measures how long an instance takes to be ready with many
// pending timers, and what they cost. It starts instances of its own.
type RestartConfig struct {
	Common
	Pending int
	Overdue int           // timers that fall due while nobody runs, at each clean stop
	Ahead   time.Duration // pending timers are due between Ahead and twice that
}

// DefaultRestart returns the usual workload.
func DefaultRestart() RestartConfig {
	return RestartConfig{Common: DefaultCommon(), Pending: 2_000_000, Overdue: 1_000, Ahead: 24 * time.Hour}
}

func (c *RestartConfig) check() error {
	return errors.Join(c.checkBare(), wantTimers(c.Pending), wantAhead(c.Ahead),
		want(c.Overdue >= 0 && c.Overdue <= MaxTimers, "overdue", c.Overdue, fmt.Sprint("0 to ", MaxTimers)))
}

func wantAhead(d time.Duration) error {
	return want(d >= time.Hour, "ahead", d, "at least 1h: nothing of it may fire in the run")
}

// restart is a run whose instance is started again and again. It is a static member
// of a group of the run: its partitions are waiting for it, so the time to ready is
// the instance's own and not the group's session timeout.
type restart struct {
	*run
	c   RestartConfig
	cfg config.Config
	rep *Report
}

// RunRestart measures. The limit of a start without its directory is a plain consumer
// of the changelog.
func RunRestart(ctx context.Context, c RestartConfig) ([]*Report, error) {
	c.Local, c.Requests, c.Target = true, "", ""
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.workload(ctx, func(ctx context.Context, r *run) error {
		s := &restart{run: r, c: c, cfg: r.settings(), rep: r.report("restart")}
		s.rep.RatioIs, s.rep.CPURatioIs = "replayed a second without the directory / plain consumer", "of the service for an offset / of the consumer for a record"
		s.cfg.InstanceID, s.cfg.OnStop = r.name, config.Stay
		return s.measure(ctx)
	})
}

func (s *restart) measure(ctx context.Context) error {
	empty, err := s.begin(ctx, "empty", 0)
	if err != nil {
		return err
	}
	peak, err := s.fill(ctx)
	if err != nil {
		return err
	}
	s.serving.kill()
	if _, err := s.begin(ctx, "after kill -9", s.c.Pending); err != nil {
		return err
	}
	clean, err := s.again(ctx, "after a clean stop", "overdue, clean stop", false)
	if err != nil {
		return err
	}
	disk, err := diskUse(s.cfg.DataDir)
	if err != nil {
		return err
	}
	n := float64(s.c.Pending)
	s.rep.Sizes = &Sizes{
		Pending: s.c.Pending, Request: s.requestBytes(s.c.Pending), Disk: float64(disk) / n,
		Memory: float64(clean.RSS-empty.RSS) / n, PeakMemory: float64(peak-empty.RSS) / n,
	}
	s.rep.PeakRSS = peak
	consumer, err := s.consume(ctx)
	if err != nil {
		return err
	}
	noDirectory, err := s.again(ctx, "without its directory", "overdue, no directory", true)
	if err != nil {
		return err
	}
	records := float64(noDirectory.Replayed)
	s.rep.round(records/noDirectory.Seconds, consumer.PerSecond, &CPU{Own: noDirectory.CPU * 1e6 / records}, consumer.own())
	return nil
}

// consume measures a plain consumer of the changelog.
func (s *restart) consume(ctx context.Context) (*Phase, error) {
	n := s.c.Pending
	loop, err := s.newLoop(ctx, order{Kind: "read", Name: s.name + "-read", In: s.changelog(), Records: n})
	if err != nil {
		return nil, err
	}
	defer loop.end()
	m := &meter{run: s.run}
	m.start(loop.Pid())
	if err := loop.work(ctx, time.Now()); err != nil {
		return nil, err
	}
	m.stop()
	p := &Phase{Name: "plain consumer", Bare: true, Exact: Exactness{Scheduled: n, Received: n}}
	p.perSecond(n, m.begin.at, m.end.at)
	m.measure(p, n)
	s.rep.Phases = append(s.rep.Phases, p)
	return p, nil
}

// requestBytes is about what one request of so many holds.
func (r *run) requestBytes(timers int) int {
	headers := len(waterclock.HeaderAt) + len("1700000000000") + len(waterclock.HeaderTargetTopic) + len(r.target)
	return len(r.name) + len("-1-") + len(strconv.Itoa(timers)) + r.ValueBytes + headers
}

// fill schedules the pending timers and returns the peak of memory so far.
func (s *restart) fill(ctx context.Context) (peak int64, err error) {
	if err := s.scheduleFar(ctx, s.c.Pending, s.c.Ahead); err != nil {
		return 0, err
	}
	_, peak = memory(s.serving.pid())
	return peak, nil
}

// scheduleFar schedules timers that are not due in the run, and waits until they
// are taken in.
func (r *run) scheduleFar(ctx context.Context, timers int, ahead time.Duration) error {
	r.phases++
	l := newLedger(fmt.Sprintf("%s-%d-", r.name, r.phases), r.ValueBytes, 0)
	bar := r.bar("scheduling", timers)
	random := rand.New(rand.NewPCG(3, 4))
	err := r.schedule(ctx, l, offer{timers: timers, unbooked: true, due: func(i int, now time.Time) int64 {
		if i%1024 == 0 {
			_ = bar.Set(i)
		}
		return now.Add(ahead).UnixMilli() + random.Int64N(ahead.Milliseconds())
	}})
	if err != nil {
		return err
	}
	_ = bar.Finish()
	return r.awaitSettled(ctx)
}

// begin starts the instance and measures until it is ready.
func (s *restart) begin(ctx context.Context, name string, pending int) (*Start, error) {
	start := time.Now()
	i, err := s.launch(&s.cfg)
	if err != nil {
		return nil, err
	}
	s.serving = i
	if err := i.ready(ctx, s.partitions); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	st := Start{Name: name, Pending: pending, Seconds: time.Since(start).Seconds(), CPU: max(0, cpuTime(i.pid()).Seconds())}
	st.RSS, st.PeakRSS = memory(i.pid())
	if st.Replayed, err = i.metric(ctx, "waterclock_replayed_offsets_total"); err != nil {
		return nil, err
	}
	s.rep.Starts = append(s.rep.Starts, st)
	return &s.rep.Starts[len(s.rep.Starts)-1], nil
}

// again stops the instance in order, lets timers fall due meanwhile, and starts
// it, wiped of its directory or not. Each of those timers must then come once.
func (s *restart) again(ctx context.Context, name, overdue string, wipe bool) (*Start, error) {
	if err := s.serving.stop(); err != nil {
		return nil, err
	}
	s.serving = nil
	if wipe {
		if err := os.RemoveAll(s.cfg.DataDir); err != nil {
			return nil, fmt.Errorf("delete the directory: %w", err)
		}
	}
	l, col, err := s.phase(ctx, "overdue", s.c.Overdue)
	if err != nil {
		return nil, err
	}
	defer col.stop()
	o := offer{timers: s.c.Overdue, rate: overdueRate, due: func(_ int, now time.Time) int64 { return now.UnixMilli() }}
	if err := s.schedule(ctx, l, o); err != nil {
		return nil, err
	}
	l.close()
	st, err := s.begin(ctx, name, s.c.Pending)
	if err != nil {
		return nil, err
	}
	ready := time.Now()
	col.finish(ctx, s.bar("overdue", s.c.Overdue))
	if l.last.After(ready) {
		st.OverdueSeconds = l.last.Sub(ready).Seconds()
	}
	p := &Phase{Name: overdue}
	s.rep.Phases = append(s.rep.Phases, p)
	p.late(l, window{})
	return st, p.verify(l)
}

// overdueRate is how many timers a second are scheduled while nobody runs, and so
// nobody says how many are taken in.
const overdueRate = 100_000
