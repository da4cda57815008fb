package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// ThroughputConfig measures how many lives of timers, and how many firings, a
// second go through.
type ThroughputConfig struct {
	Common
	Timers int // of the whole lives
	// Each is due within Spread of being sent, evenly. It counts in the time
	// that all take, so it should be short against that.
	Spread time.Duration
	Burst  int // timers that are due at one moment; 0 for no burst
	Rounds int // how often all is repeated, to see how even the machine is
	Step   int // of the pass-through
	IDs    int // transactional IDs in turn, of the pass-through
}

// DefaultThroughput returns the usual workload.
func DefaultThroughput() ThroughputConfig {
	return ThroughputConfig{Common: DefaultCommon(), Timers: 500_000, Spread: time.Second, Burst: 200_000, Rounds: 1, Step: 20_000, IDs: 4}
}

func (c *ThroughputConfig) pass() PassConfig {
	return PassConfig{Common: c.Common, Records: c.Timers, Step: c.Step, IDs: c.IDs, Fanouts: []int{1, 3}}
}

func (c *ThroughputConfig) check() error {
	pass := c.pass()
	return errors.Join(pass.check(), c.Common.check(),
		want(c.Spread >= 0 && c.Spread <= time.Hour, "spread", c.Spread, "0 to 1h"),
		want(c.Burst >= 0 && c.Burst <= MaxTimers, "burst", c.Burst, fmt.Sprint("0 to ", MaxTimers)),
		want(c.Rounds >= 1 && c.Rounds <= 100, "rounds", c.Rounds, "1 to 100"))
}

// RunThroughput measures the pass-throughs and then the whole path. It returns
// the report also with ErrInexact.
func RunThroughput(ctx context.Context, c ThroughputConfig) (*Report, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.workload(ctx, "throughput", func(ctx context.Context, r *run, rep *Report) (err error) {
		for range c.Rounds {
			if err = r.throughput(ctx, rep, c); err != nil {
				break
			}
		}
		one, three := rep.mean("pass-through 1:1"), rep.mean("pass-through 1:3")
		rep.ratio("whole lives / pass-through 1:3", rep.mean("whole lives"), three)
		rep.ratio("taking in / pass-through 1:1", rep.mean("taking in"), one)
		rep.ratio("burst / pass-through 1:1", rep.mean("burst"), one)
		return err
	})
}

func (r *run) throughput(ctx context.Context, rep *Report, c ThroughputConfig) error {
	if err := r.passes(ctx, rep, c.pass()); err != nil {
		return err
	}
	if err := r.lives(ctx, rep, Phase{Name: "whole lives"}, c.Timers, 0, c.Spread); err != nil || c.Burst == 0 {
		return err
	}
	return r.burst(ctx, rep, c.Burst)
}

// lives schedules timers that fall due while others are still scheduled.
func (r *run) lives(ctx context.Context, rep *Report, p Phase, timers int, least, spread time.Duration) error {
	l, col, err := r.phase(ctx, p.Name, timers)
	if err != nil {
		return err
	}
	defer col.stop()
	bar := r.bar(p.Name, timers)
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Now()
	err = r.schedule(ctx, l, offer{timers: timers, rate: p.Rate, due: func(_ int, now time.Time) int64 {
		return now.Add(least).UnixMilli() + 1 + random.Int64N(1+spread.Milliseconds())
	}})
	if err != nil {
		return err
	}
	l.close()
	col.finish(ctx, bar)
	return rep.add(l, p, start, true)
}

// burst schedules timers that are all due at one moment, ahead of it: so it
// measures taking in and firing apart.
func (r *run) burst(ctx context.Context, rep *Report, timers int) error {
	l, col, err := r.phase(ctx, "burst", timers)
	if err != nil {
		return err
	}
	defer col.stop()
	bar := r.bar("taking in", timers)
	start := time.Now()
	before, err := r.logEnd(ctx)
	if err != nil {
		return err
	}
	// The moment: as long as the life of as many timers took, and a bit.
	lead := 3*time.Second + time.Duration(float64(timers)/max(1000, rep.mean("whole lives"))*float64(time.Second))
	due := start.Add(lead).Truncate(time.Millisecond)
	if err := r.schedule(ctx, l, offer{timers: timers, due: func(int, time.Time) int64 { return due.UnixMilli() }}); err != nil {
		return err
	}
	l.close()
	if err := r.awaitSettled(ctx, func(n int64) { _ = bar.Set64(max(0, n-before)) }); err != nil {
		return err
	}
	_ = bar.Finish()
	taken := Phase{Name: "taking in", Seconds: time.Since(start).Seconds(), Exact: Exactness{Scheduled: timers}}
	taken.PerSecond = float64(timers) / taken.Seconds
	note := ""
	if !time.Now().Before(due) {
		note, taken.Note = "began before all was taken in", "not over when the burst was due"
	}
	rep.Phases = append(rep.Phases, taken)
	col.finish(ctx, r.bar("burst", timers))
	return rep.add(l, Phase{Name: "burst", Note: note}, due, true)
}

// phase opens a ledger and its consumer.
func (r *run) phase(ctx context.Context, name string, timers int) (*ledger, *collector, error) {
	r.phases++
	l := newLedger(fmt.Sprintf("%s-%d-", r.name, r.phases), r.ValueBytes, timers)
	r.ledgers = append(r.ledgers, l)
	col, err := r.collect(ctx, r.target, l)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return l, col, nil
}

// add completes a phase that began at start (zero: at the first receipt) from
// its ledger.
func (rep *Report) add(l *ledger, p Phase, start time.Time, late bool) error {
	p.Exact = l.result()
	if start.IsZero() {
		start = l.first
	}
	if p.Seconds = l.last.Sub(start).Seconds(); p.Seconds > 0 && p.Rate == 0 {
		p.PerSecond = float64(p.Exact.Received) / p.Seconds
	}
	if late {
		p.ByTimestamp, p.ByReceipt = l.byStamp.lateness(), l.byClock.lateness()
	}
	rep.Phases = append(rep.Phases, p)
	return p.Exact.err(p.Name)
}

// mean is the average throughput of the phases of a name.
func (rep *Report) mean(name string) float64 {
	sum, n := 0.0, 0
	for i := range rep.Phases {
		if rep.Phases[i].Name == name {
			sum += rep.Phases[i].PerSecond
			n++
		}
	}
	return sum / float64(max(n, 1))
}
