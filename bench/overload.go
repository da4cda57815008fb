package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
)

// OverloadConfig measures instances that are offered more timers than they can handle: first 0.8 of their capacity,
// then twice their capacity, then nothing until they have caught up, then 0.8 again.
type OverloadConfig struct {
	Common
	Lives
	Capacity float64       // timers a second; 0 measures it first, in the same run
	Timers   int           // number of timers that measure it
	Before   time.Duration // how long 0.8 of the capacity is offered, before and after
	Over     time.Duration // how long twice the capacity is offered
}

const (
	overBefore, overFactor = 0.8, 2.0 // of the capacity
	// overAgain is the time after the end of an overload by which lateness should be as it was before.
	overAgain = 10 * time.Second
)

// DefaultOverload returns the usual workload.
func DefaultOverload() OverloadConfig {
	return OverloadConfig{
		Common: DefaultCommon(), Timers: 500_000, Before: 20 * time.Second, Over: time.Minute,
		Lives: Lives{Least: 2 * time.Second, Spread: 4 * time.Second},
	}
}

func (oc *OverloadConfig) check() error {
	return errors.Join(
		oc.checkOwn(), wantTimers(oc.Timers), oc.Lives.check(),
		between("capacity", 0, MaxRate/overFactor, oc.Capacity), between("over", time.Millisecond, time.Hour, oc.Over),
		want(oc.Before > oc.lead() && oc.Before <= time.Hour, "before", oc.Before,
			"more than least and spread, at most 1h"))
}

// overload is one run of the workload.
type overload struct {
	*run
	c        *OverloadConfig
	rep      *Report
	capacity float64 // timers a second

	all   *stream
	watch *watch
}

// stream is a stream of timers whose rate changes.
type stream struct {
	*phase
	due  func(int, time.Time) int64
	sent int // timers
}

func (oc *OverloadConfig) measure(ctx context.Context, r *run) error {
	o := &overload{run: r, c: oc, rep: r.report("overload", "", ""), capacity: oc.Capacity}
	if err := serveWarm(ctx, o.run); err != nil {
		return err
	}
	if o.capacity == 0 {
		if err := o.measureCapacity(ctx); err != nil {
			return err
		}
	}
	return o.overload(ctx)
}

// open begins a stream.
func (o *overload) open(ctx context.Context, name string, timers int) (s *stream, err error) {
	s = &stream{due: o.c.due()}
	s.phase, err = o.collect(ctx, name, o.target, o.nextBatch(0).open(timers), timers)
	return s, err
}

// measureCapacity measures how many timers a second the instance can handle.
func (o *overload) measureCapacity(ctx context.Context) error {
	s, err := o.open(ctx, "capacity", o.c.Timers)
	if err != nil {
		return err
	}
	p, err := s.phase.capacity(ctx, o.rep, s.offer(o.c.Timers, 0), o.c.Lives)
	if err == nil {
		o.capacity = p.PerSecond
	}
	return err
}

// offer returns the next timers of the stream, at a rate; 0 for as fast as they are accepted.
func (s *stream) offer(timers int, rate float64) offer {
	first := s.sent
	s.sent += timers
	return offer{timers: timers, rate: rate, first: first, due: s.due}
}

// produce offers a share of the capacity for a time.
func (o *overload) produce(ctx context.Context, share float64) (window, error) {
	d, w := o.c.Before, window{from: time.Now()}
	if share == overFactor {
		d = o.c.Over
	}
	rate := share * o.capacity
	err := o.schedule(ctx, o.all.batch, o.all.offer(timersIn(rate, d), rate))
	w.to = time.Now()
	return w, err
}

// overload makes the overload. It measures the time before, the overload, the time until all requests are accepted, and
// the time after.
func (o *overload) overload(ctx context.Context) (err error) {
	o.all, err = o.open(ctx, "overload", timersIn(o.capacity, overFactor*o.c.Over+2*o.c.Before))
	if err != nil {
		return err
	}
	defer o.all.stopReading()
	o.watch = &watch{o: o}
	o.watch.stop = background(ctx, o.watch.run)
	defer o.watch.stop()
	defer o.profile("overload")()

	before, err := o.produce(ctx, overBefore)
	if err != nil {
		return err
	}
	over, err := o.produce(ctx, overFactor)
	if err := errors.Join(err, o.awaitSettled(ctx)); err != nil {
		return err
	}
	drain := window{over.to, time.Now()}
	after, err := o.produce(ctx, overBefore)
	if err != nil {
		return err
	}
	if err := errors.Join(o.awaitSettled(ctx), o.atRest(ctx)); err != nil {
		return err
	}
	o.all.finish(ctx)
	o.watch.stop()
	before.from, after.from = before.from.Add(o.c.lead()), drain.to.Add(min(overAgain, o.c.Before/2))
	return o.tell(before, over, drain, after)
}

// atRest waits until no timer is pending.
func (o *overload) atRest(ctx context.Context) error {
	n := int64(0)
	return poll(ctx, settledPoll, func() (_ bool, err error) {
		n, err = o.serving.metric(ctx, "waterclock_pending_timers")
		return n == 0, err
	}, func() error { return fmt.Errorf("wait for %d pending timers: %w", n, ctx.Err()) })
}

// tell adds the figures to the report.
func (o *overload) tell(before, over, drain, after window) error {
	rep := o.rep
	b := o.tellPhase("at 0.8 of the capacity", before, overBefore)
	at := o.tellPhase("at twice the capacity", over, overFactor)
	d := o.tellPhase("until caught up", drain, 0)
	a := o.tellPhase("at 0.8 again", after, overBefore)
	at.Note = fmt.Sprintf("up to %.0f requests waited in the log",
		o.watch.most(over, func(s *glance) float64 { return s.end - s.settled }))
	d.Note = fmt.Sprintf("%.1f s", drain.to.Sub(drain.from).Seconds())
	for _, p := range []*Phase{b, at, d, a} {
		p.Note += fmt.Sprintf("; late by its own doing: p50 %.0f, p99 %.0f ms", p.OwnP50, p.OwnP99)
	}
	if b.CPU != nil && at.CPU != nil {
		rep.round(0, 0, at.CPU, b.CPU.own())
		rep.CPURatioIs = "of the service for a timer at twice the capacity / at 0.8 of it"
		rep.ratio("of the service and the broker for a timer at twice the capacity / at 0.8 of it",
			at.CPU.Own+at.CPU.Broker, b.CPU.Own+b.CPU.Broker)
	}
	rep.ratio("p99 by receipt at 0.8 again / before", a.ByReceipt.p99(), b.ByReceipt.p99())
	middle := over.from.Add(over.to.Sub(over.from) / 2)
	rss := func(s *glance) float64 { return s.rss }
	rep.ratio("memory in the second half of the overload / in the first", o.watch.most(window{middle, over.to}, rss),
		o.watch.most(window{over.from, middle}, rss))
	return rep.add(&Phase{Name: "all of them"}).verify(o.all.batch)
}

// tellPhase reports the time of w. A timer counts half when it is accepted, and half when it is received.
func (o *overload) tellPhase(name string, w window, share float64) *Phase {
	p := o.rep.add(&Phase{Name: name, Rate: share * o.capacity})
	first, last := o.watch.within(w)
	timers := int((last.settled - first.settled + last.received - first.received) / 2)
	p.Exact = history.Counts{Scheduled: timers, Received: timers}
	p.CPU = last.usage.since(first.usage, timers)
	if steps := last.steps - first.steps; steps > 0 {
		p.PerStep = float64(timers) / float64(steps)
	}
	p.PeakRSS = int64(o.watch.most(w, func(s *glance) float64 { return s.rss }))
	p.OwnP50, p.OwnP99 = last.late.since(first.late)
	if share == overBefore {
		p.late(o.all.batch, w)
	} else {
		p.perSecond(timers, first.at, last.at)
	}
	return p
}
