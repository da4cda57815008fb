package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Calls are calls of one kind over HTTP, one after the other of each caller. All were
// answered as they must be: else there is no report.
type Calls struct {
	Name      string   `json:"name"`
	Bare      bool     `json:"bare"`
	Callers   int      `json:"callers"`
	Calls     int      `json:"calls"`
	PerSecond float64  `json:"per_second"`
	Answered  Lateness `json:"answered"` // time from the call to the end of its answer
	CPU       *CPU     `json:"cpu,omitempty"`
	// PerStep is how many of them shared a transaction of the service, on average.
	PerStep float64 `json:"per_transaction,omitempty"`
}

// own is the processor time of the service, or the bare server, for a call.
func (c *Calls) own() float64 {
	if c.CPU == nil {
		return 0
	}
	return c.CPU.Own
}

// answers says what is wrong with an answer to call i.
type answers func(i int, status int, body []byte) error

// status is the check of calls of which the status alone says enough.
func status(want int) answers {
	return func(_, status int, body []byte) error {
		if status == want {
			return nil
		}
		return fmt.Errorf("answered %d, not %d: %.300s", status, want, body)
	}
}

// traffic is calls of one kind.
type traffic struct {
	name    string
	addr    string
	pid     int // of the server
	callers int
	calls   int
	ask     func(i int) request
	check   answers
}

// drive makes the calls and measures them. The first error ends it.
func (r *run) drive(ctx context.Context, t traffic) (*Calls, error) {
	took := make([]int32, t.calls) // µs
	m := &meter{run: r}
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	conns := make([]*caller, t.callers)
	for i := range conns {
		c, err := newCaller(ctx, t.addr)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		defer c.close()
		conns[i] = c
	}
	bar := r.bar(t.name, t.calls)
	m.start(t.pid)
	for _, c := range conns {
		g.Go(func() error {
			for i := int(next.Add(1)) - 1; i < t.calls && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				began, q := time.Now(), t.ask(i)
				status, body, err := c.do(&q)
				took[i] = int32(time.Since(began).Microseconds())
				if err = errors.Join(err); err == nil {
					err = t.check(i, status, body)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", t.name, err)
				}
				if i%1024 == 0 {
					_ = bar.Set(i)
				}
			}
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	m.stop()
	_ = bar.Finish()
	c := &Calls{Name: t.name, Callers: t.callers, Calls: t.calls, Answered: *latenessOf(took, 1000), CPU: m.end.since(m.begin, t.calls)}
	c.PerSecond = float64(t.calls) / m.end.at.Sub(m.begin.at).Seconds()
	if steps := m.end.steps - m.begin.steps; m.begin.steps >= 0 && steps > 0 {
		c.PerStep = float64(t.calls) / float64(steps)
	}
	return c, nil
}
