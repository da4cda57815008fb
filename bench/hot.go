package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/config"
)

// HotConfig measures one partition that gets everything, by the number of its sub-partitions.
type HotConfig struct {
	Common
	Timers int
	// Subs are the numbers of sub-partitions, one after the other, each with an instance of its own.
	// The first one is what the others are compared with.
	Subs []int
	// Start is how long an instance may take to start: timers are due that long after the last
	// one is sent, and longer where there are many.
	Start time.Duration
}

// DefaultHot returns the usual workload.
func DefaultHot() HotConfig {
	return HotConfig{Common: DefaultCommon(), Timers: 200_000, Subs: []int{1, 2, 4}, Start: 15 * time.Second}
}

func (c *HotConfig) check() error {
	errs := []error{
		c.Common.check(), wantTimers(c.Timers), wantSpan("start", c.Start),
		want(c.Local, "local", c.Local, "true: each number has an instance of its own"),
		want(c.Requests == "", "requests", c.Requests, "to be empty: the run makes a topic of one partition"),
		want(len(c.Subs) > 0, "sub-partitions", "", "at least one"),
	}
	for _, n := range c.Subs {
		errs = append(errs, want(n >= 1 && n <= config.MaxSubPartitions, "sub-partitions", n, fmt.Sprint("1 to ", config.MaxSubPartitions)))
	}
	return errors.Join(errs...)
}

// RunHot measures how fast one partition takes in requests that wait in its log, and then fires timers that
// are all due, next to a pass-through of 1 record in and 1 out of one partition.
func RunHot(ctx context.Context, c HotConfig) ([]*Report, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.workload(ctx, func(ctx context.Context, r *run) error {
		if err := r.onePartition(ctx); err != nil {
			return err
		}
		rep := r.report("hot")
		most, err := r.limit(ctx, rep, oneToOne)
		if err != nil {
			return err
		}
		for range c.Rounds {
			var first hotRates
			for _, n := range c.Subs {
				at, err := r.hot(ctx, rep, c, n)
				if err != nil {
					return err
				}
				rep.ratio(fmt.Sprintf("requests a second with %d sub-partitions / bare 1:1", n), at.requests, most.perSecond)
				rep.ratio(fmt.Sprintf("firings a second with %d sub-partitions / bare 1:1", n), at.firings, most.perSecond)
				if first == (hotRates{}) {
					first = at
					continue
				}
				rep.ratio(fmt.Sprintf("requests a second with %d sub-partitions / %d", n, c.Subs[0]), at.requests, first.requests)
				rep.ratio(fmt.Sprintf("firings a second with %d sub-partitions / %d", n, c.Subs[0]), at.firings, first.firings)
			}
		}
		return nil
	})
}

// hotRates are a second.
type hotRates struct{ requests, firings float64 }

// hotOffer is how many timers a second are put into the log while nobody runs, and hotTake how
// many are taken in at least.
const hotOffer, hotTake = 100_000, 10_000

// onePartition has the run serve a request topic of one partition. So has the topic that pass-throughs read, and
// those that they write: all of their loops read from one log and write to one.
func (r *run) onePartition(ctx context.Context) (err error) {
	r.Partitions, r.partitions = 1, 1
	r.requests, err = r.makeTopic(ctx, "hot")
	return err
}

// hot measures one number of sub-partitions. The requests wait in the log when the instance
// starts, and the timers are in memory when they fall due.
func (r *run) hot(ctx context.Context, rep *Report, c HotConfig, subs int) (rates hotRates, err error) {
	timers := c.Timers
	r.cfg.SubPartitions = subs
	if err := r.serveWarm(ctx); err != nil { // the group, topics and brokers know it then
		return rates, err
	}
	if err := r.unserve(); err != nil {
		return rates, err
	}
	name := fmt.Sprintf("%d sub-partitions", subs)
	l, col, err := r.phase(ctx, name, timers)
	if err != nil {
		return rates, err
	}
	defer col.stop()
	due := time.Now().Add(c.Start + time.Duration(timers)*(time.Second/hotOffer+time.Second/hotTake)).Truncate(time.Millisecond)
	if err := r.schedule(ctx, l, offer{timers: timers, rate: hotOffer, due: func(int, time.Time) int64 { return due.UnixMilli() }}); err != nil {
		return rates, err
	}
	l.close()
	before, err := r.settled(ctx)
	if err != nil {
		return rates, err
	}
	if err := r.launchNow(); err != nil {
		return rates, err
	}
	taken, err := r.drain(ctx, rep, name, timers, before)
	if err != nil {
		return rates, err
	}
	if !time.Now().Before(due) {
		return rates, fmt.Errorf("hot: %d timers were not taken in before they fell due: try fewer", timers)
	}
	sleepUntil(ctx, due)
	m := &meter{run: r}
	stop := r.profile("firings " + name)
	m.start(r.serving.pid())
	col.finish(ctx, r.bar(name, timers))
	m.stop()
	stop()
	p := &Phase{Name: "firings, " + name}
	rep.Phases = append(rep.Phases, p)
	m.measure(p, timers)
	p.perSecond(timers, due, l.last)
	_, p.PeakRSS = memory(r.serving.pid())
	p.late(l, window{})
	if err := p.verify(l); err != nil {
		return rates, err
	}
	return hotRates{taken.PerSecond, p.PerSecond}, r.unserve()
}

// launchNow starts the run's instance, and does not wait for it.
func (r *run) launchNow() (err error) {
	cfg := r.settings()
	r.serving, err = r.launch(&cfg)
	return err
}

// drain waits until all requests are taken in, and measures from when the first ones were.
func (r *run) drain(ctx context.Context, rep *Report, name string, timers int, before int64) (*Phase, error) {
	end, err := r.logEnd(ctx)
	if err != nil {
		return nil, err
	}
	m := &meter{run: r}
	t := time.NewTicker(settledPoll)
	defer t.Stop()
	first, stop := int64(0), func() {}
	defer func() { stop() }()
	for {
		n, err := r.settled(ctx)
		if err != nil {
			return nil, err
		}
		if n > before && first == 0 {
			first, stop = n, r.profile("requests "+name)
			m.start(r.serving.pid())
		}
		if n >= end {
			break
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %d requests to be taken in, %d are: %w", end, n, ctx.Err())
		case <-t.C:
		}
	}
	m.stop()
	p := &Phase{Name: "requests, " + name, Exact: Exactness{Scheduled: timers}}
	rep.Phases = append(rep.Phases, p)
	m.measure(p, int(max(1, end-first)))
	p.perSecond(int(end-first), m.begin.at, m.end.at)
	return p, nil
}
