package kafkatest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kit/child"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
)

// inSyncTimeout bounds how long brokers that are back may take to catch up.
const inSyncTimeout = time.Minute

// Three lends the three-broker cluster that the tests of a package share, to one test
// at a time: others wait. Unlike Shared it may be disturbed. At first all brokers are
// running and all replicas in sync; what earlier tests wrote is still there. It is
// started at its first use and ended by Main.
func Three(t testing.TB) *Cluster {
	t.Helper()
	k := &process.three
	k.mu.Lock()
	t.Cleanup(k.mu.Unlock)
	c := &Cluster{k.running(t, 3), t}
	t.Cleanup(func() {
		if err := c.fix(); err != nil {
			t.Errorf("kafkatest: after the test: %v", err)
			k.discard()
		}
	})
	c.showLogs(t, c.logSizes())
	c.AwaitInSync(t)
	process.count(t)
	return c
}

// fix makes every broker run, including those that a test has left paused or dead.
func (c *Cluster) fix() error {
	return c.Each(func(b *localkafka.Broker) error {
		if b.Running() {
			return b.Signal(child.Continue)
		}
		return b.Start(context.Background())
	})
}

// AwaitInSync waits until every partition of every topic has a leader and all its
// replicas in sync, and ends the test if that takes too long.
func (c *Cluster) AwaitInSync(t testing.TB) {
	t.Helper()
	adm := c.Admin(t)
	defer adm.Close()
	behind := ""
	if _, came := await.Within(inSyncTimeout, func() bool {
		behind = outOfSync(t.Context(), adm)
		return behind == ""
	}); !came {
		t.Fatalf("kafkatest: not in sync within %v: %s", inSyncTimeout, behind)
	}
}

// outOfSync names a partition that lacks a leader or replicas, "" if there is none.
func outOfSync(ctx context.Context, adm *kadm.Client) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	topics, err := adm.ListTopicsWithInternal(ctx)
	if err != nil {
		return err.Error()
	}
	for name, t := range topics {
		for n, p := range t.Partitions {
			if p.Err != nil || p.Leader < 0 || len(p.ISR) != len(p.Replicas) {
				return fmt.Sprintf("%s/%d: leader %d, in sync %v of %v, %v", name, n, p.Leader, p.ISR,
					p.Replicas, p.Err)
			}
		}
	}
	return ""
}
