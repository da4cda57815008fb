package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// beside measures the steady rate, and then the same with questions beside it.
func (a *apiRun) beside(ctx context.Context) error {
	rate := a.c.Rates[0]
	without, err := a.paced(ctx, a.rep, a.c.SteadyConfig, rate, fmt.Sprintf("%.0f/s", rate))
	if err != nil {
		return err
	}
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	asking, life := errgroup.WithContext(life)
	asking.Go(func() error { return a.every(life, a.c.GetRate, a.oneGet()) })
	asking.Go(func() error { return a.every(life, a.c.ListRate, a.oneList()) })
	with, err := a.paced(ctx, a.rep, a.c.SteadyConfig, rate, fmt.Sprintf("%.0f/s, asked", rate))
	cancel()
	if err = errors.Join(err, asking.Wait()); err != nil {
		return err
	}
	a.rep.ratio("p99 by receipt with questions beside / without", with.ByReceipt.P99, without.ByReceipt.P99)
	a.rep.ratio("p50 by receipt with questions beside / without", with.ByReceipt.P50, without.ByReceipt.P50)
	return nil
}

// every makes a call so many times a second until ctx ends.
func (a *apiRun) every(ctx context.Context, rate float64, t traffic) error {
	c, err := newCaller(ctx, a.serving.api)
	if err != nil {
		return err
	}
	defer c.close()
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		q := t.ask(i)
		status, body, err := c.do(&q)
		if err == nil {
			err = t.check(i, status, body)
		}
		if err != nil {
			return fmt.Errorf("beside the steady rate: %w", err)
		}
	}
}

// oneGet asks for a timer that is there, of any partition.
func (a *apiRun) oneGet() traffic {
	l := newLedger(keptPrefix, a.ValueBytes, 0)
	n := a.c.Pending - a.c.Pending/a.c.Doomed
	const stride = 7919 // so that neighbours are not asked for in turn
	return traffic{
		ask: func(i int) request { return request{method: "GET", path: a.timer(l.id(i * stride % n))} },
		check: func(i, status int, body []byte) error {
			return a.isTimer(status, body, l.id(i*stride%n), l.payload(i*stride%n))
		},
	}
}

// oneList asks for a page.
func (a *apiRun) oneList() traffic {
	t := a.listing("due", 0)
	t.check = status(http.StatusOK) // what fires meanwhile may make it short; the check would cost what is shared
	return t
}
