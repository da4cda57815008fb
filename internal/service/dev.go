package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/config"
)

const (
	// devPartitions is the partition count of topics that dev makes.
	devPartitions = 4
	// demoTopic is where the demo timers fire.
	demoTopic = "demo"
	demoCount = 3
)

// DevOptions are those of Dev.
type DevOptions struct {
	Config *config.Config
	Listen string // address of the embedded broker, host:port; port 0 is any
	Demo   bool   // schedule a few timers and print their emissions
	Out    io.Writer
}

// Dev runs everything in one process: an embedded broker that keeps its data in
// a folder, and an instance. For development alone: nothing is replicated.
func Dev(ctx context.Context, o DevOptions, log *slog.Logger) error {
	cfg := *o.Config
	cluster, addr, err := embeddedBroker(o.Listen, filepath.Join(cfg.DataDir, "broker"))
	if err != nil {
		return err
	}
	defer cluster.Close()
	cfg.Brokers = []string{addr}
	if err := devTopics(ctx, &cfg, o.Demo); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "embedded Kafka broker (development only) on %s, data in %s\n", addr, cfg.DataDir)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var demo sync.WaitGroup
	defer demo.Wait()
	defer cancel()
	return RunWith(ctx, &cfg, log, Options{AutoCreateTargets: true, Started: func(http string) {
		demo.Go(func() {
			if o.Demo {
				if err := runDemo(ctx, &cfg, o.Out); err != nil && ctx.Err() == nil {
					fmt.Fprintf(o.Out, "demo: %v\n", err)
				}
			}
			if ctx.Err() == nil {
				printHelp(o.Out, &cfg, addr, http)
			}
		})
	}})
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
	if port == 0 {
		if port, err = freePort(host); err != nil {
			return nil, "", err
		}
	}
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(dir), kfake.ClusterID("waterclock-dev"),
		kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(devPartitions),
		kfake.GroupMinSessionTimeout(time.Second),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			_, p, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return net.Listen(network, net.JoinHostPort(host, p))
		}),
	)
	if err != nil {
		return nil, "", fmt.Errorf("start the embedded broker on %s with its data in %s: %w", addr, dir, err)
	}
	return cluster, cluster.ListenAddrs()[0], nil
}

func freePort(host string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// devTopics makes the request topics, and the demo's target.
func devTopics(ctx context.Context, cfg *config.Config, demo bool) error {
	cl, err := commandClient(cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	names := append([]string{}, cfg.Requests...)
	if demo {
		names = append(names, demoTopic)
	}
	for _, n := range names {
		_, err := kadm.NewClient(cl).CreateTopic(ctx, devPartitions, 1, nil, n)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create topic %s: %w", n, err)
		}
	}
	return nil
}

// runDemo schedules a few timers and prints what comes of them.
func runDemo(ctx context.Context, cfg *config.Config, out io.Writer) error {
	// From the ends as of now: what earlier runs left is not shown.
	from, err := endsOf(ctx, cfg, demoTopic)
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer cl.Close()
	for i := 1; i <= demoCount; i++ {
		in := time.Duration(i) * time.Second
		id := fmt.Sprintf("demo-%d", i)
		rec, err := waterclock.Schedule(cfg.Requests[0], id, waterclock.After(in), waterclock.To(demoTopic),
			waterclock.Value([]byte(fmt.Sprintf("hello %d", i))))
		if err != nil {
			return err
		}
		if err := cl.ProduceSync(ctx, rec).FirstErr(); err != nil {
			return err
		}
		fmt.Fprintf(out, "scheduled %s on topic %s, due in %s on topic %s\n", id, cfg.Requests[0], in, demoTopic)
	}
	for seen := 0; seen < demoCount; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		now := time.Now()
		fetches.EachRecord(func(r *kgo.Record) {
			e, err := waterclock.ParseEmission(r)
			if err != nil {
				return
			}
			seen++
			fmt.Fprintf(out, "fired     %s with value %q: emitted %s after it was due, received %s after\n", e.ID, r.Value,
				r.Timestamp.Sub(e.Due).Round(time.Millisecond), now.Sub(e.Due).Round(100*time.Microsecond))
		})
	}
	return nil
}

func endsOf(ctx context.Context, cfg *config.Config, topic string) (map[string]map[int32]kgo.Offset, error) {
	cl, err := commandClient(cfg)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("list the ends of %s: %w", topic, err)
	}
	from := make(map[int32]kgo.Offset)
	ends.Each(func(o kadm.ListedOffset) { from[o.Partition] = kgo.NewOffset().At(o.Offset) })
	return map[string]map[int32]kgo.Offset{topic: from}, nil
}

func printHelp(out io.Writer, cfg *config.Config, addr, http string) {
	fmt.Fprintf(out, `
Kafka clients connect to %[1]s. Three commands to try in another terminal:

  waterclock schedule --brokers %[1]s --id a1 --in 10s --to %[2]s --value 'hello'
  waterclock cancel   --brokers %[1]s --id a1
  curl http://%[3]s/readyz

Topics are made on first use. Consume targets with isolation.level=read_committed.
Ctrl-C stops; the data stays in %[4]s.
`, addr, demoTopic, http, cfg.DataDir)
}
