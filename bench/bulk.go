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
)

// BulkConfig measures a list by a label that few timers have, and a job that moves many, among pending timers, and how
// late others are meanwhile. It starts an instance of its own.
type BulkConfig struct {
	Common
	Beside
	Pending  int // timers that are not due
	Moved    int // how many of them the job moves
	MoveRate int // requests a second of the job, at most
}

// DefaultBulk returns the usual workload.
func DefaultBulk() BulkConfig {
	c := BulkConfig{Common: DefaultCommon(), Beside: defaultBeside(), Pending: 2_000_000, Moved: 200_000,
		MoveRate: 50_000}
	c.Local = true
	return c
}

func (bc *BulkConfig) check() error {
	return errors.Join(bc.checkOwn(), bc.Beside.check(), between("pending", 1, MaxTimers, bc.Pending),
		between("moved", 1, bc.Pending, bc.Moved), between("move-rate", 1, 50_000, bc.MoveRate),
		between("rounds", 1, 1, bc.Rounds))
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
	return b.listAndMove(ctx)
}

// scheduleLabelled schedules the pending timers.
func (b *bulk) scheduleLabelled(ctx context.Context) error {
	return b.fill(ctx, b.rep, "pending timers", offer{timers: b.c.Pending,
		due: func(i int, now time.Time) int64 {
			return now.Add(farAhead).UnixMilli() + int64(i)%farAhead.Milliseconds()
		},
		headers: func(i int) []kgo.RecordHeader {
			labels := fmt.Appendf(nil, "team=t%d", i%rareIn)
			if i < b.c.Moved {
				labels = append(labels, ",move=yes"...)
			}
			return []kgo.RecordHeader{{Key: waterclock.HeaderLabels, Value: labels}}
		}})
}

// listAndMove lists and moves while timers fire.
func (b *bulk) listAndMove(ctx context.Context) error {
	var parts []part
	p, err := b.beside(ctx, b.c.Rate, b.c.Lives, func() error {
		parts = append(parts, quiet(ctx, b.c.Duration))
		for _, step := range []struct {
			name string
			do   func(context.Context) (int, int, error)
		}{{"list by label", b.list}, {"move", b.move}} {
			w := window{from: time.Now()}
			n, all, err := step.do(ctx)
			if err != nil {
				return err
			}
			w.to = time.Now()
			done := b.rep.add(&Phase{Name: step.name, Exact: history.Counts{Scheduled: all, Received: n,
				Lost: max(0, all-n), Altered: max(0, n-all)}})
			done.perSecond(n, w.from, w.to)
			parts = append(parts, part{"during " + step.name, w})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.rep.beside(p, b.c.Rate, parts)
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
