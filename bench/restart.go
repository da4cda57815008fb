package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/config"
)

// RestartConfig measures how long an instance takes to be ready with many
// pending timers, and what they cost.
type RestartConfig struct {
	Common
	// Command starts an instance: the program and its first arguments; flags
	// that follow name brokers, topics, group, folders and address.
	Command []string
	Pending int
	Overdue int           // timers that fall due while nobody runs, at each clean stop
	Ahead   time.Duration // pending timers are due between Ahead and twice that
	Dir     string        // an empty folder for the store and the log
}

// DefaultRestart returns the usual workload.
func DefaultRestart() RestartConfig {
	return RestartConfig{Common: DefaultCommon(), Pending: 2_000_000, Overdue: 1_000, Ahead: 24 * time.Hour}
}

func (c *RestartConfig) check() error {
	return errors.Join(c.checkTopics(), wantTimers(c.Pending),
		want(c.Overdue >= 0 && c.Overdue <= MaxTimers, "overdue", c.Overdue, fmt.Sprint("0 to ", MaxTimers)),
		want(c.Ahead >= time.Hour, "ahead", c.Ahead, "at least 1h: nothing of it may fire in the run"),
		want(len(c.Command) > 0, "command", "", "a program"), want(c.Dir != "", "dir", "", "a folder"))
}

// restart is a run with its instance. Starts are those of a static member: its
// partitions are waiting for it, so the time to ready is the instance's own and
// not the group's session timeout.
type restart struct {
	*run
	c   RestartConfig
	cfg config.Config
	rep *Report
	now *child // the instance that runs
}

// RunRestart measures. It returns the report also with ErrInexact.
func RunRestart(ctx context.Context, c RestartConfig) (*Report, error) {
	c.Serve, c.Requests, c.Target = nil, "", ""
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.workload(ctx, "restart", func(ctx context.Context, r *run, rep *Report) error {
		s := &restart{run: r, c: c, cfg: *c.Cluster, rep: rep}
		s.cfg.Requests, s.cfg.Targets, s.cfg.Group = []string{r.requests}, []string{r.target}, r.name
		s.cfg.InstanceID, s.cfg.OnStop, s.cfg.DataDir = r.name, config.Stay, filepath.Join(c.Dir, "data")
		r.group = r.name
		r.stop = func() error {
			if s.now != nil {
				s.now.kill()
			}
			return nil
		}
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
	s.now.kill()
	if _, err := s.begin(ctx, "after kill -9", s.c.Pending); err != nil {
		return err
	}
	clean, err := s.again(ctx, "after a clean stop", false)
	if err != nil {
		return err
	}
	disk, err := diskUse(s.cfg.DataDir)
	if err != nil {
		return err
	}
	n := float64(s.c.Pending)
	s.rep.Sizes = &Sizes{
		Pending: s.c.Pending, Request: s.requestBytes(), Disk: float64(disk) / n,
		Memory: float64(clean.RSS-empty.RSS) / n, PeakMemory: float64(peak-empty.RSS) / n,
	}
	_, err = s.again(ctx, "without its folder", true)
	return err
}

// requestBytes is about what one request holds.
func (s *restart) requestBytes() int {
	headers := len(waterclock.HeaderAt) + len("1700000000000") + len(waterclock.HeaderTargetTopic) + len(s.target)
	return len(s.name) + len("-1-") + len(strconv.Itoa(s.c.Pending)) + s.ValueBytes + headers
}

// fill schedules the pending timers and returns the peak of memory so far.
func (s *restart) fill(ctx context.Context) (peak int64, err error) {
	l := newLedger(s.name+"-1-", s.ValueBytes, s.c.Pending)
	bar := s.bar("scheduling", s.c.Pending)
	random := rand.New(rand.NewPCG(3, 4))
	err = s.schedule(ctx, l, offer{timers: s.c.Pending, due: func(_ int, now time.Time) int64 {
		return now.Add(s.c.Ahead).UnixMilli() + random.Int64N(s.c.Ahead.Milliseconds())
	}})
	if err != nil {
		return 0, err
	}
	if err := s.awaitSettled(ctx, func(n int64) { _ = bar.Set64(n) }); err != nil {
		return 0, err
	}
	_ = bar.Finish()
	_, peak = s.now.memory()
	return peak, nil
}

// begin starts the instance and measures until it is ready.
func (s *restart) begin(ctx context.Context, name string, pending int) (*Start, error) {
	start := time.Now()
	c, err := launch(s.c.Command, &s.cfg, filepath.Join(s.c.Dir, "instance.log"))
	if err != nil {
		return nil, err
	}
	s.now = c
	if err := c.ready(ctx, s.partitions); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	st := Start{Name: name, Pending: pending, Seconds: time.Since(start).Seconds()}
	st.RSS, st.PeakRSS = c.memory()
	if st.Replayed, err = c.metric(ctx, "waterclock_replayed_offsets_total"); err != nil {
		return nil, err
	}
	s.rep.Starts = append(s.rep.Starts, st)
	return &s.rep.Starts[len(s.rep.Starts)-1], nil
}

// again stops the instance in order, lets timers fall due meanwhile, and starts
// it, wiped of its folder or not. Each of those timers must then come once.
func (s *restart) again(ctx context.Context, name string, wipe bool) (*Start, error) {
	if err := s.now.term(); err != nil {
		return nil, err
	}
	if wipe {
		if err := os.RemoveAll(s.cfg.DataDir); err != nil {
			return nil, fmt.Errorf("delete the folder: %w", err)
		}
	}
	l, col, err := s.phase(ctx, "overdue", s.c.Overdue)
	if err != nil {
		return nil, err
	}
	defer col.stop()
	if err := s.schedule(ctx, l, offer{timers: s.c.Overdue, due: func(_ int, now time.Time) int64 { return now.UnixMilli() }}); err != nil {
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
	return st, s.rep.add(l, Phase{Name: "overdue " + name, Note: "due while nobody ran"}, ready, true)
}
