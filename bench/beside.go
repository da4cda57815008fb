package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

// Beside says which timers fire beside what a workload measures.
type Beside struct {
	Lives
	Rate     float64       // timers a second
	Duration time.Duration // for how long they are measured before
}

func defaultBeside() Beside {
	return Beside{Lives{Least: 500 * time.Millisecond, Spread: 500 * time.Millisecond}, 2_000, 20 * time.Second}
}

func (b *Beside) check() error {
	return errors.Join(b.Lives.check(), between("rate", 1, MaxRate, b.Rate),
		want(b.Duration > 0 && b.Duration <= time.Hour, "duration", b.Duration, "more than 0, at most 1h"))
}

// flags adds the flags. before says until when the Duration is.
func (b *Beside) flags(fs *pflag.FlagSet, before string) {
	fs.Float64Var(&b.Rate, "rate", b.Rate, "let `N` timers a second fire")
	fs.DurationVar(&b.Duration, "duration", b.Duration, "measure their lateness "+before+" for `DURATION`")
	b.Lives.flags(fs)
}

// beside calls do while timers fire at a rate, each of which must fire once. It returns when all have fired.
func (r *run) beside(ctx context.Context, rate float64, lives Lives, do func() error) (*phase, error) {
	p, err := r.collect(ctx, "timers that fire", r.target, r.nextBatch(0), 0)
	if err != nil {
		return nil, err
	}
	defer p.stopReading()
	until, stop := context.WithCancel(ctx)
	defer stop()
	sent := make(chan error, 1)
	go func() {
		sent <- r.schedule(ctx, p.batch, offer{timers: MaxTimers, rate: rate, until: until, due: lives.due()})
	}()
	beats.Sleep(ctx, lives.lead())
	err = do()
	stop()
	if err = errors.Join(err, <-sent); err != nil {
		return nil, err
	}
	p.finish(ctx)
	return p, nil
}

// part is a part of what happens while timers fire.
type part struct {
	name string
	window
}

// quiet waits for some time in which nothing else happens.
func quiet(ctx context.Context, d time.Duration) part {
	p := part{"before", window{time.Now(), time.Now().Add(d)}}
	sleepUntil(ctx, p.to)
	return p
}

// beside adds to the report how late the timers that fired were in each part, and compares the last with the first.
func (rep *Report) beside(p *phase, rate float64, parts []part) error {
	var late []*Phase
	for _, x := range parts {
		one := rep.add(&Phase{Name: fmt.Sprintf("%.0f/s %s", rate, x.name), Rate: rate,
			Seconds: x.to.Sub(x.from).Seconds()})
		late = append(late, one)
		one.late(p.batch, x.window)
		if err := one.verify(p.batch); err != nil {
			return err
		}
	}
	rep.round(late[len(late)-1].ByReceipt.p99(), late[0].ByReceipt.p99(), nil, 0)
	return nil
}

// fill schedules timers that are not due during the run, and waits until all are pending.
func (r *run) fill(ctx context.Context, rep *Report, name string, o offer) error {
	p := rep.add(&Phase{Name: name})
	begin := time.Now()
	if err := r.scheduleUnbooked(ctx, r.nextBatch(0), o); err != nil {
		return err
	}
	p.perSecond(o.timers, begin, time.Now())
	return r.serving.allPending(ctx, p, o.timers, pendingTimeout)
}

// scheduleUnbooked schedules timers that are not due during the run, and waits until they have been accepted.
func (r *run) scheduleUnbooked(ctx context.Context, b *batch, o offer) error {
	bar, due := r.bar("scheduling", o.timers), o.due
	o.unbooked = true
	o.due = func(i int, now time.Time) int64 {
		if i%1024 == 0 {
			_ = bar.Set(i)
		}
		return due(i, now)
	}
	err := r.schedule(ctx, b, o)
	_ = bar.Finish()
	if err != nil {
		return err
	}
	return r.awaitSettled(ctx)
}
