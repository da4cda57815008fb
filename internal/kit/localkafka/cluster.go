package localkafka

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/internal/kit/child"
)

// startAttempts bounds how often a cluster is tried on other ports, because another process may take a port between
// our choice and its use.
const startAttempts = 3

// Cluster is a running Kafka cluster. A broker's node ID is its place in Brokers.
type Cluster struct {
	Brokers []*Broker
}

// Seeds returns the brokers' addresses, host:port.
func (c *Cluster) Seeds() []string {
	seeds := make([]string, len(c.Brokers))
	for i, b := range c.Brokers {
		seeds[i] = b.addr
	}
	return seeds
}

// Listener returns the brokers' addresses on a further listener.
func (c *Cluster) Listener(name string) []string {
	seeds := make([]string, len(c.Brokers))
	for i, b := range c.Brokers {
		seeds[i] = b.further[name]
	}
	return seeds
}

// Start brings up n combined brokers and controllers on free loopback ports, each with a directory in dir. If n is
// more than 1, topics have n replicas and a majority must be in sync. After an error no broker is left running.
func Start(ctx context.Context, tools Tools, dir string, n int, opts ...Option) (*Cluster, error) {
	s := newSettings(opts)
	var err error
	for attempt := range startAttempts {
		var c *Cluster
		c, err = tryCluster(ctx, tools, filepath.Join(dir, fmt.Sprint("try", attempt)), n, s)
		if err == nil {
			return c, nil
		}
		if c != nil {
			c.Close()
		}
		if !strings.Contains(err.Error(), "Address already in use") {
			return nil, err
		}
	}
	return nil, err
}

func tryCluster(ctx context.Context, tools Tools, dir string, n int, s settings) (*Cluster, error) {
	further := len(s.listeners)
	ports, err := FreeAddrs((2 + further) * n)
	if err != nil {
		return nil, err
	}
	brokers, controllers, others := ports[:n], ports[n:2*n], ports[2*n:]
	clusterID := newUUID()

	c := &Cluster{}
	for i := range n {
		bdir := filepath.Join(dir, fmt.Sprint("broker", i))
		b := &Broker{id: i, addr: brokers[i], further: map[string]string{}, dir: bdir, tools: tools}
		for k, l := range s.listeners {
			b.further[l.name] = others[i*further+k]
		}
		c.Brokers = append(c.Brokers, b)
	}
	err = c.Each(func(b *Broker) error {
		props := s.properties(b.id, brokers, controllers, others[b.id*further:(b.id+1)*further], b.dataPath())
		return b.prepare(ctx, props, clusterID)
	})
	if err != nil {
		return c, err
	}
	return c, c.Each(func(b *Broker) error { return b.Start(ctx) })
}

// Each calls do for all brokers, concurrently.
func (c *Cluster) Each(do func(*Broker) error) error {
	var g errgroup.Group
	for _, b := range c.Brokers {
		g.Go(func() error { return do(b) })
	}
	return g.Wait()
}

// Close ends every broker that runs, paused ones too.
func (c *Cluster) Close() {
	_ = c.Each(func(b *Broker) error {
		if !b.Running() {
			return errors.New("not running")
		}
		return b.End(child.Kill)
	})
}

// newUUID returns a random UUID as Kafka writes them: URL-safe base64, and never with a leading dash, which a command
// line would take for a flag.
func newUUID() string {
	for {
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails
		if s := base64.RawURLEncoding.EncodeToString(id[:]); s[0] != '-' {
			return s
		}
	}
}
