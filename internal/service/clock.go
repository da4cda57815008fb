package service

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// clockEvery is how often the clocks are compared.
	clockEvery = 250 * time.Millisecond
	// clockJump is how far the wall clock must get away from the monotonic one,
	// between two looks, to have been set: what slews it does less.
	clockJump = 100 * time.Millisecond
	// clockPause is how long a look may be overdue before the process is said
	// to have been paused (SIGSTOP, a frozen machine).
	clockPause = 5 * time.Second
)

// clockWatch notices that the clock was set, and that the process was paused.
//
// Timers sleep by the monotonic clock and are due by the wall clock, so after a
// jump everybody has to look again. A jump ahead makes what has become due fire
// at once. After a jump back a partition's clock stands still until the time has
// come again: nothing fires early, new emissions wait. A machine that was
// suspended shows as a jump ahead, for the monotonic clock stood still; whether
// its partitions are still its own the broker says with the next step.
type clockWatch struct {
	now    func() time.Time // wall
	wake   func()           // everybody looks again
	log    *slog.Logger
	jumps  *prometheus.CounterVec
	pauses prometheus.Counter

	wall, mono time.Time // of the last look
}

func newClockWatch(now func() time.Time, wake func(), log *slog.Logger, reg prometheus.Registerer) *clockWatch {
	c := &clockWatch{
		now: now, wake: wake, log: log,
		jumps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_clock_jumps_total", Help: "Times that the wall clock was set, by direction: ahead, back.",
		}, []string{"direction"}),
		pauses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waterclock_pauses_total", Help: "Times that the process did not run for seconds.",
		}),
	}
	c.jumps.WithLabelValues("ahead")
	c.jumps.WithLabelValues("back")
	reg.MustRegister(c.jumps, c.pauses)
	return c
}

// Run looks until ctx ends.
func (c *clockWatch) Run(ctx context.Context) error {
	t := time.NewTicker(clockEvery)
	defer t.Stop()
	c.wall, c.mono = c.now().Round(0), time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			c.look(c.now().Round(0), time.Now())
		}
	}
}

// look compares the clocks; Round(0) has stripped wall of its monotonic part.
func (c *clockWatch) look(wall, mono time.Time) {
	ran := mono.Sub(c.mono)
	jump := wall.Sub(c.wall) - ran
	c.wall, c.mono = wall, mono
	if ran > clockPause {
		c.pauses.Inc()
		c.log.Warn("the process was paused", "for", ran)
	}
	switch {
	case jump > clockJump:
		c.jumps.WithLabelValues("ahead").Inc()
		c.log.Warn("the clock was set ahead, or the machine was suspended: what has become due fires now", "by", jump)
	case jump < -clockJump:
		c.jumps.WithLabelValues("back").Inc()
		c.log.Warn("the clock was set back: timers wait until the time has come again", "by", -jump)
	default:
		return
	}
	c.wake()
}
