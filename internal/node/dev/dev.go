// Package dev runs a broker and an instance in one process, so that people can try things out, and prints the outcomes:
//
//	err := dev.Run(ctx, dev.Options{Config: cfg, Program: "waterclock", Out: os.Stdout}, log)
package dev

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
			fmt.Fprintf(o.Out, "cannot show the outcomes of timers any more: %v\n", err)
		}
	})
	err = node.RunWith(ctx, &cfg, log, node.Options{
		Shown: true, Registry: s.registry, Started: func(addr string) { s.http.Store(&addr) },
		StartedAPI: func(url string) { s.api.Store(&url) },
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
		return nil, "", fmt.Errorf("listen address %q: port is not a number", addr)
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

const (
	// secondFile is the file in the data directory with the settings of a second instance.
	secondFile = "serve.yaml"
	// secondDir is the data directory of that instance, below that of dev.
	secondDir = "serve"
	// keyFile is the file in the data directory with the key by which instances forward calls to each other.
	keyFile = "api-key"
)

// shareKey gives an instance with an API a key to share with others, unless it has one. The key is kept for later
// starts, because a second instance may outlive the first.
func shareKey(cfg *config.Config) error {
	if cfg.API == "" || cfg.APIKeyFile != "" {
		return nil
	}
	cfg.APIKeyFile = filepath.Join(cfg.DataDir, keyFile)
	f, err := os.OpenFile(cfg.APIKeyFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err == nil:
		_, err = fmt.Fprintln(f, rand.Text()+rand.Text())
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("make a key that instances share: %w", err)
	}
	return nil
}

// writeSecond writes the settings with which serve joins dev's group, and returns the path of the file. Settings by
// which requests are judged are those of dev; addresses and directories are the second instance's own.
func writeSecond(cfg *config.Config) (path string, err error) {
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return "", fmt.Errorf("name the data directory of a second instance: %w", err)
	}
	second, usual := *cfg, config.Default()
	second.DataDir = filepath.Join(dir, secondDir)
	second.HTTP, second.APIAudit = usual.HTTP, usual.APIAudit
	second.LogLevel, second.LogFormat = usual.LogLevel, usual.LogFormat
	second.InstanceID, second.OnStop, second.Pprof, second.Advertise = "", usual.OnStop, "", ""
	if host, _, err := net.SplitHostPort(cfg.API); err == nil {
		second.API = net.JoinHostPort(host, "0") // any free port
	}
	for _, file := range []*string{
		&second.APIKeyFile, &second.APIUsers, &second.APITLSCert, &second.APITLSKey, &second.APIClientCA,
		&second.HTTPWebConfig,
	} {
		if *file == "" {
			continue
		}
		if *file, err = filepath.Abs(*file); err != nil {
			return "", fmt.Errorf("name a file of a second instance: %w", err)
		}
	}
	text, err := second.Brief()
	if err != nil {
		return "", fmt.Errorf("encode the settings of a second instance: %w", err)
	}
	text = append([]byte("# The settings of waterclock dev, for a second instance beside it:\n"+
		"# waterclock serve --config THIS-FILE. dev writes this file at each start.\n"), bytes.TrimSpace(text)...)
	path = filepath.Join(cfg.DataDir, secondFile)
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return "", fmt.Errorf("write the settings of a second instance: %w", err)
	}
	return path, nil
}

// afterMax is Kafka's default of message.timestamp.after.max.ms.
const afterMax = time.Hour

// refuseFuture makes the embedded broker reject batches with a timestamp too far in the future, as Kafka does
// (KIP-937). kfake takes any, so a producer that sets a due time as the timestamp would learn of it only from a real
// broker.
func refuseFuture(cluster *kfake.Cluster) {
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		produce, ok := req.(*kmsg.ProduceRequest)
		if !ok {
			return nil, nil, false
		}
		for _, t := range produce.Topics {
			for _, p := range t.Partitions {
				var b kmsg.RecordBatch
				ahead := time.Duration(0)
				if b.ReadFrom(p.Records) == nil { // otherwise kfake rejects it
					ahead = time.Until(time.UnixMilli(b.MaxTimestamp))
				}
				if ahead > 0 && ahead > mayBeAhead(cluster, &t) {
					cluster.Fault(kfake.Fault{
						Keys: []kmsg.Key{kmsg.Produce}, Topic: t.Topic, TopicID: t.TopicID,
						Partitions: []int32{p.Partition},
						Err:        kerr.InvalidTimestamp, When: func(now kmsg.Request) bool { return now == req },
					})
				}
			}
		}
		return nil, nil, false
	})
}

// mayBeAhead returns how far in the future a timestamp may be in a topic.
func mayBeAhead(cluster *kfake.Cluster, t *kmsg.ProduceRequestTopic) time.Duration {
	const forever = time.Duration(1<<63 - 1)
	info := cluster.TopicInfo(t.Topic)
	if t.Topic == "" {
		info = cluster.TopicIDInfo(t.TopicID)
	}
	if info == nil {
		return forever // kfake rejects it
	}
	setting := func(name string) string {
		if v := info.Configs[name]; v != nil {
			return *v
		}
		return ""
	}
	if setting("message.timestamp.type") == "LogAppendTime" {
		return forever // the broker's own timestamp takes its place
	}
	if ms, err := strconv.ParseInt(setting("message.timestamp.after.max.ms"), 10, 64); err == nil {
		return min(time.Duration(ms), forever/time.Millisecond) * time.Millisecond
	}
	return afterMax
}
