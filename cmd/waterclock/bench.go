package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/pprof"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/waterclock/waterclock/bench"
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/ops"
)

func benchCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure how fast, how late and how big, next to what the machine can do",
		Long: `bench runs workloads against a cluster and measures, in the same run, what the
machine can do at best without timers. It makes topics of its own and deletes
them. On a request topic of others (--requests) it first sees to it that somebody
serves it, and cancels at the end what has not fired. It exits 1 if an emission was
lost, doubled, early or altered.`,
		Example: `  waterclock bench throughput --local --brokers 127.0.0.1:9092
  waterclock bench lateness --brokers 127.0.0.1:9092 --requests timers --target bench-out    # against running instances
  waterclock bench restart --pending 2000000 --json`,
	}
	cmd.AddCommand(benchThroughput(p), benchLateness(p), benchRestart(p), benchPass(p))
	return cmd
}

// benchFlags are the flags of every workload that are no settings of a service.
type benchFlags struct {
	local, json bool
	cpu, mem    string // profiles
}

// bindBench declares what all workloads share and gives cmd its life.
func bindBench(p *process, cmd *cobra.Command, c *bench.Common, measure func(context.Context) (*bench.Report, error)) *benchFlags {
	defaults := config.Default()
	defaults.Brokers, defaults.DataDir, defaults.HTTP = []string{defaultBroker}, "", "127.0.0.1:0"
	defaults.LogLevel = slog.LevelWarn // what is measured is not to drown in logs
	load := settings(p, cmd, defaults, (*config.Config).ValidateClient, config.Client, config.Instance, config.Log)
	f := &benchFlags{}
	fs := cmd.Flags()
	fs.BoolVar(&f.json, "json", false, "print the report as JSON")
	fs.StringVar(&f.cpu, "cpuprofile", "", "write a CPU profile of this process to `FILE`")
	fs.StringVar(&f.mem, "memprofile", "", "write a profile of allocations of this process to `FILE`")
	fs.IntVar(&c.Partitions, "partitions", c.Partitions, "give the topics of the run `N` partitions")
	fs.IntVar(&c.Replication, "replication-factor", c.Replication, "give the topics of the run `N` replicas; -1 for the broker's default")
	fs.IntVar(&c.ValueBytes, "value-bytes", c.ValueBytes, "payload of a timer: `N` bytes that do not compress")
	fs.DurationVar(&c.Timeout, "timeout", c.Timeout, "give up after `DURATION`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		c.Cluster, c.Log = cfg, ops.NewLogger(p.stderr, cfg)
		if terminal(p.stderr) {
			s := &screen{w: p.stderr}
			c.Progress, c.Log = s, ops.NewLogger(lines{s}, cfg)
		}
		// A folder of its own, also inside one that is in use.
		dir, err := os.MkdirTemp(cfg.DataDir, "waterclock-bench-")
		if err != nil {
			return usagef("--data-dir: %v", err)
		}
		defer os.RemoveAll(dir)
		cfg.DataDir = dir
		if f.local {
			c.Serve = bench.InProcess(c.Log)
		}
		return f.profiled(func() error {
			rep, err := measure(cmd.Context())
			return errors.Join(f.print(p.stdout, rep), err)
		})
	}
	return f
}

// bindInstances declares which instances a workload measures.
func bindInstances(cmd *cobra.Command, c *bench.Common, f *benchFlags) {
	fs := cmd.Flags()
	fs.BoolVar(&f.local, "local", false, "start an instance in this process, on topics of the run")
	fs.StringVar(&c.Requests, "requests", "", "use the instances that serve request `TOPIC`; --group must be theirs")
	fs.StringVar(&c.Target, "target", "", "let timers fire on `TOPIC`, which the instances must allow")
}

func (f *benchFlags) print(out io.Writer, rep *bench.Report) error {
	if rep == nil {
		return nil
	}
	if f.json {
		return rep.WriteJSON(out)
	}
	rep.WriteTable(out)
	return nil
}

// profiled runs do under the profiles asked for.
func (f *benchFlags) profiled(do func() error) (err error) {
	if f.cpu != "" {
		file, err := os.Create(f.cpu)
		if err != nil {
			return usagef("--cpuprofile: %v", err)
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	if f.mem != "" {
		file, err := os.Create(f.mem)
		if err != nil {
			return usagef("--memprofile: %v", err)
		}
		defer file.Close()
		defer func() { err = errors.Join(err, pprof.Lookup("allocs").WriteTo(file, 0)) }()
	}
	return do()
}

// terminal tells whether a person looks at w.
func terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func benchThroughput(p *process) *cobra.Command {
	c := bench.DefaultThroughput()
	cmd := &cobra.Command{
		Use:   "throughput",
		Short: "lives and firings a second, next to a transactional pass-through",
	}
	f := bindBench(p, cmd, &c.Common, func(ctx context.Context) (*bench.Report, error) { return bench.RunThroughput(ctx, c) })
	bindInstances(cmd, &c.Common, f)
	fs := cmd.Flags()
	fs.IntVar(&c.Timers, "timers", c.Timers, "schedule `N` timers whose whole lives are measured")
	fs.DurationVar(&c.Spread, "spread", c.Spread, "each is due within `DURATION` of being sent")
	fs.IntVar(&c.Burst, "burst", c.Burst, "then schedule `N` timers that are due at one moment")
	fs.IntVar(&c.Rounds, "rounds", c.Rounds, "repeat all of it `N` times")
	fs.IntVar(&c.Step, "step", c.Step, "the pass-through takes `N` records in a transaction")
	return cmd
}

func benchLateness(p *process) *cobra.Command {
	c := bench.DefaultLateness()
	cmd := &cobra.Command{
		Use:   "lateness",
		Short: "how late emissions are at given rates, next to a bare loop of transactions",
	}
	f := bindBench(p, cmd, &c.Common, func(ctx context.Context) (*bench.Report, error) { return bench.RunLateness(ctx, c) })
	bindInstances(cmd, &c.Common, f)
	fs := cmd.Flags()
	fs.Float64SliceVar(&c.Rates, "rates", c.Rates, "schedule so many timers a second, one after the other: `N,...`")
	fs.DurationVar(&c.Duration, "duration", c.Duration, "each rate lasts `DURATION`")
	fs.DurationVar(&c.Least, "least", c.Least, "each timer is due `DURATION` or more after it is sent")
	fs.DurationVar(&c.Spread, "spread", c.Spread, "and that up to `DURATION` later")
	return cmd
}

func benchRestart(p *process) *cobra.Command {
	c := bench.DefaultRestart()
	cmd := &cobra.Command{
		Use:   "restart",
		Short: "time to ready with many pending timers, and what they cost on disk and in memory",
		Long: `restart starts instances of this program as processes of their own, kills one,
stops one in order, and takes the folder of one away. They are static members of
a group of the run, so that the time to ready is theirs and not the group's.`,
	}
	bindBench(p, cmd, &c.Common, func(ctx context.Context) (*bench.Report, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
		c.Command, c.Dir = append([]string{self, "serve"}, passOn(cmd.Flags())...), c.Cluster.DataDir
		return bench.RunRestart(ctx, c)
	})
	fs := cmd.Flags()
	fs.IntVar(&c.Pending, "pending", c.Pending, "schedule `N` timers that stay pending")
	fs.IntVar(&c.Overdue, "overdue", c.Overdue, "let `N` timers fall due while the instance is stopped")
	return cmd
}

func benchPass(p *process) *cobra.Command {
	c := bench.DefaultPass()
	cmd := &cobra.Command{
		Use:   "pass-through",
		Short: "what the cluster can do without timers: consume, produce, commit",
	}
	bindBench(p, cmd, &c.Common, func(ctx context.Context) (*bench.Report, error) { return bench.RunPass(ctx, c) })
	fs := cmd.Flags()
	fs.IntVar(&c.Records, "records", c.Records, "pass `N` records")
	fs.IntVar(&c.Step, "step", c.Step, "take `N` of them in a transaction")
	fs.IntVar(&c.IDs, "ids", c.IDs, "use `N` transactional IDs in turn")
	fs.IntSliceVar(&c.Fanouts, "fanout", c.Fanouts, "write `N,...` records for each one read")
	return cmd
}

// passOn gives the settings on the command line that an instance of its own
// needs as well. The bench itself chooses the others.
func passOn(fs *pflag.FlagSet) (args []string) {
	fs.Visit(func(f *pflag.Flag) {
		switch name := f.Name; {
		case name == "config", strings.HasPrefix(name, "tls"), strings.HasPrefix(name, "sasl-"), strings.HasPrefix(name, "log-"),
			name == "session-timeout", name == "rebalance-timeout", name == "sub-partitions", name == "lanes",
			name == "transactional-ids", name == "transaction-timeout", name == "wheel-memory", name == "queue-memory", name == "store-memory":
			args = append(args, "--"+name+"="+f.Value.String())
		}
	})
	return args
}
