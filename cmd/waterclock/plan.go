package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/bench/sizing"
)

// planFlags holds the flags of plan.
type planFlags struct {
	load                sizing.Load
	rate, pending, size amount
	constants           string
	json                bool
}

func planCommand(p *process) *cobra.Command {
	f := planFlags{load: sizing.Defaults()}
	f.size = amount(f.load.Size)
	cmd := &cobra.Command{Use: "plan"}
	l, fs := &f.load, cmd.Flags()
	fs.Var(&f.rate, "rate",
		"`TIMERS` that are scheduled, and as many that fire, in each second of the busiest time; required")
	fs.Var(&f.pending, "pending", "`TIMERS` that are pending at most")
	fs.Var(&f.size, "size", "`BYTES` of a request: ID, payload and headers")
	fs.Float64Var(&l.Cores, "cores", l.Cores, "`CORES` of an instance")
	fs.Float64Var(&l.Busy, "busy", l.Busy, "`SHARE` of the cores that may be used while one instance is away")
	fs.IntVar(&l.Instances, "instances", 0, "`N` instances (default: as many as it takes)")
	fs.IntVar(&l.Partitions, "partitions", 0, "`N` partitions of the request topic (default: as many as it takes)")
	fs.DurationVar(&l.Interval, "firing-interval", l.Interval, "the setting firing-interval, a `DURATION`")
	fs.IntVar(&l.Replicas, "replicas", l.Replicas, "`N` replicas of each topic")
	fs.IntVar(&l.Standbys, "standbys", 0, "the setting standbys: `N` copies of each partition")
	fs.DurationVar(&l.Keep, "keep", l.Keep, "the changelog's delete.retention.ms, a `DURATION`")
	fs.DurationVar(&l.Clean, "clean", l.Clean,
		"`DURATION` of a round of the brokers' log cleaner, at most the changelog's max.compaction.lag.ms")
	fs.StringVar(&f.constants, "constants", "", "read measured constants from `FILE`")
	fs.BoolVar(&f.json, "json", false, "print the plan as one JSON object")
	cmd.RunE = func(*cobra.Command, []string) error { return f.run(p.stdout) }
	return cmd
}

func (pf *planFlags) run(out io.Writer) error {
	l, c := pf.load, sizing.Measured()
	l.Rate, l.Pending, l.Size = float64(pf.rate), float64(pf.pending), float64(pf.size)
	if err := l.Validate(); err != nil { // one line for each flag
		return usagef("--%s", strings.ReplaceAll(err.Error(), "\n", "\n--"))
	}
	if pf.constants != "" {
		data, err := os.ReadFile(pf.constants)
		if err != nil {
			return usagef("read constants: %v", err)
		}
		if c, err = sizing.ReadConstants(data); err != nil {
			return usagef("%s: %v", pf.constants, err)
		}
	}
	p := sizing.Make(l, c)
	if pf.json {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			Plan      sizing.Plan
			Load      sizing.Load
			Constants sizing.Constants
		}{p, l, c})
	}
	printPlan(out, &l, &p, &c)
	if pf.constants == "" {
		fmt.Fprintln(out, "\nThese constants are built in. 'waterclock bench plan --out FILE' measures those of a "+
			"machine, for --constants FILE.")
	} else {
		fmt.Fprintf(out, "\nThese are the constants of %s; those that it leaves out are built in.\n", pf.constants)
	}
	return nil
}

func printPlan(out io.Writer, l *sizing.Load, p *sizing.Plan, c *sizing.Constants) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-22s"+format+"\n", append([]any{name}, args...)...)
	}
	row("instances", "%d, of %v cores, of which %.2f are in use together", p.Instances, l.Cores, p.Cores)
	row("partitions", "%d", p.Partitions)
	row("memory", "%dMiB each (--memory), and as much again for the page cache", p.Memory>>20)
	row("disk", "%s each, while one instance is away", bytesOf(p.Disk))
	row("transactions", "%.0f a second", p.Transactions)
	row("changelog", "%s for each replica, %s records; %s to replay it all without a directory", bytesOf(p.Changelog),
		amount(math.Round(p.Records)), p.Replay.Round(time.Second))
	row("brokers", "%.2f cores; %s a second written, replicas included, %s a second sent", p.BrokerCores,
		bytesOf(p.Write), bytesOf(p.Read))
	fmt.Fprintln(out, "\nBottlenecks while one instance is down, the tightest first (1: fully used):")
	for _, s := range p.Shares {
		fmt.Fprintf(out, "  %.2f  %s\n", s.Used, s.Of)
	}
	for _, why := range p.Problems {
		fmt.Fprintf(out, "\nThis is not enough: %s.\n", why)
	}
	printLonger(out, l, p)
	fmt.Fprintf(out, "\nWith %v + %v µs of processor time a timer, %v + %v ms a transaction and %v + %v cores an "+
		"instance (service + broker;\n%v times as much for brokers with three replicas), %.2f bytes of disk a byte "+
		"of a pending request and %v times that\nwhile tables are merged, %.2f of changelog, %s timers a second of "+
		"one partition, %s records a second of a replay.\n",
		c.ServiceTimer, c.BrokerTimer, c.ServiceTransaction, c.BrokerTransaction, c.ServiceBase, c.BrokerBase,
		c.Replicas, c.DiskPerByte, c.DiskPeak, c.ChangelogPerByte, amount(c.Partition), amount(c.Replay))
}

// printLonger prints the saving by a longer firing interval, and the lateness that it costs.
func printLonger(out io.Writer, l *sizing.Load, p *sizing.Plan) {
	if len(p.Longer) == 0 {
		fmt.Fprintf(out, "\nA longer --firing-interval than %s would save nothing.\n", l.Interval)
		return
	}
	fmt.Fprintf(out, "\nA longer --firing-interval than %s would save, each second:\n", l.Interval)
	tw := newTable(out)
	fmt.Fprintln(tw, "  INTERVAL\tTRANSACTIONS\tREQUESTS\tCORES, SERVICE + BROKERS\tTIMERS LATER BY")
	for _, i := range p.Longer {
		fmt.Fprintf(tw, "  %s\t%.0f of %.0f\t%.0f\t%.2f + %.2f\t%s on average, %s at most\n", i.Interval,
			i.Transactions, p.Transactions,
			i.Requests, i.Cores, i.BrokerCores, i.Later.Round(time.Millisecond), i.LaterAtMost.Round(time.Millisecond))
	}
	_ = tw.Flush() // a failed write to a terminal or file is visible
	fmt.Fprintf(out, "A transaction is at least %d requests to brokers, and one more for each further broker "+
		"that leads one of its\npartitions. The figures were measured with intervals up to %s, and are "+
		"calculated beyond.\n", sizing.RequestsOfTransaction, sizing.MeasuredInterval)
}

// bytesOf writes a number of bytes with three digits.
func bytesOf(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	i := 0
	for ; n >= 1000 && i < len(units)-1; i++ {
		n /= 1000
	}
	return strconv.FormatFloat(n, 'g', 3, 64) + " " + units[i]
}

// amount is a number that may end in a unit.
type amount float64

var _ pflag.Value = (*amount)(nil)

// unit is a power of a thousand.
type unit struct {
	name string
	of   float64
}

func units() []unit { return []unit{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}} }

// Set implements pflag.Value.
func (a *amount) Set(s string) error {
	factor := 1.0
	for _, u := range units() {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, factor = rest, u.of
			break
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
		return fmt.Errorf("needs a number such as 2000, 50k or 1.5M")
	}
	*a = amount(n * factor)
	return nil
}

// String implements pflag.Value.
func (a amount) String() string {
	for _, u := range units() {
		if float64(a) >= u.of {
			return strconv.FormatFloat(float64(a)/u.of, 'g', 4, 64) + u.name
		}
	}
	return strconv.FormatFloat(float64(a), 'g', 4, 64)
}

// Type implements pflag.Value.
func (amount) Type() string { return "number" }
