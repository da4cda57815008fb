package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
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
		Short: "measure how fast, how late, how dear and how big, next to what the machine can do",
		Long: `bench runs workloads against a cluster and measures, in the same run, what the
machine can do at best without timers. With --local it starts an instance of this
program as a process of its own, and, unless --brokers says where some are, a real
broker, which needs Java 17 and Maven. Without, it measures the instances that
serve --requests: it first sees to it that somebody does, and cancels at the end
what has not fired. It exits 1 if an emission was lost, duplicated, early or altered.`,
		Example: `  waterclock bench life --local
  waterclock bench steady --local --rates 1000,10000 --json
  waterclock bench steady --brokers 127.0.0.1:9092 --requests timers --target bench-out    # against running instances`,
	}
	cmd.AddCommand(benchLife(p), benchWait(p), benchSteady(p), benchCurve(p), benchBurst(p), benchHot(p), benchFixed(p), benchLoad(p), benchRestart(p), benchCancel(p), benchOverload(p), benchAPI(p), benchLimit(p), benchBare(p))
	return cmd
}

// benchFlags are the flags of every workload that are no settings of a service.
type benchFlags struct {
	json bool
	logs string // directory
}

// bindBench declares what all workloads share and gives cmd its life.
func bindBench(p *process, cmd *cobra.Command, c *bench.Common, w bench.Workload) {
	defaults := config.Default()
	defaults.Brokers, defaults.DataDir, defaults.HTTP = nil, "", "127.0.0.1:0"
	defaults.LogLevel = slog.LevelWarn // of the bench itself; an instance has its own default
	load := settings(p, cmd, defaults, func(cfg *config.Config) error {
		if len(cfg.Brokers) > 0 {
			return cfg.ValidateClient()
		}
		if !c.Local {
			cfg.Brokers = []string{defaultBroker}
		}
		return nil
	}, config.Client, config.Instance, config.Log)
	f := &benchFlags{}
	fs := cmd.Flags()
	fs.BoolVar(&f.json, "json", false, "print reports as JSON, one object each")
	fs.StringVar(&f.logs, "logs", "", "keep what the processes of the run write in `DIRECTORY`")
	fs.StringVar(&c.Profiles, "profiles", "", "write processor profiles of the instance and of the bare loops to `DIRECTORY`")
	fs.BoolVar(&c.Local, "local", c.Local, "start an instance, and a broker unless --brokers names some")
	fs.IntVar(&c.Brokers, "local-brokers", c.Brokers, "start `N` brokers, 1 or 3")
	fs.IntVar(&c.Partitions, "partitions", c.Partitions, "give the topics of the run `N` partitions")
	fs.IntVar(&c.Replication, "replication-factor", c.Replication, "give the topics of the run `N` replicas; -1 for the broker's default")
	fs.IntVar(&c.ValueBytes, "value-bytes", c.ValueBytes, "payload of a timer: `N` bytes that do not compress")
	fs.IntSliceVar(&c.Steps, "transaction-sizes", c.Steps, "pass-throughs take `N,...` records in a transaction, one after the other; the best counts")
	fs.IntVar(&c.PassRecords, "records", c.PassRecords, "each pass-through passes `N` records")
	fs.IntSliceVar(&c.IDs, "ids", c.IDs, "pass-throughs use `N,...` transactional IDs in turn, with the best size of a transaction; the best counts")
	fs.IntSliceVar(&c.Loops, "loops", c.Loops, "pass-throughs run in `N,...` loops side by side, with the best of all that; the best counts")
	fs.IntVar(&c.Rounds, "rounds", c.Rounds, "repeat all of it `N` times; the ratios are medians")
	fs.DurationVar(&c.Timeout, "timeout", c.Timeout, "give up after `DURATION`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		c.Cluster = cfg
		return f.run(p, cmd, c, w)
	}
}

// run measures, and prints what was measured.
func (f *benchFlags) run(p *process, cmd *cobra.Command, c *bench.Common, w bench.Workload) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	c.Serve = append([]string{self, "serve"}, passOn(cmd.Flags(), forService)...)
	c.Bare = append([]string{self, "bench", bareCommand}, passOn(cmd.Flags(), forClient)...)
	c.Log = ops.NewLogger(p.stderr, c.Cluster)
	if terminal(p.stderr) {
		s := &screen{w: p.stderr}
		c.Progress, c.Log = s, ops.NewLogger(lines{s}, c.Cluster)
	}
	if err := f.makeDirectories(c); err != nil {
		return err
	}
	defer os.RemoveAll(c.Dir)
	reports, err := bench.Run(cmd.Context(), w)
	if f.logs == "" {
		err = keepLogs(p.stderr, c.Logs, err)
	}
	return errors.Join(err, f.print(p.stdout, reports))
}

// makeDirectories makes those of a run, and sees to it that what it is to leave can be
// left.
func (f *benchFlags) makeDirectories(c *bench.Common) (err error) {
	for name, dir := range map[string]string{"logs": f.logs, "profiles": c.Profiles} {
		if dir != "" {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return usagef("--%s: %v", name, err)
			}
		}
	}
	// A directory of its own, also inside one that is in use.
	if c.Dir, err = os.MkdirTemp(c.Cluster.DataDir, "waterclock-bench-"); err != nil {
		return usagef("--data-dir: %v", err)
	}
	if c.Logs = f.logs; c.Logs != "" {
		return nil
	}
	if c.Logs, err = os.MkdirTemp("", "waterclock-bench-logs-"); err != nil {
		return fmt.Errorf("make a directory for logs: %w", err)
	}
	return nil
}

func (f *benchFlags) print(w io.Writer, reports []*bench.Report) (err error) {
	for _, rep := range reports {
		if f.json {
			err = errors.Join(err, rep.WriteJSON(w))
		} else {
			rep.WriteTable(w)
		}
	}
	return err
}

// keepLogs deletes what the processes wrote, unless something went wrong, other than
// that somebody stopped it, and there is something to read.
func keepLogs(w io.Writer, dir string, err error) error {
	if err != nil && !errors.Is(err, context.Canceled) && os.Remove(dir) != nil { // it is not empty
		fmt.Fprintf(w, "what instance and bare loops wrote is in %s\n", dir)
		return err
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// bindInstances declares which instances a workload measures.
func bindInstances(cmd *cobra.Command, c *bench.Common) {
	fs := cmd.Flags()
	fs.StringVar(&c.Requests, "requests", "", "use the instances that serve request `TOPIC`; --group must be theirs")
	fs.StringVar(&c.Target, "target", "", "let timers fire on `TOPIC`, which the instances must allow")
}

// terminal tells whether a person looks at w.
func terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func benchLife(p *process) *cobra.Command {
	c := bench.DefaultLife()
	cmd := &cobra.Command{Use: "life", Short: "timers that live two seconds, as many as go through"}
	bindLives(p, cmd, &c, &c)
	return cmd
}

func benchWait(p *process) *cobra.Command {
	c := bench.DefaultWait()
	cmd := &cobra.Command{Use: "wait", Short: "timers that wait 15 to 60 s: taken in as fast as can be, fired as they fall due"}
	bindLives(p, cmd, &c.LifeConfig, &c)
	return cmd
}

func bindLives(p *process, cmd *cobra.Command, c *bench.LifeConfig, w bench.Workload) {
	bindBench(p, cmd, &c.Common, w)
	bindInstances(cmd, &c.Common)
	fs := cmd.Flags()
	fs.BoolVar(&c.Events, "events", false, "have the instance write outcome events; with --local alone")
	fs.IntVar(&c.Timers, "timers", c.Timers, "schedule `N` timers")
	fs.DurationVar(&c.Least, "least", c.Least, "each is due `DURATION` or more after it is sent")
	fs.DurationVar(&c.Spread, "spread", c.Spread, "and that up to `DURATION` later")
}

func benchSteady(p *process) *cobra.Command {
	c := bench.DefaultSteady()
	cmd := &cobra.Command{Use: "steady", Short: "how late emissions are at given rates, next to a bare loop of transactions"}
	bindSteady(p, cmd, &c, &c)
	bindInstances(cmd, &c.Common)
	cmd.Flags().DurationVar(&c.Every, "every", c.Every, "at each rate measure recurring timers with an interval of `DURATION` too; 0 for none")
	return cmd
}

func bindSteady(p *process, cmd *cobra.Command, c *bench.SteadyConfig, w bench.Workload) {
	bindBench(p, cmd, &c.Common, w)
	fs := cmd.Flags()
	fs.Float64SliceVar(&c.Rates, "rates", c.Rates, "schedule so many timers a second, one after the other: `N,...`")
	fs.DurationVar(&c.Duration, "duration", c.Duration, "each rate is measured for `DURATION`")
	fs.DurationVar(&c.Least, "least", c.Least, "each timer is due `DURATION` or more after it is sent")
	fs.DurationVar(&c.Spread, "spread", c.Spread, "and that up to `DURATION` later")
}

func benchCurve(p *process) *cobra.Command {
	c := bench.DefaultCurve()
	cmd := &cobra.Command{
		Use:   "curve",
		Short: "what lateness costs: processor time at given rates and firing intervals",
		Long: `curve starts an instance of its own for each of --intervals, which are its
--firing-interval, and measures it at each rate. The first interval is what the
others are compared with.`,
	}
	bindSteady(p, cmd, &c.SteadyConfig, &c)
	cmd.Flags().DurationSliceVar(&c.Intervals, "intervals", c.Intervals, "begin transactions at most so often, one after the other: `DURATION,...`")
	cmd.Flags().DurationVar(&c.Rest, "rest", c.Rest, "measure an instance with nothing to do for `DURATION`, and then the brokers alone; 0 for neither")
	return cmd
}

func benchBurst(p *process) *cobra.Command {
	c := bench.DefaultBurst()
	cmd := &cobra.Command{Use: "burst", Short: "timers that are all due at one moment"}
	bindBench(p, cmd, &c.Common, &c)
	bindInstances(cmd, &c.Common)
	cmd.Flags().IntVar(&c.Timers, "timers", c.Timers, "schedule `N` timers")
	return cmd
}

func benchHot(p *process) *cobra.Command {
	c := bench.DefaultHot()
	cmd := &cobra.Command{
		Use:   "hot",
		Short: "one partition that gets everything: requests that wait in its log, then timers that are all due",
		Long: `hot starts instances of its own, one for each of --subs, which are its
--sub-partitions. The first number is what the others are compared with.`,
	}
	bindBench(p, cmd, &c.Common, &c)
	cmd.Flags().IntVar(&c.Timers, "timers", c.Timers, "schedule `N` timers")
	cmd.Flags().DurationVar(&c.Start, "start", c.Start, "an instance may take `DURATION` to start; then timers are taken in, and then they are due")
	cmd.Flags().IntSliceVar(&c.Subs, "subs", c.Subs, "plan in so many parts, one number after the other: `N,...`")
	return cmd
}

func benchFixed(p *process) *cobra.Command {
	c := bench.DefaultFixed()
	cmd := &cobra.Command{
		Use: "fixed", Short: "records of a fixed-delay topic that are all due at one moment",
		Long: "fixed starts an instance of its own, for a fixed-delay topic of the run.",
	}
	bindBench(p, cmd, &c.Common, &c)
	fs := cmd.Flags()
	fs.IntVar(&c.Records, "delayed", c.Records, "send `N` records through the fixed-delay topic")
	fs.DurationVar(&c.Delay, "delay", c.Delay, "its delay")
	return cmd
}

func benchCancel(p *process) *cobra.Command {
	c := bench.DefaultCancel()
	cmd := &cobra.Command{Use: "cancel", Short: "timers of which nine in ten are cancelled"}
	bindBench(p, cmd, &c.Common, &c)
	bindInstances(cmd, &c.Common)
	fs := cmd.Flags()
	fs.IntVar(&c.Timers, "timers", c.Timers, "schedule `N` timers")
	fs.IntVar(&c.Kept, "kept", c.Kept, "one in `N` is not cancelled")
	fs.DurationVar(&c.Least, "least", c.Least, "each is due `DURATION` after it is sent")
	return cmd
}

func benchOverload(p *process) *cobra.Command {
	c := bench.DefaultOverload()
	cmd := &cobra.Command{
		Use:   "overload",
		Short: "twice as many timers as go through: what they cost, how late what is read in time is, how soon it is over",
		Long: `overload starts an instance of its own for each case. It offers 0.8 of the capacity, twice
the capacity, nothing until all is taken in, and 0.8 again. The cases: timers alone (plain); most of
them cancelled (cancels); all of them on one partition, beside a modest load on the others (hot);
another instance that joins in the middle (rebalance).`,
	}
	bindBench(p, cmd, &c.Common, &c)
	fs := cmd.Flags()
	fs.StringSliceVar(&c.Cases, "cases", c.Cases, "measure `CASE,...`, one after the other")
	fs.Float64Var(&c.Capacity, "capacity", c.Capacity, "take `N` timers a second for the capacity; 0: measure it first")
	fs.IntVar(&c.Timers, "timers", c.Timers, "measure it by `N` timers")
	fs.DurationVar(&c.Before, "before", c.Before, "offer 0.8 of it for `DURATION`, before and after")
	fs.DurationVar(&c.Over, "over", c.Over, "offer twice of it for `DURATION`")
	fs.DurationVar(&c.Least, "least", c.Least, "each timer is due `DURATION` or more after it is sent")
	fs.DurationVar(&c.Spread, "spread", c.Spread, "and that up to `DURATION` later")
	return cmd
}

func benchLoad(p *process) *cobra.Command {
	c := bench.DefaultLoad()
	cmd := &cobra.Command{
		Use:   "load",
		Short: "many timers that are not due for a day, and how late others are meanwhile",
		Long:  "load starts an instance of its own: nobody's topic should be left with that many timers.",
	}
	bindSteady(p, cmd, &c.SteadyConfig, &c)
	cmd.Flags().IntVar(&c.Pending, "pending", c.Pending, "schedule `N` timers that stay pending")
	return cmd
}

func benchRestart(p *process) *cobra.Command {
	c := bench.DefaultRestart()
	cmd := &cobra.Command{
		Use:   "restart",
		Short: "time to ready with many pending timers, and what they cost on disk and in memory",
		Long: `restart starts instances of its own, kills one, stops one in order, and takes the
directory of one away. They are static members of a group of the run, so that the time
to ready is theirs and not the group's.`,
	}
	bindBench(p, cmd, &c.Common, &c)
	fs := cmd.Flags()
	fs.IntVar(&c.Pending, "pending", c.Pending, "schedule `N` timers that stay pending")
	fs.IntVar(&c.Overdue, "overdue", c.Overdue, "let `N` timers fall due while the instance is stopped")
	return cmd
}

func benchAPI(p *process) *cobra.Command {
	c := bench.DefaultAPI()
	cmd := &cobra.Command{
		Use: "api", Short: "calls of the HTTP API: how fast, how dear, and how late timers are beside them",
		Long: "api starts an instance of its own, whose API nobody else calls.",
	}
	bindSteady(p, cmd, &c.SteadyConfig, &c)
	fs := cmd.Flags()
	fs.IntVar(&c.Puts, "puts", c.Puts, "all callers make `N` PUTs together")
	fs.IntVar(&c.Gets, "gets", c.Gets, "all callers make `N` GETs together")
	fs.IntVar(&c.Callers, "callers", c.Callers, "`N` callers call at a time")
	fs.IntVar(&c.Pending, "pending", c.Pending, "schedule `N` timers that lists are taken of, and jobs cancel some of")
	fs.IntVar(&c.Doomed, "doomed", c.Doomed, "one in `N` of the pending timers is cancelled by its prefix")
	return cmd
}

func benchLimit(p *process) *cobra.Command {
	c := bench.DefaultLimit()
	cmd := &cobra.Command{
		Use:   "limit",
		Short: "what the cluster can do without timers: consume, produce, commit",
	}
	bindBench(p, cmd, &c.Common, &c)
	return cmd
}

// bareCommand runs a bare loop for a workload, which talks to it.
const bareCommand = "bare"

func benchBare(p *process) *cobra.Command {
	cmd := &cobra.Command{Use: bareCommand, Short: "a bare loop of another bench", Hidden: true}
	load := settings(p, cmd, config.Default(), (*config.Config).ValidateClient, config.Client, config.Log)
	cmd.RunE = configured(load, func(ctx context.Context, cfg *config.Config) error {
		return bench.RunBare(ctx, cfg, ops.NewLogger(p.stderr, cfg), p.stdin, p.stdout)
	})
	return cmd
}

// passOn gives the settings on the command line that a process of the run needs as
// well. The bench itself chooses the others.
func passOn(fs *pflag.FlagSet, needs func(name string) bool) (args []string) {
	fs.Visit(func(f *pflag.Flag) {
		if needs(f.Name) {
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	return args
}

// forClient tells whether a setting says how to reach the cluster, or how to log.
func forClient(name string) bool {
	return name == "config" || strings.HasPrefix(name, "tls") || strings.HasPrefix(name, "sasl-") || strings.HasPrefix(name, "log-")
}

// forService tells whether an instance needs a setting.
func forService(name string) bool {
	switch name {
	case "session-timeout", "rebalance-timeout", "lanes", "transactional-ids", "transaction-timeout",
		"memory", "pprof":
		return true
	}
	return forClient(name)
}
