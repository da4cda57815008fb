//go:build !keda

package scaling

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	autoscaling "k8s.io/api/autoscaling/v2"
)

// keda stands in for KEDA: it asks Prometheus what the triggers ask, at once and then in each polling interval until
// the test ends, and answers from that, as KEDA does with useCachedMetrics. It has no fallback.
func keda(t *testing.T, o *scaledObject, p *prometheus,
	_ *workload) (wanted []autoscaling.MetricSpec, ask func(metric string) (float64, error)) {
	t.Helper()
	type answer struct {
		v   float64
		err error
	}
	var mu sync.Mutex
	answers := make(map[string]answer)
	ctx, cancel := context.WithCancel(context.Background())
	look := func() {
		for i, trigger := range o.Spec.Triggers {
			v, err := p.query(ctx, trigger.Metadata["query"])
			mu.Lock()
			answers[trigger.metric(i)] = answer{v, err}
			mu.Unlock()
		}
	}
	look()
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(o.poll(t))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				look()
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		looking.Wait()
	})
	return specs(t, o), func(metric string) (float64, error) {
		mu.Lock()
		defer mu.Unlock()
		a, ok := answers[metric]
		if !ok {
			return 0, errors.New("no such metric: " + metric)
		}
		return a.v, a.err
	}
}
