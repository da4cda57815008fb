package kafkatest

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kit/child"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
)

// pollInterval is how often a state is polled that gives no notice of its changes.
const pollInterval = 20 * time.Millisecond

// Cluster is a running Kafka cluster. Its methods may be called from several goroutines. Brokers are numbered from 0;
// the number is the broker's node ID and its place in Seeds.
type Cluster struct {
	*localkafka.Cluster
	tb testing.TB // the test that may disturb the cluster; nil for the shared one
}

// Start brings up n (1 or 3) combined brokers and controllers on free loopback ports and ends them when the test does.
// Their log is shown if the test fails. With three, topics have three replicas, and two must be in sync. Start skips
// the test if real Kafka cannot run here, see the package comment.
func Start(t testing.TB, n int, opts ...Option) *Cluster {
	t.Helper()
	if n != 1 && n != 3 {
		t.Fatalf("kafkatest: a cluster has 1 or 3 brokers, not %d", n)
	}
	tools := process.require(t)
	process.lockMachine(t)
	t.Cleanup(process.lock.release)
	cluster, err := localkafka.Start(t.Context(), tools, t.TempDir(), n, opts...)
	must(t, err)
	c := &Cluster{cluster, t}
	t.Cleanup(c.Close)
	c.showLogs(t, make([]int64, n))
	process.count(t)
	return c
}

// Turn waits, as Start does, until this process may have brokers on this machine, or skips the test. It is for
// tests that start brokers by themselves.
func Turn(t testing.TB) {
	t.Helper()
	process.require(t)
	process.lockMachine(t)
	t.Cleanup(process.lock.release)
	process.count(t)
}

// Kill ends broker i immediately (SIGKILL) and waits until it is gone. Like the other methods that disturb a broker it
// must not be called on the shared cluster, and fails the test if it does not succeed.
func (c *Cluster) Kill(i int) {
	c.disturb(i, func(b *localkafka.Broker) error { return b.End(child.Kill) })
}

// Stop lets broker i shut down in order (SIGTERM) and waits until it is gone, at most 60 s.
func (c *Cluster) Stop(i int) {
	c.disturb(i, func(b *localkafka.Broker) error { return b.End(child.Term) })
}

// Pause stops the process of broker i where it stands (SIGSTOP) and returns when it has stopped: its connections
// stay open and nothing is answered.
func (c *Cluster) Pause(i int) {
	c.disturb(i, (*localkafka.Broker).Pause)
}

// Resume lets a paused broker continue.
func (c *Cluster) Resume(i int) {
	c.disturb(i, func(b *localkafka.Broker) error { return b.Signal(child.Continue) })
}

// Restart starts broker i again on its old port and directory, killing it first if it runs, and waits until it
// serves clients. After a kill that takes until the controller has given up the old process: Kafka's 9 s, or the
// value of the property broker.session.timeout.ms.
func (c *Cluster) Restart(i int) {
	c.disturb(i, func(b *localkafka.Broker) error {
		if b.Running() {
			if err := b.End(child.Kill); err != nil {
				return err
			}
		}
		return b.Start(context.Background())
	})
}

func (c *Cluster) disturb(i int, do func(*localkafka.Broker) error) {
	if c.tb == nil {
		panic("kafkatest: the shared cluster must not be disturbed, use Start or Three")
	}
	c.tb.Helper()
	if err := do(c.Brokers[i]); err != nil {
		c.tb.Errorf("kafkatest: %v", err)
	}
}

// logSizes returns how much the brokers have logged so far.
func (c *Cluster) logSizes() []int64 {
	sizes := make([]int64, len(c.Brokers))
	for i, b := range c.Brokers {
		sizes[i] = b.LogSize()
	}
	return sizes
}

// showLogs shows the brokers' log lines behind those sizes in t, if the test fails: warnings and errors, or all of them
// under -v.
func (c *Cluster) showLogs(t testing.TB, from []int64) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for i, b := range c.Brokers {
			t.Logf("kafkatest: log of broker %d:\n%s", i, bytes.TrimSpace(b.Log(from[i], testing.Verbose())))
		}
	})
}

// Tools returns the Java and the jars that run Kafka and its tools. If one of them is missing, the test is skipped like
// one that needs a broker.
func Tools(t testing.TB) localkafka.Tools {
	t.Helper()
	return process.require(t)
}

// Option changes how Start configures its brokers.
type Option = localkafka.Option

// WithProperty sets a property of every broker, see localkafka.
func WithProperty(key, value string) Option { return localkafka.WithProperty(key, value) }

// ApacheDefaults leaves the group settings as Apache Kafka ships them.
func ApacheDefaults() Option { return localkafka.ApacheDefaults() }

// FreeAddr returns an unused loopback address.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addrs, err := localkafka.FreeAddrs(1)
	must(t, err)
	return addrs[0]
}
