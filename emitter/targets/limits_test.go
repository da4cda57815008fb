package targets

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/timer"
)

// At most maxProbes unhealthy targets are probed at a time; the others get their turn.
func TestProbesAtATime(t *testing.T) {
	for _, n := range []int{maxProbes, maxProbes + 1} {
		synctest.Test(t, func(t *testing.T) {
			var under atomic.Int32
			var mu sync.Mutex
			probed := map[timer.TopicPartition]bool{}
			release := make(chan struct{})
			h := newHealth(func(_ context.Context, p timer.TopicPartition) error {
				under.Add(1)
				<-release
				under.Add(-1)
				mu.Lock()
				defer mu.Unlock()
				probed[p] = true
				return errors.New("still unhealthy")
			})
			unhealthy := map[timer.TopicPartition]error{}
			for i := range n {
				unhealthy[timer.TopicPartition{Topic: "target", Partition: int32(i)}] = kerr.LeaderNotAvailable
			}
			h.Trip(unhealthy)
			ctx, cancel := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() { _ = h.Run(ctx) })
			time.Sleep(time.Minute)
			if got := under.Load(); got != maxProbes {
				t.Errorf("%d unhealthy targets: %d probes at a time, want %d", n, got, maxProbes)
			}
			close(release)
			time.Sleep(2 * breakerMax)
			mu.Lock()
			if len(probed) != n {
				t.Errorf("%d of %d unhealthy targets were probed", len(probed), n)
			}
			mu.Unlock()
			cancel()
			run.Wait()
		})
	}
}
