package crash

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// slowly is how connections of an instance are read: every part of an answer comes that
// much later, in nanoseconds, so that its transactions stay open for longer than a look of
// others takes for a step under way.
type slowly struct {
	net.Conn
	by *atomic.Int64
}

func (s slowly) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if d := time.Duration(s.by.Load()); d > 0 {
		<-time.After(d)
	}
	return n, err
}

// TestStaticRestartsBesideSlowBrokers: three static instances are restarted in turn, and
// the brokers are slow for the one that was, so that others meet its transactions. Kafka goes
// on to show the client IDs of the first processes; nobody ends a transaction of a
// process that lives.
func TestStaticRestartsBesideSlowBrokers(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const instances, delay = 3, 350 * time.Millisecond
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 2*instances, nil)
	target := c.CreateTopic(t, 2, nil, requests+"-out")
	type member struct {
		*rig.Instance
		by *atomic.Int64
	}
	dirs := make([]string, instances)
	start := func(i int) member {
		cfg := rig.Config(t, c.Seeds(), requests)
		cfg.InstanceID, cfg.OnStop = fmt.Sprint("wc-", i), config.Stay
		if dirs[i] == "" {
			dirs[i] = cfg.DataDir
		}
		cfg.DataDir = dirs[i]
		by := new(atomic.Int64)
		return member{rig.Serve(
			t, cfg, node.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return slowly{conn, by}, nil
			}}), by}
	}
	ms := make([]member, instances)
	for i := range ms {
		ms[i] = start(i)
	}
	for _, m := range ms {
		m.Ready(2, handover)
	}
	out := kafkatest.Collect(t, c, target)
	s := stream(t, c, requests, target)
	ended := 0.
	for i := range ms {
		ended += ms[i].Metric("waterclock_open_transactions_ended_total")
		if err := ms[i].Stop(); err != nil {
			t.Fatal(err)
		}
		ms[i] = start(i)
		ms[i].Ready(2, handover)
		ms[i].by.Store(int64(delay))
		// Others look once a second.
		now := len(out.Records())
		out.WaitFor(now+2*streamRate, handover)
		ms[i].by.Store(0)
	}
	n := s.Stop()
	awaitStream(t, out, n, time.Minute)
	for _, m := range ms {
		ended += m.Metric("waterclock_open_transactions_ended_total")
	}
	if ended > 0 {
		t.Errorf("%v transactions of instances that live were ended by others", ended)
	}
	rig.Exactly(t, out.Records(), n)
}
