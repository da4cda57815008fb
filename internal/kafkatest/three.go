package kafkatest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/internal/await"
	"github.com/waterclock/waterclock/internal/child"
	"github.com/waterclock/waterclock/internal/localkafka"
)

// inSyncTimeout bounds how long brokers that are back may take to catch up.
const inSyncTimeout = time.Minute

// lent is a cluster of three brokers that is passed from test to test. The test that
// has it holds mu, which guards the other fields.
type lent struct {
	mu      sync.Mutex
	cluster *localkafka.Cluster // nil before the first test, and after one that has damaged it
	dir     string
}

// Three lends the three-broker cluster that the tests of a package share, to one test
// at a time: others wait. Unlike Shared it may be disturbed. At first all brokers are
// running and all replicas in sync; what earlier tests wrote is still there. It is
// started at its first use and ended by Main.
func Three(t testing.TB) *Cluster {
	t.Helper()
	tools := process.require(t)
	process.mu.Lock()
	main := process.main
	process.mu.Unlock()
	if !main {
		t.Fatalf("%v", errNoMain)
	}
	l := &process.three
	l.mu.Lock()
	t.Cleanup(l.mu.Unlock)
	if l.cluster == nil {
		process.lockMachine(t)
		if err := l.start(t.Context(), tools); err != nil {
			process.lock.release()
			t.Fatalf("kafkatest: start the cluster of three: %v", err)
		}
	}
	c := &Cluster{l.cluster, t}
	t.Cleanup(func() {
		if err := c.fix(); err != nil {
			t.Errorf("kafkatest: after the test: %v", err)
			l.discard()
		}
	})
	c.showLogs(t, c.logSizes())
	c.AwaitInSync(t)
	process.count(t)
	return c
}

func (l *lent) start(ctx context.Context, tools localkafka.Tools) (err error) {
	if l.dir, err = os.MkdirTemp("", "waterclock-kafka-"); err != nil {
		return err
	}
	// It outlives the test that starts it.
	l.cluster, err = localkafka.Start(context.WithoutCancel(ctx), tools, l.dir, 3)
	if err != nil {
		l.cluster = nil
		_ = os.RemoveAll(l.dir)
	}
	return err
}

// discard ends the cluster; mu is held.
func (l *lent) discard() {
	if l.cluster == nil {
		return
	}
	l.cluster.Close()
	l.cluster = nil
	_ = os.RemoveAll(l.dir)
	process.lock.release()
}

func (l *lent) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.discard()
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
				return fmt.Sprintf("%s/%d: leader %d, in sync %v of %v, %v", name, n, p.Leader, p.ISR, p.Replicas, p.Err)
			}
		}
	}
	return ""
}
