package bench

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// A run with everything of its own has a real broker, whose processor time is told apart, and leaves none behind.
func TestLocal(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	kafkatest.Turn(t)
	c := DefaultLife()
	c.Common, c.Timers, c.Least = common(t), 20_000, 500*time.Millisecond
	cfg := *c.Cluster
	cfg.Brokers = nil
	c.Cluster, c.Replication, c.Timeout, c.PassRecords, c.Steps = &cfg, -1, 4*time.Minute, 20_000, []int{1000}
	var seeds []string
	reports, err := runWith(t.Context(), &c.Common, func(ctx context.Context, r *run) error {
		seeds = r.cluster.Seeds()
		return errors.Join(c.measure(ctx, r), r.unserve(), intervals(ctx, r))
	})
	if errors.Is(err, ErrInexact) {
		kafkatest.Inexact(t, "%v", err)
	}
	if err != nil || len(reports) != 2 {
		t.Fatalf("%v, reports: %+v", err, reports)
	}
	rep := reports[0]
	cheaper(t, reports[1])
	for _, name := range []string{"bare 1:3, 1000 a step", "life"} {
		p := phaseOf(t, rep, name)
		measured(t, p, 20_000)
		if p.CPU.Broker <= 0 {
			t.Errorf("%s: processor time %+v", name, p.CPU)
		}
	}
	if rep.Machine.Brokers != 1 || rep.Ratio <= 0 || rep.CPURatio <= 0 {
		t.Errorf("%+v", rep)
	}
	if conn, err := net.Dial("tcp", seeds[0]); err == nil {
		conn.Close()
		t.Error("the broker is still there")
	}
}

// intervals measures 1,000 timers a second without and with a firing interval.
func intervals(ctx context.Context, r *run) error {
	rep := r.report("intervals", "", "")
	c := DefaultSteady()
	c.Duration, c.Least, c.Spread = 2*time.Second, time.Second, time.Second
	for _, interval := range []time.Duration{0, 100 * time.Millisecond} {
		r.cfg.FiringInterval = interval
		err := serveWarm(ctx, r)
		if err == nil {
			_, err = c.paced(ctx, r, rep, 1000, interval.String())
		}
		if err = errors.Join(err, r.unserve()); err != nil {
			return err
		}
	}
	return nil
}

// cheaper holds that with an interval of 100 ms there are no more transactions than it allows, and fewer than without,
// which a busy machine has fewer of, too.
func cheaper(t *testing.T, rep *Report) {
	t.Helper()
	without, with := rep.Phases[0], rep.Phases[1]
	t.Logf("%.1f and %.1f transactions a second, late by %+v and %+v", without.Transactions, with.Transactions,
		without.ByReceipt, with.ByReceipt)
	if with.Transactions <= 0 || with.Transactions > 13 || without.Transactions <= with.Transactions {
		t.Errorf("%.1f transactions a second with an interval of 100ms, %.1f without", with.Transactions,
			without.Transactions)
	}
	if with.ByReceipt.P50 <= 10 || with.PerStep <= without.PerStep {
		t.Errorf("%+v and %+v: the interval does nothing", with, without)
	}
}

// Where there is no Java it is said what is missing.
func TestLocalWithoutJava(t *testing.T) {
	t.Setenv("JAVA_HOME", t.TempDir())
	c := DefaultLife()
	c.Common = common(t)
	cfg := *c.Cluster
	cfg.Brokers = nil
	c.Cluster = &cfg
	_, err := Run(t.Context(), &c)
	if err == nil || !strings.Contains(err.Error(),
		"which needs Java 17 or later and Maven (or give --brokers): no java command") {
		t.Errorf("%v", err)
	}
}
