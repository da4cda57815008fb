package service

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/beats"
	"github.com/waterclock/waterclock/internal/clocks"
	"github.com/waterclock/waterclock/internal/targets"
)

const (
	// clockEvery is how often the clocks are compared.
	clockEvery = 250 * time.Millisecond
	// clockJump is how far the wall clock must diverge from the monotonic one,
	// between two looks, to count as set: slewing moves it less.
	clockJump = 100 * time.Millisecond
	// clockWrong is how far the clock must be from the brokers' to be called
	// wrong.
	clockWrong = time.Minute
	// clockPause is how long a look may be overdue before the process is said
	// to have been paused (SIGSTOP, a frozen machine).
	clockPause = 5 * time.Second
)

// clockWatch notices that the clock was set, and that the process was paused.
//
// Timers sleep by the monotonic clock and are due by the wall clock, so after a
// jump everybody has to look again. A jump ahead makes what has become due fire
// at once. After a jump back timers wait until the time has come again. A machine
// that was suspended shows as a jump ahead, for the monotonic clock stood still;
// whether its partitions are still its own the broker says with the next step.
//
// It also says so when targets refuse emissions for their timestamp
// (INVALID_TIMESTAMP), mostly because this clock is wrong: their timers wait,
// parked as for any unhealthy target, and go on by themselves: a probe finds the clock
// right, at once when it was set.
type clockWatch struct {
	now    func() time.Time // wall
	clocks *clocks.Clocks
	health *targets.Health
	wake   func() // everybody looks again
	want   func() // the clocks are compared soon
	log    *slog.Logger
	jumps  *prometheus.CounterVec
	pauses prometheus.Counter

	wall, mono time.Time // of the last look
	refused    int       // target partitions that refused the clock then
}

func newClockWatch(now func() time.Time, known *clocks.Clocks, health *targets.Health, wake, want func(), log *slog.Logger, reg prometheus.Registerer) *clockWatch {
	c := &clockWatch{
		now: now, clocks: known, health: health, wake: wake, want: want, log: log,
		jumps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_clock_jumps_total", Help: "Times that the wall clock was set, by direction: ahead, back.",
		}, []string{"direction"}),
		pauses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waterclock_pauses_total", Help: "Times that the process did not run for seconds.",
		}),
	}
	c.jumps.WithLabelValues("ahead")
	c.jumps.WithLabelValues("back")
	refused := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "waterclock_clock_refused_targets", Help: "Target partitions that refuse the timestamps of this machine's clock; their timers wait.",
	}, func() float64 { n, _ := c.health.RefuseClock(); return float64(n) })
	reg.MustRegister(c.jumps, c.pauses, refused)
	return c
}

// Run looks until ctx ends.
func (c *clockWatch) Run(ctx context.Context) error {
	t := beats.NewTicker(clockEvery)
	defer t.Stop()
	c.wall, c.mono = c.now().Round(0), time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			c.look(c.now().Round(0), time.Now())
			c.lookAtTargets()
		}
	}
}

// problem says what targets have against the clock, "" for nothing. wrong: it is
// the clock's fault, and no limit of a single topic.
func (c *clockWatch) problem() (sentence string, wrong bool) {
	n, one := c.health.RefuseClock()
	if n == 0 {
		return "", false
	}
	now := clocks.At(c.now())
	ahead, known := c.clocks.Ahead(now)
	sentence = fmt.Sprintf("%d target partitions, %s/%d among them, refuse the time of this machine, %s, and their timers wait: ",
		n, one.Topic, one.Partition, time.UnixMilli(now.Wall).UTC().Format(time.RFC3339))
	if !known {
		return sentence + "it is being compared with the brokers'", false
	}
	sentence += fmt.Sprintf("by the brokers it is %s; ", c.clocks.Brokers(now).UTC().Format(time.RFC3339))
	if ahead.Abs() < clockWrong {
		return sentence + "see message.timestamp.after.max.ms and message.timestamp.before.max.ms of the topic", false
	}
	return sentence + "set this machine's clock right, and they go on", true
}

// lookAtTargets says when targets begin to refuse the clock, and when they end.
func (c *clockWatch) lookAtTargets() {
	was := c.refused
	c.refused, _ = c.health.RefuseClock()
	switch {
	case was == 0 && c.refused > 0:
		c.want()
		why, _ := c.problem()
		c.log.Error("the clock is refused", "why", why)
	case was > 0 && c.refused == 0:
		c.log.Info("no target refuses the clock any more")
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
	c.health.ClockSet()
	c.want()
	c.wake()
}
