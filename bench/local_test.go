package bench

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// A run with everything of its own has a real broker, whose processor time is told
// apart, and leaves none behind.
func TestLocal(t *testing.T) {
	kafkatest.NeedSlow(t)
	t.Parallel()
	kafkatest.Turn(t)
	c := DefaultLife()
	c.Common, c.Timers, c.Least = common(t), 20_000, 500*time.Millisecond
	cfg := *c.Cluster
	cfg.Brokers = nil
	c.Cluster, c.Replication, c.Timeout, c.PassRecords, c.Steps = &cfg, -1, 4*time.Minute, 20_000, []int{1000}
	var seeds []string
	reports, err := c.workload(t.Context(), func(ctx context.Context, r *run) error {
		seeds = r.cluster.Seeds()
		return r.lifeRounds(ctx, c)
	})
	rep := one(t, reports, err)
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

// Where there is no Java it is said what is missing.
func TestLocalWithoutJava(t *testing.T) {
	t.Setenv("JAVA_HOME", t.TempDir())
	c := DefaultLife()
	c.Common = common(t)
	cfg := *c.Cluster
	cfg.Brokers = nil
	c.Cluster = &cfg
	_, err := RunLife(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "which needs Java 17 or later and Maven (or give --brokers): no java command") {
		t.Errorf("%v", err)
	}
}
