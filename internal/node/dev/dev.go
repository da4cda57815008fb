// Package dev runs a broker and an instance in one process, so that people can try things out. It prints what happens.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
)

const (
	// devPartitions is the partition count of topics that dev makes.
	devPartitions = 4
	// devLock is the file in the data directory that a running dev holds.
	devLock = "LOCK"
	// devPoll is how often dev checks whether its instance is live.
	devPoll = 20 * time.Millisecond
)

// Options are the options of Run.
type Options struct {
	Config  *config.Config // port 0 of Listen stands for any free port
	Program string         // how the user starts the program, for the commands that are printed
	Out     io.Writer
}

// Run runs everything in one process: an embedded broker that keeps its data in a directory, and an instance. It is
// only for development, because nothing is replicated.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	cfg := *o.Config
	lock, err := lockDirectory(cfg.DataDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	cluster, addr, err := embeddedBroker(cfg.Listen, filepath.Join(cfg.DataDir, "broker"))
	if err != nil {
		return err
	}
	defer cluster.Close()
	cfg.Brokers = []string{addr}
	if err := shareKey(&cfg); err != nil {
		return err
	}
	second, err := writeSecond(&cfg)
	if err != nil {
		return err
	}
	if err := devTopics(ctx, &cfg); err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &show{
		cfg: &cfg, second: second, program: o.Program, out: o.Out, registry: prometheus.NewRegistry(),
		since: time.Now(),
	}
	if host, port, _ := net.SplitHostPort(cfg.Listen); host == "" || net.ParseIP(host).IsUnspecified() {
		s.listen = net.JoinHostPort(host, port)
	}
	var showing sync.WaitGroup
	defer showing.Wait()
	defer cancel()
	showing.Go(func() {
		if err := s.run(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(o.Out, "what becomes of timers can no longer be shown: %v\n", err)
		}
	})
	err = node.RunWith(ctx, &cfg, log, node.Options{
		Shown: true, Registry: s.registry, Started: s.servesHTTP, StartedAPI: s.servesAPI,
	})
	cancel()
	showing.Wait()
	if err == nil {
		fmt.Fprintf(o.Out, "stopped; timers and topics are kept in %s\n", cfg.DataDir)
	}
	return err
}

// lockDirectory makes the directory and locks it, because an embedded broker does not notice another one that uses the
// same data. Close unlocks the directory, and so does the end of the process.
func lockDirectory(dir string) (io.Closer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	lock, err := vfs.Default.Lock(filepath.Join(dir, devLock))
	if err != nil {
		return nil, fmt.Errorf("another process works in %s; stop it, or choose another directory with --data-dir (%w)",
			dir, err)
	}
	return lock, nil
}

// embeddedBroker starts kfake on addr.
func embeddedBroker(addr, dir string) (*kfake.Cluster, string, error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, "", fmt.Errorf("listen address %q: want host:port: %w", addr, err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, "", fmt.Errorf("listen address %q: port is no number", addr)
	}
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(dir), kfake.ClusterID(connect.DevCluster),
		kfake.DefaultNumPartitions(devPartitions),
		kfake.GroupMinSessionTimeout(time.Second),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			_, p, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			l, err := net.Listen(network, net.JoinHostPort(host, p))
			if err != nil {
				return nil, err
			}
			return advertised{l, reachable(host)}, nil
		}),
	)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, "", fmt.Errorf(
			"start the embedded broker: another process has taken %s; choose another address with --listen "+
				"(if that is another dev, end it, or also choose others with --http and --api)", addr)
	}
	if err != nil {
		return nil, "", fmt.Errorf("start the embedded broker on %s with its data in %s: %w", addr, dir, err)
	}
	createOnUse(cluster)
	refuseFuture(cluster)
	return cluster, cluster.ListenAddrs()[0], nil
}

// advertised is a listener whose address has the advertised host of the embedded broker instead of the host that the
// listener is bound to.
type advertised struct {
	net.Listener
	host string
}

// Addr implements net.Listener.
func (a advertised) Addr() net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", a.Listener.Addr().String())
	ip := net.ParseIP(a.host)
	if err != nil || ip == nil {
		return a.Listener.Addr()
	}
	addr.IP = ip
	return addr
}

// reachable returns an address by which clients reach a listener on host; "" if host itself is such an address. If host
// stands for all addresses of the machine, it prefers an address that other machines can reach.
func reachable(host string) string {
	if host != "" && !net.ParseIP(host).IsUnspecified() {
		return ""
	}
	addrs, _ := net.InterfaceAddrs() // without them, the loopback address is left
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

// createOnUse makes topics on first use, if clients allow that. The embedded broker could do so itself, but it would
// save a topic's name only at a clean stop. After a kill there would be data without a topic, and a new topic of the
// same name would overwrite the data.
func createOnUse(cluster *kfake.Cluster) {
	cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		m, ok := req.(*kmsg.MetadataRequest)
		if !ok || !m.AllowAutoTopicCreation || len(m.Topics) == 0 {
			return nil, nil, false
		}
		cluster.SleepControl(func() {
			for _, t := range m.Topics {
				if t.Topic != nil && *t.Topic != "" && cluster.TopicInfo(*t.Topic) == nil {
					// If the topic cannot be made, the answer shows it as unknown.
					_ = cluster.CreateTopic(*t.Topic, devPartitions, nil)
				}
			}
		})
		return nil, nil, false
	})
}

// devTopics makes the request topics, the fixed-delay topics and the demo's target. Fixed-delay topics must have the
// broker's timestamps.
func devTopics(ctx context.Context, cfg *config.Config) error {
	cl, err := connect.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	names, delayed := slices.Concat(cfg.Requests, cfg.DelayTopics()), cfg.DelayTopics()
	if cfg.Demo {
		names = append(names, demoTopic)
	}
	for _, n := range names {
		var configs map[string]*string
		if slices.Contains(delayed, n) {
			configs = map[string]*string{"message.timestamp.type": kadm.StringPtr("LogAppendTime")}
		}
		_, err := kadm.NewClient(cl).CreateTopic(ctx, devPartitions, 1, configs, n)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create topic %s: %w", n, err)
		}
	}
	return nil
}
