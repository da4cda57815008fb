package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

// BulkConfig measures a list by a label that few timers have, and a job that moves many, among pending timers, and how
// late others are meanwhile. It starts an instance of its own.
type BulkConfig struct {
	Common
	Lives                  // of the timers that fire
	Pending  int           // timers that are not due
	Moved    int           // how many of them the job moves
	Rate     float64       // timers a second that fire
	MoveRate int           // requests a second of the job, at most
	Duration time.Duration // of the measurement before
}

// DefaultBulk returns the usual workload.
func DefaultBulk() BulkConfig {
	c := BulkConfig{
		Common: DefaultCommon(), Lives: Lives{Least: 500 * time.Millisecond, Spread: 500 * time.Millisecond},
		Pending: 2_000_000, Moved: 200_000, Rate: 2_000, MoveRate: 50_000, Duration: 20 * time.Second,
	}
	c.Local = true
	return c
}

func (bc *BulkConfig) check() error {
	return errors.Join(bc.checkOwn(), bc.Lives.check(), between("pending", 1, MaxTimers, bc.Pending),
		between("moved", 1, bc.Pending, bc.Moved), between("rate", 1, MaxRate, bc.Rate),
		between("move-rate", 1, 50_000, bc.MoveRate), between("rounds", 1, 1, bc.Rounds),
		want(bc.Duration > 0 && bc.Duration <= time.Hour, "duration", bc.Duration, "more than 0, at most 1h"))
}

// One of rareIn timers has the label that is looked for.
const rareIn = 10_000

// bulk is one run of the workload.
type bulk struct {
	*run
	c      *BulkConfig
	rep    *Report
	client *client.Client
}

func (bc *BulkConfig) measure(ctx context.Context, r *run) error {
	b := &bulk{run: r, c: bc, rep: r.report("bulk", "p99 by receipt while moving / before", "")}
	b.api = true
	if err := serveWarm(ctx, r); err != nil {
		return err
	}
	var err error
	if b.client, err = client.New(client.Options{URLs: []string{"http://" + b.serving.api}}); err != nil {
		return fmt.Errorf("open the API: %w", err)
	}
	if err := b.scheduleLabelled(ctx); err != nil {
		return err
	}
	return b.beside(ctx)
}

// scheduleLabelled schedules the pending timers.
func (b *bulk) scheduleLabelled(ctx context.Context) error {
	p := b.rep.add(&Phase{Name: "pending timers"})
	bar := b.bar("scheduling", b.c.Pending)
	begin := time.Now()
	err := b.schedule(ctx, b.nextBatch(0), offer{timers: b.c.Pending, unbooked: true,
		due: func(i int, now time.Time) int64 {
			if i%1024 == 0 {
				_ = bar.Set(i)
			}
			return now.Add(farAhead).UnixMilli() + int64(i)%farAhead.Milliseconds()
		},
		headers: func(i int) []kgo.RecordHeader {
			labels := fmt.Appendf(nil, "team=t%d", i%rareIn)
			if i < b.c.Moved {
				labels = append(labels, ",move=yes"...)
			}
			return []kgo.RecordHeader{{Key: waterclock.HeaderLabels, Value: labels}}
		}})
	_ = bar.Finish()
	if err == nil {
		err = b.awaitSettled(ctx)
	}
	if err != nil {
		return err
	}
	p.perSecond(b.c.Pending, begin, time.Now())
	return b.serving.allPending(ctx, p, b.c.Pending, pendingTimeout)
}

// beside lists and moves while timers fire, each of which must fire once.
func (b *bulk) beside(ctx context.Context) error {
	firing := b.nextBatch(0)
	p, err := b.collect(ctx, "timers that fire", b.target, firing, 0)
	if err != nil {
		return err
	}
	defer p.stopReading()
	until, stop := context.WithCancel(ctx)
	defer stop()
	sent := make(chan error, 1)
	go func() {
		sent <- b.schedule(ctx, firing, offer{timers: MaxTimers, rate: b.c.Rate, until: until, due: b.c.due()})
	}()
	beats.Sleep(ctx, b.c.lead())
	windows := []window{{time.Now(), time.Now().Add(b.c.Duration)}}
	sleepUntil(ctx, windows[0].to)
	names := []string{"before"}
	for _, step := range []struct {
		name string
		do   func(context.Context) (int, int, error)
	}{{"list by label", b.list}, {"move", b.move}} {
		w := window{from: time.Now()}
		n, all, err := step.do(ctx)
		if err != nil {
			stop()
			return errors.Join(err, <-sent)
		}
		w.to = time.Now()
		done := b.rep.add(&Phase{Name: step.name, Exact: history.Counts{Scheduled: all, Received: n,
			Lost: max(0, all-n), Altered: max(0, n-all)}})
		done.perSecond(n, w.from, w.to)
		windows, names = append(windows, w), append(names, "during "+step.name)
	}
	stop()
	if err := <-sent; err != nil {
		return err
	}
	p.finish(ctx)
	var late []*Phase
	for i, w := range windows {
		one := b.rep.add(&Phase{Name: fmt.Sprintf("%.0f/s %s", b.c.Rate, names[i]), Rate: b.c.Rate,
			Seconds: w.to.Sub(w.from).Seconds()})
		late = append(late, one)
		one.late(p.batch, w)
		if err := one.verify(p.batch); err != nil {
			return err
		}
	}
	b.rep.round(late[len(late)-1].ByReceipt.p99(), late[0].ByReceipt.p99(), nil, 0)
	return nil
}

// list lists by the rare label, in the order of jobs, and returns how many timers it has found, of how many.
func (b *bulk) list(ctx context.Context) (n, all int, err error) {
	defer b.profile("list")()
	for _, err := range b.client.List(ctx, b.requests, client.Filter{Labels: "team=t0"}, client.In(client.ByID)) {
		if err != nil {
			return n, 0, fmt.Errorf("list by label: %w", err)
		}
		n++
	}
	return n, (b.c.Pending + rareIn - 1) / rareIn, nil
}

// move runs a job that moves timers by an hour.
func (b *bulk) move(ctx context.Context) (n, all int, err error) {
	defer b.profile("move")()
	job, err := b.client.StartJob(ctx, b.requests, client.MoveAll, client.Filter{Labels: "move=yes"},
		client.JobOptions{By: time.Hour, Rate: b.c.MoveRate})
	if err == nil {
		job, err = b.client.WaitJob(ctx, job, nil)
	}
	if err == nil && job.State != client.JobDone {
		err = fmt.Errorf("job %s: %s", job.State, job.Problem)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("move: %w", err)
	}
	return int(job.Changed), b.c.Moved, nil
}
