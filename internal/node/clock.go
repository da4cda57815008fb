package node

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/clocks"
	"github.com/waterclock/waterclock/internal/kit/metric"
)

const (
	// clockEvery is how often clockWatch checks.
	clockEvery = 250 * time.Millisecond
	// clockJump is how far the wall clock must diverge from the monotonic one between two looks to count as set.
	// Slewing moves it less.
	clockJump = 100 * time.Millisecond
	// clockWrong is how far the clock must be from the brokers' clock to count as wrong.
	clockWrong = time.Minute
	// clockPause is how much time may pass between two looks before the process counts as paused (SIGSTOP, a frozen
	// machine).
	clockPause = 5 * time.Second
)

// clockWatch notices that the clock was set, and that the process was paused.
//
// Goroutines sleep by the monotonic clock, and timers are due by the wall clock. So after a jump every partition has to
// check again. After a jump ahead, timers that have become due fire immediately. After a jump back, timers wait until
// their time has come again. A suspended machine looks like a jump ahead, because the monotonic clock stood still. The
// next step shows whether this instance still owns its partitions.
//
// clockWatch also logs when targets reject emissions because of their timestamps (INVALID_TIMESTAMP). The usual cause
// is that this machine's clock is wrong. Timers for such targets are parked, as for any unhealthy target, until a probe
// finds the clock right. Setting the clock starts a probe immediately.
type clockWatch struct {
	now    func() time.Time // wall
	clocks *clocks.Clocks
	health *targets.Health
	wake   func() // makes all partitions look again
	want   func() // asks for a comparison with the brokers' clock: partition.ClockSkew.Want
	log    *slog.Logger
	jumps  *prometheus.CounterVec
	pauses prometheus.Counter

	wall, mono time.Time // the clocks at the last look
	refused    int       // how many target partitions refused the clock at the last look
}

func newClockWatch(now func() time.Time, known *clocks.Clocks, health *targets.Health, wake, want func(),
	log *slog.Logger, reg prometheus.Registerer) *clockWatch {
	in := metric.In(reg)
	c := &clockWatch{
		now: now, clocks: known, health: health, wake: wake, want: want, log: log,
		jumps: in.Counters("waterclock_clock_jumps_total",
			"Times that the wall clock was set, by direction: ahead, back.", "direction"),
		pauses: in.Counter("waterclock_pauses_total", "Times that the process was paused for seconds."),
	}
	in.GaugeFunc("waterclock_clock_offset_seconds", "The owner's clock minus the broker's, by the LogAppendTime of "+
		"a record read back: a claim's, and one each minute.", func() float64 {
		ahead, _ := known.Ahead(clocks.At(now()))
		return ahead.Seconds()
	})
	c.jumps.WithLabelValues("ahead")
	c.jumps.WithLabelValues("back")
	in.GaugeFunc("waterclock_clock_refused_targets",
		"Target partitions that reject the timestamps of this machine's clock; their timers wait.",
		func() float64 { n, _ := c.health.RefuseClock(); return float64(n) })
	return c
}

// Run looks until ctx ends.
func (c *clockWatch) Run(ctx context.Context) error {
	c.wall, c.mono = c.now().Round(0), time.Now()
	beats.Every(ctx, clockEvery, func() {
		c.look(c.now().Round(0), time.Now())
		c.checkTargets()
	})
	return nil
}

// problem returns a sentence about targets that refuse this machine's time; "" if there are none. wrong says that the
// clock is at fault, and not the limit of a single topic.
func (c *clockWatch) problem() (sentence string, wrong bool) {
	n, one := c.health.RefuseClock()
	if n == 0 {
		return "", false
	}
	now := clocks.At(c.now())
	ahead, known := c.clocks.Ahead(now)
	sentence = fmt.Sprintf(
		"%d target partitions, such as %s/%d, reject the time of this machine, %s, and their timers wait: ",
		n, one.Topic, one.Partition, time.UnixMilli(now.Wall).UTC().Format(time.RFC3339))
	if !known {
		return sentence + "it is being compared with the brokers'", false
	}
	sentence += fmt.Sprintf("by the brokers it is %s; ", c.clocks.Brokers(now).UTC().Format(time.RFC3339))
	if ahead.Abs() < clockWrong {
		return sentence + "see message.timestamp.after.max.ms and message.timestamp.before.max.ms of the topic", false
	}
	return sentence + "set this machine's clock right, and their timers fire", true
}

// checkTargets logs when targets begin to reject the clock, and when they all accept it again.
func (c *clockWatch) checkTargets() {
	was := c.refused
	c.refused, _ = c.health.RefuseClock()
	switch {
	case was == 0 && c.refused > 0:
		c.want()
		why, _ := c.problem()
		c.log.Error("targets reject this machine's timestamps", "reason", why)
	case was > 0 && c.refused == 0:
		c.log.Info("targets accept timestamps again")
	}
}

// look compares the wall clock with the monotonic one. wall has no monotonic part: the caller has removed it with
// Round(0).
func (c *clockWatch) look(wall, mono time.Time) {
	ran := mono.Sub(c.mono)
	jump := wall.Sub(c.wall) - ran
	c.wall, c.mono = wall, mono
	if ran > clockPause {
		c.pauses.Inc()
		c.log.Warn("process was paused", "duration", ran)
	}
	switch {
	case jump > clockJump:
		c.jumps.WithLabelValues("ahead").Inc()
		c.log.Warn("clock set ahead, or machine suspended: timers that have become due fire now", "jump", jump)
	case jump < -clockJump:
		c.jumps.WithLabelValues("back").Inc()
		c.log.Warn("clock set back: timers wait until their time has come again", "jump", -jump)
	default:
		return
	}
	c.health.ClockSet()
	c.want()
	c.wake()
}
