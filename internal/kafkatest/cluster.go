package kafkatest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// startAttempts bounds how often a cluster is tried on other ports, because
// between choosing a port and using it somebody else may take it.
const startAttempts = 3

// Cluster is a running Kafka cluster. Its methods may be called from several
// goroutines. Brokers are numbered from 0; the number is the broker's node ID
// and its place in Seeds.
type Cluster struct {
	brokers []*broker
	tb      testing.TB // who may disturb it; nil for the shared cluster
}

// Start brings up n (1 or 3) combined brokers and controllers on free loopback
// ports and ends them when the test does; what they logged is shown if it
// fails. With three, topics have three replicas, of which two must be in sync.
// Start skips the test where real Kafka cannot run, see the package comment.
func Start(t testing.TB, n int, opts ...Option) *Cluster {
	t.Helper()
	if n != 1 && n != 3 {
		t.Fatalf("kafkatest: a cluster has 1 or 3 brokers, not %d", n)
	}
	tools := process.require(t)
	process.lockMachine(t)
	t.Cleanup(process.lock.release)
	c, err := newCluster(t.Context(), tools, t.TempDir(), n, newSettings(opts))
	if err != nil {
		t.Fatalf("kafkatest: %v", err)
	}
	c.tb = t
	t.Cleanup(c.kill)
	c.showLogs(t, make([]int64, n))
	process.count(t)
	return c
}

// Seeds returns the brokers' addresses, host:port.
func (c *Cluster) Seeds() []string {
	seeds := make([]string, len(c.brokers))
	for i, b := range c.brokers {
		seeds[i] = b.addr
	}
	return seeds
}

// Kill ends broker i at once (SIGKILL) and waits until it is gone. Like the
// other methods that disturb a broker it is not for the shared cluster, and
// marks the test as failed if it cannot do its work.
func (c *Cluster) Kill(i int) { c.disturb(i, func(b *broker) error { return b.end(sigKill) }) }

// Stop lets broker i shut down in order (SIGTERM) and waits until it is gone,
// at most 60 s.
func (c *Cluster) Stop(i int) { c.disturb(i, func(b *broker) error { return b.end(sigTerm) }) }

// Pause stops the process of broker i where it stands (SIGSTOP) and returns when
// it does: its connections stay open and nothing is answered.
func (c *Cluster) Pause(i int) {
	c.disturb(i, (*broker).pause)
}

// Resume lets a paused broker go on.
func (c *Cluster) Resume(i int) {
	c.disturb(i, func(b *broker) error { _, err := b.signal(sigGoOn); return err })
}

// Restart starts broker i again on its old port and folder, killing it first if
// it runs, and waits until it serves clients. After a kill that takes until the
// controller has given up the old process: Kafka's 9 s, or what the property
// broker.session.timeout.ms says.
func (c *Cluster) Restart(i int) {
	c.disturb(i, func(b *broker) error {
		if b.running() {
			if err := b.end(sigKill); err != nil {
				return err
			}
		}
		return b.start(context.Background())
	})
}

func (c *Cluster) disturb(i int, do func(*broker) error) {
	if c.tb == nil {
		panic("kafkatest: the shared cluster must not be disturbed, use Start or Three")
	}
	c.tb.Helper()
	if err := do(c.brokers[i]); err != nil {
		c.tb.Errorf("kafkatest: %v", err)
	}
}

// newCluster starts a cluster in dir. Nothing of it runs after an error.
func newCluster(ctx context.Context, tools toolchain, dir string, n int, s settings) (*Cluster, error) {
	var err error
	for attempt := range startAttempts {
		var c *Cluster
		c, err = tryCluster(ctx, tools, filepath.Join(dir, fmt.Sprint("try", attempt)), n, s)
		if err == nil {
			return c, nil
		}
		if c != nil {
			c.kill()
		}
		if !strings.Contains(err.Error(), "Address already in use") {
			return nil, err
		}
	}
	return nil, err
}

func tryCluster(ctx context.Context, tools toolchain, dir string, n int, s settings) (*Cluster, error) {
	further := len(s.listeners)
	ports, err := freePorts((2 + further) * n)
	if err != nil {
		return nil, err
	}
	brokers, controllers, others := ports[:n], ports[n:2*n], ports[2*n:]
	voters := make([]string, n)
	for i := range n {
		voters[i] = fmt.Sprintf("%d@%s:%s", i, controllers[i], newUUID())
	}
	format := []string{"--cluster-id", newUUID(), "--initial-controllers", strings.Join(voters, ",")}

	c := &Cluster{}
	for i := range n {
		bdir := filepath.Join(dir, fmt.Sprint("broker", i))
		b := &broker{id: i, addr: brokers[i], further: map[string]string{}, dir: bdir, tools: tools}
		for k, l := range s.listeners {
			b.further[l.name] = others[i*further+k]
		}
		c.brokers = append(c.brokers, b)
	}
	err = c.each(func(b *broker) error {
		props := s.properties(b.id, brokers, controllers, others[b.id*further:(b.id+1)*further], filepath.Join(b.dir, "data"))
		return b.prepare(ctx, props, format)
	})
	if err != nil {
		return c, err
	}
	return c, c.each(func(b *broker) error { return b.start(ctx) })
}

// each runs do for all brokers at once.
func (c *Cluster) each(do func(*broker) error) error {
	var g errgroup.Group
	for _, b := range c.brokers {
		g.Go(func() error { return do(b) })
	}
	return g.Wait()
}

// kill ends every broker that runs, paused ones too.
func (c *Cluster) kill() {
	_ = c.each(func(b *broker) error {
		if !b.running() {
			return errors.New("not running")
		}
		return b.end(sigKill)
	})
}

// logSizes are how much the brokers have logged by now.
func (c *Cluster) logSizes() []int64 {
	sizes := make([]int64, len(c.brokers))
	for i, b := range c.brokers {
		sizes[i] = b.logSize()
	}
	return sizes
}

// showLogs has t show what the brokers log from those sizes on, if it fails: the
// warnings and errors, all of it under -v.
func (c *Cluster) showLogs(t testing.TB, from []int64) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for i, b := range c.brokers {
			t.Logf("kafkatest: log of broker %d:\n%s", i, bytes.TrimSpace(b.log(from[i], testing.Verbose())))
		}
	})
}

// newUUID returns a random UUID as Kafka writes them: URL-safe base64, and
// never with a leading dash, which a command line would take for a flag.
func newUUID() string {
	for {
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails
		if s := base64.RawURLEncoding.EncodeToString(id[:]); s[0] != '-' {
			return s
		}
	}
}
