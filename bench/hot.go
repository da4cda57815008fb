package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/node/config"
)

// HotConfig measures one partition that gets all requests, by the number of its sub-partitions.
type HotConfig struct {
	Common
	Timers int
	// Subs are the numbers of sub-partitions, each of which gets an instance of its own. All are compared with the
	// first one.
	Subs []int
	// Start is how long an instance may take to start. Timers are due that long after the last one is sent, or longer
	// if there are many.
	Start time.Duration
}

// DefaultHot returns the usual workload.
func DefaultHot() HotConfig {
	return HotConfig{Common: DefaultCommon(), Timers: 200_000, Subs: []int{1, 2, 4}, Start: 15 * time.Second}
}

func (h *HotConfig) check() error {
	return errors.Join(h.checkOwn(), wantTimers(h.Timers), between("start", 0, time.Hour, h.Start),
		between("sub-partitions", 1, config.MaxSubPartitions, h.Subs...))
}

// measure measures how fast one partition accepts requests that wait in its log, and then fires timers that are all
// due. It compares both with a 1:1 pass-through of one partition.
func (h *HotConfig) measure(ctx context.Context, r *run) (err error) {
	// All loops of the pass-through read from one log and write to one log, too.
	r.Partitions, r.partitions = 1, 1
	if r.requests, err = r.makeTopic(ctx, "hot"); err != nil {
		return err
	}
	rep := r.report("hot", "", "")
	most, err := r.bare.limit(ctx, rep, oneToOne)
	if err != nil {
		return err
	}
	return h.rounds(func() error {
		var first []*Phase
		for _, n := range h.Subs {
			told, err := h.sub(ctx, r, rep, n)
			if err != nil {
				return err
			}
			if first == nil {
				first = told
			}
			for i, what := range []string{"requests", "firings"} {
				name := fmt.Sprintf("%s a second with %d sub-partitions / ", what, n)
				rep.ratio(name+"bare 1:1", told[i].PerSecond, most.perSecond)
				if n != h.Subs[0] {
					rep.ratio(fmt.Sprint(name, h.Subs[0]), told[i].PerSecond, first[i].PerSecond)
				}
			}
		}
		return nil
	})
}

// hotOffer is the rate at which timers are written to the log while no instance runs, and hotTake the lowest rate at
// which they are accepted, both per second.
const hotOffer, hotTake = 100_000, 10_000

// sub measures requests and firings with one number of sub-partitions. The requests are in the log when the instance
// starts, and the timers are in memory when they fall due.
func (h *HotConfig) sub(ctx context.Context, r *run, rep *Report, subs int) ([]*Phase, error) {
	r.cfg.SubPartitions = subs
	if err := serveWarm(ctx, r); err != nil { // warms group, topics and brokers up
		return nil, err
	}
	if err := r.unserve(); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d sub-partitions", subs)
	p, err := r.begin(ctx, "firings, "+name, h.Timers)
	if err != nil {
		return nil, err
	}
	defer p.stopReading()
	due := time.Now().Add(h.Start + time.Duration(h.Timers)*(time.Second/hotOffer+time.Second/hotTake)).Truncate(
		time.Millisecond)
	if err := r.schedule(
		ctx, p.batch, offer{timers: h.Timers, rate: hotOffer,
			due: func(int, time.Time) int64 { return due.UnixMilli() }}); err != nil {
		return nil, err
	}
	before, err := r.settled(ctx)
	if err != nil {
		return nil, err
	}
	if r.serving, err = r.launch(r.settings()); err != nil {
		return nil, err
	}
	taken, err := drain(ctx, r, "requests, "+name, h.Timers, before)
	if err != nil {
		return nil, err
	}
	rep.add(taken)
	stop := r.profile(p.name)
	fired, err := p.fireAt(ctx, rep, due)
	stop()
	if err != nil {
		return nil, err
	}
	return []*Phase{taken, fired}, r.unserve()
}

// drain waits until all requests have been accepted, and measures from the first accepted ones on.
func drain(ctx context.Context, r *run, name string, timers int, before int64) (*Phase, error) {
	m := &meter{r: r}
	first, last, stop := int64(0), int64(0), func() {}
	err := r.awaitTakenIn(ctx, func(n int64) {
		if last = n; n > before && first == 0 {
			first, stop = n, r.profile(name)
			m.start(r.serving.pid())
		}
	})
	stop()
	if err != nil {
		return nil, err
	}
	m.stop()
	p := &Phase{Name: name, Exact: history.Counts{Scheduled: timers}}
	m.measure(p, int(max(1, last-first)))
	p.perSecond(int(last-first), m.begin.at, m.end.at)
	return p, nil
}
