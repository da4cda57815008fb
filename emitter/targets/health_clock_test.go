package targets

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// Partitions that reject the clock are unhealthy immediately, however many they are, until a probe finds them healthy:
// after a while, or as soon as the clock was set. Other partitions that fail with them still wait for new leaders.
func TestTargetsThatRefuseTheClockAreUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := fmt.Errorf("produce: %w", kerr.InvalidTimestamp)
		if RefusedForGood(refused) || !Trips(refused) {
			t.Error("a refused timestamp is taken for the timer's fault")
		}
		var right atomic.Bool
		var probes atomic.Int32
		h := NewHealth(HealthOptions{Logger: slog.New(slog.DiscardHandler),
			Probe: func(context.Context, timer.TopicPartition) error {
				if probes.Add(1); right.Load() {
					return nil
				}
				return refused
			}})
		reach := &lostAt{&kafkatest.Reach{}, time.Now()}
		reach.Lose("elsewhere") // three failures may be due to its death
		h.leaders = reach
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = h.Run(ctx) })
		h.Trip(map[timer.TopicPartition]error{one: refused, two: refused, three: late})
		if n, _ := h.RefuseClock(); n != 2 || h.Allow(one, nil) || h.Allow(two, nil) || !h.Allow(three, nil) {
			t.Errorf("%d partitions refuse the clock, want the two that said so", n)
		}
		w := newPatron(h)
		w.Wait(one)
		w.Wait(two)
		time.Sleep(time.Hour)
		if n, _ := h.RefuseClock(); n != 2 || probes.Load() == 0 {
			t.Errorf("after an hour and %d probes %d refuse the clock, want 2", probes.Load(), n)
		}
		right.Store(true)
		h.ClockSet()
		time.Sleep(2 * probeTick)
		for _, p := range []timer.TopicPartition{one, two} {
			if w.passes(p, 1) != 1 {
				t.Errorf("%v is not tried again when the clock was set", p)
			}
		}
		if n, _ := h.RefuseClock(); n != 0 {
			t.Errorf("%d partitions still refuse the clock", n)
		}
		cancel()
		run.Wait()
	})
}
