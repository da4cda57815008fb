package crash

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// TestPausedStaticOwnerReplacedUnderItsName: an instance with an instance ID is paused. A new process with the same ID,
// on another machine and so with another directory, acquires its partitions immediately and with the same generation.
// Then the old one goes on in the middle of whatever it did. Its step must be refused.
func TestPausedStaticOwnerReplacedUnderItsName(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const partitions = 4
	s := rig.NewSetup(t, kafkatest.Shared(t), partitions, partitions)
	seen := rig.Watch(t, s.Cluster, s.Requests, partitions, s.Target)
	start := func() *rig.Process { return s.Twin().Start("--instance-id", "wc-0") }
	old := start()
	old.Ready(partitions, rig.Patience)
	load := stream(s)
	more(s, streamRate)

	old.Pause()
	replacement := start()
	t.Logf("replacement has all partitions live after %s, session timeout %s",
		replacement.Ready(partitions, rig.Patience).Round(time.Millisecond), defaultSession)
	more(s, streamRate)
	old.Continue()
	// It is fenced, no member any more, and must say so.
	await.Until(t, 15*time.Second, "the old one is not ready", func() bool { return old.Live() < 0 })
	more(s, streamRate)
	if n := replacement.Live(); n != partitions {
		t.Errorf("after the old one went on the replacement has %d live partitions", n)
	}

	// When it leaves, it must not take the replacement, which has its name, out of the group.
	old.End()
	more(s, 6*streamRate)
	n := load.Stop()
	awaitStream(s, n)
	replacement.Settled()
	replacement.End()
	rig.Exactly(t, s.Out.Records(), n)
	seen.Check(false)
	for p, owners := range claims(s) {
		if len(owners) != 2 {
			t.Errorf("partition %d was claimed by %v, want the old one and the replacement", p, owners)
		}
	}
	s.NothingDead()
}

// slowly is a connection of an instance on which every part of an answer comes later, by so many nanoseconds. So its
// transactions are open for longer than others expect of a step in flight.
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

// TestStaticRestartsBesideSlowBrokers: three static instances are restarted in turn. The brokers are slow for each that
// has just been restarted, so that others find its transactions open. Kafka still shows the client IDs of the first
// processes. Nobody may end a transaction of a process that lives.
func TestStaticRestartsBesideSlowBrokers(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const instances, delay = 3, 350 * time.Millisecond
	s := rig.NewSetup(t, kafkatest.Shared(t), 2*instances, 2)
	type member struct {
		*rig.Instance
		cfg *config.Config
		by  *atomic.Int64
	}
	start := func(cfg *config.Config) member {
		by := new(atomic.Int64)
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return slowly{conn, by}, nil
		}
		return member{rig.Serve(t, cfg, node.Options{Dial: dial}), cfg, by}
	}
	ms := make([]member, instances)
	for i := range ms {
		cfg := s.Config()
		cfg.InstanceID, cfg.OnStop = fmt.Sprint("wc-", i), config.Stay
		ms[i] = start(cfg)
	}
	for _, m := range ms {
		m.Ready(2, rig.Patience)
	}
	load := stream(s)
	const metric = "waterclock_open_transactions_ended_total"
	ended := 0.
	for i := range ms {
		ended += ms[i].Metric(metric)
		ms[i].End()
		ms[i] = start(ms[i].cfg)
		ms[i].Ready(2, rig.Patience)
		ms[i].by.Store(int64(delay))
		more(s, 2*streamRate) // others look once a second
		ms[i].by.Store(0)
	}
	n := load.Stop()
	awaitStream(s, n)
	if ended += rig.Sum(ms, metric); ended > 0 {
		t.Errorf("%v transactions of instances that live were ended by others", ended)
	}
	rig.Exactly(t, s.Out.Records(), n)
}
