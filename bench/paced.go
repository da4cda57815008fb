package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/node/config"
)

const (
	// pacedOver is the time over which a rate must be kept.
	pacedOver = 10 * time.Second
	// pacedSpeed is how many timers a second are certainly taken in, so that a burst is known before it is due.
	pacedSpeed = 2_000
)

// PacedConfig measures a burst at a target that has a rate, and how late steady timers to another target are meanwhile.
type PacedConfig struct {
	SteadyConfig // its one rate is that of the others
	Timers       int
	TargetRate   int // firings a second
}

// DefaultPaced returns the usual workload.
func DefaultPaced() PacedConfig {
	c := PacedConfig{SteadyConfig: DefaultSteady(), Timers: 20_000, TargetRate: 500}
	c.Rates, c.Local = []float64{1_000}, true
	return c
}

func (pc *PacedConfig) check() error {
	lasts := seconds(float64(pc.Timers) / float64(max(1, pc.TargetRate)))
	needs := max(pc.lead()+pc.Duration, 2*pacedOver)
	return errors.Join(pc.SteadyConfig.check(), pc.checkOwn(), wantTimers(pc.Timers),
		between("rates", 1, 1, len(pc.Rates)),
		between("target-rate", 1, config.MaxTargetRate, pc.TargetRate),
		want(lasts >= needs, "timers", pc.Timers, fmt.Sprintf("so many that they take %s at %d a second, or more",
			needs, pc.TargetRate)))
}

// measure compares how late the steady timers are in three phases: beside the burst, beside as many timers that no rate
// holds back, and alone.
func (pc *PacedConfig) measure(ctx context.Context, r *run) error {
	free, err := r.makeTopic(ctx, "unpaced")
	if err != nil {
		return err
	}
	held, err := r.makeTopic(ctx, "paced")
	if err != nil {
		return err
	}
	r.more, r.rates = []string{free, held}, []config.TargetRate{{Glob: held, N: pc.TargetRate, Unit: "s"}}
	rep := r.report("paced", "p99 of others by receipt, beside the burst / beside as many timers without a rate",
		"of others, beside the burst / beside as many timers without a rate")
	rep.Rate = float64(pc.TargetRate)
	return pc.rounds(func() error {
		if err := serveWarm(ctx, r); err != nil {
			return err
		}
		alone, err := pc.paced(ctx, r, rep, pc.Rates[0], "others alone")
		if err != nil {
			return err
		}
		unpaced, err := pc.beside(ctx, r, rep, free, time.Second/time.Duration(pc.TargetRate))
		if err != nil {
			return err
		}
		paced, err := pc.beside(ctx, r, rep, held, 0)
		if err != nil {
			return err
		}
		rep.round(paced.ByReceipt.P99, unpaced.ByReceipt.P99, paced.CPU, unpaced.CPU.own())
		rep.ratio("p99 of others by receipt / alone", paced.ByReceipt.P99, alone.ByReceipt.P99)
		rep.ratio("p50 of others by receipt / beside as many timers without a rate", paced.ByReceipt.P50,
			unpaced.ByReceipt.P50)
		return nil
	})
}

// pacedBurst has the timers that fire beside the others: a burst to the target with the rate, or as many timers that
// fall due one after the other, as fast as that rate.
type pacedBurst struct {
	*phase
	c   *PacedConfig
	due time.Time

	mu sync.Mutex
	at []time.Time // timestamps of emissions; guarded by mu
}

// beside measures the others while further timers fire to a topic. These fall due one after the other, at the interval
// every; if it is 0, they are a burst. beside returns when all have fired.
func (pc *PacedConfig) beside(ctx context.Context, r *run, rep *Report, topic string, every time.Duration) (
	*Phase, error) {
	name := "paced burst"
	if every > 0 {
		name = "unpaced"
	}
	b, err := pc.begin(ctx, r, name, topic, every)
	if err != nil {
		return nil, err
	}
	defer b.stopReading()
	others, err := pc.paced(ctx, r, rep, pc.Rates[0], "beside "+name)
	if err != nil {
		return nil, err
	}
	if b.Received() >= pc.Timers {
		return nil, fmt.Errorf("%s: all had fired before the others were measured: set --timers to more than %d", name,
			pc.Timers)
	}
	b.finish(ctx)
	return others, b.tell(rep, every == 0)
}

// begin sends the timers, and returns a second after the first is due.
func (pc *PacedConfig) begin(ctx context.Context, r *run, name, topic string, every time.Duration) (
	b *pacedBurst, err error) {
	b = &pacedBurst{c: pc}
	r.receive = func(got history.Received) {
		if got.Record.Topic == topic {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.at = append(b.at, got.Record.Timestamp)
		}
	}
	if b.phase, err = r.collect(ctx, name, topic, r.nextBatch(pc.Timers), pc.Timers); err != nil {
		return nil, err
	}
	b.due = time.Now().Add(burstLead + seconds(float64(pc.Timers)/pacedSpeed)).Truncate(time.Millisecond)
	err = r.schedule(ctx, b.batch, offer{timers: pc.Timers, target: topic,
		due: func(i int, _ time.Time) int64 { return b.due.Add(time.Duration(i) * every).UnixMilli() }})
	if err == nil {
		err = r.awaitSettled(ctx)
	}
	if err == nil && !time.Now().Before(b.due) {
		err = fmt.Errorf("%s: %d timers fell due before they were taken in: try fewer", name, pc.Timers)
	}
	if err != nil {
		b.stopReading()
		return nil, err
	}
	sleepUntil(ctx, b.due)
	beats.Sleep(ctx, time.Second) // what was in the bucket has gone
	return b, nil
}

// tell verifies the timers. It reports how well the rate was kept, in all spans of pacedOver that begin when the bucket
// is empty.
func (p *pacedBurst) tell(rep *Report, paced bool) error {
	told := rep.add(&Phase{Name: p.name, Rate: float64(p.c.TargetRate)})
	_, last := p.Span()
	told.Seconds = last.Sub(p.due).Seconds()
	if err := told.verify(p.batch); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortFunc(p.at, time.Time.Compare)
	least, most := within(p.at[min(len(p.at)-1, p.c.TargetRate):], pacedOver)
	told.Note = fmt.Sprintf("%d to %d in %s, want %d", least, most, pacedOver, p.c.TargetRate*int(pacedOver.Seconds()))
	if !paced {
		return nil
	}
	full := float64(p.c.TargetRate) * pacedOver.Seconds()
	rep.ratio(fmt.Sprintf("most in %s / the rate", pacedOver), float64(most), full)
	rep.ratio(fmt.Sprintf("least in %s / the rate", pacedOver), float64(least), full)
	return nil
}

// within returns how many of ascending times lie in a span of some length at least, and at most. Spans begin at a time,
// and end before the last one.
func within(at []time.Time, length time.Duration) (least, most int) {
	least, end := len(at), 0
	for i, from := range at {
		if at[len(at)-1].Sub(from) < length {
			break
		}
		for at[end].Sub(from) < length {
			end++
		}
		least, most = min(least, end-i), max(most, end-i)
	}
	return least, most
}
