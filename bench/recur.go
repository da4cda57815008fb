package bench

import (
	"context"
	"fmt"
	"math"
	"time"
)

// recurSettle is how long after the last first firing of recurring timers the measured
// time begins: what came with scheduling them is over.
const recurSettle = time.Second

// recurring is how many timers of the interval make a rate.
func (c *SteadyConfig) recurring(rate float64) int {
	return max(1, int(math.Round(rate*c.Every.Seconds())))
}

// occurrences is how many each of them has: so many that the first one of them goes on to
// the end of the measured time, which begins when the last one has fired once.
func (c *SteadyConfig) occurrences() int {
	return 2 + int(math.Ceil(float64(recurSettle+c.Duration)/float64(c.Every)))
}

// recur measures recurring timers that make the same rate of firings as plain ones that
// were measured before. They are scheduled at that rate too, for as long as an interval,
// so their firings are spread over it.
func (r *run) recur(ctx context.Context, rep *Report, c SteadyConfig, rate float64, plain *Phase) error {
	p := &Phase{Name: fmt.Sprintf("%.0f/s every %s", rate, c.Every), Rate: rate}
	timers, last := c.recurring(rate), c.occurrences()
	led, col, err := r.phase(ctx, p.Name, timers*last)
	if err != nil {
		return err
	}
	defer col.stop()
	defer r.profile(p.Name)()
	led.timers = timers
	for range timers * last {
		led.schedule(math.MaxInt64 - 1) // until it is sent
	}
	from := time.Now().Add(c.Least + c.Every + recurSettle)
	w := window{from, from.Add(c.Duration)}
	m := &meter{run: r}
	over := r.meterDuring(ctx, m, r.serving.pid(), w)
	err = r.schedule(ctx, led, offer{timers: timers, rate: rate, every: c.Every, last: last, due: func(_ int, now time.Time) int64 {
		return now.Add(c.Least).UnixMilli()
	}})
	if err != nil {
		return err
	}
	led.close()
	col.finish(ctx, r.bar(p.Name, timers*last))
	<-over
	rep.Phases = append(rep.Phases, p)
	p.late(led, w)
	m.measure(p, led.receivedIn(w))
	_, p.PeakRSS = memory(r.serving.pid())
	if err := p.verify(led); err != nil {
		return fmt.Errorf("%s: %w", rep.Workload, err)
	}
	rep.ratio("p99 by receipt of recurring timers / of plain ones", p.ByReceipt.P99, plain.ByReceipt.P99)
	rep.ratio("p50 by receipt of recurring timers / of plain ones", p.ByReceipt.P50, plain.ByReceipt.P50)
	rep.ratio("of the service for a firing / for a plain timer", p.own(), plain.own())
	return nil
}
