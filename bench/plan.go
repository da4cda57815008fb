package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/bench/sizing"
	"github.com/waterclock/waterclock/internal/node/config"
)

// PlanConfig measures the constants that waterclock plan calculates with: the cost of a timer and of a transaction,
// from several rates and firing intervals; the speed of one partition; the size of pending timers, and how fast they
// are replayed.
type PlanConfig struct {
	SteadyConfig
	Intervals []time.Duration // firing intervals, each of which gets an instance of its own
	Timers    int             // of one partition, sent as fast as they are accepted
	Pending   int             // timers that are replayed
	Out       string          // file for the constants; empty: none
}

// DefaultPlan returns a workload of some minutes.
func DefaultPlan() PlanConfig {
	c := PlanConfig{SteadyConfig: DefaultSteady(),
		Intervals: []time.Duration{20 * time.Millisecond, 100 * time.Millisecond}, Timers: 300_000, Pending: 1_000_000}
	c.Local, c.Rates, c.Duration, c.Lives = true, []float64{1_000, 5_000, 20_000}, 10*time.Second,
		Lives{Least: time.Second, Spread: time.Second}
	return c
}

func (pc *PlanConfig) check() error {
	return errors.Join(pc.SteadyConfig.check(), pc.checkOwn(), wantTimers(pc.Timers, pc.Pending),
		between("intervals", 0, config.MaxFiringInterval, pc.Intervals...),
		want(len(pc.Rates) > 1 && len(pc.Intervals) > 1, "rates, intervals",
			fmt.Sprint(len(pc.Rates), ", ", len(pc.Intervals)), "two of each at least: the costs of timers, of "+
				"transactions and of an instance are told apart by them"),
		want(pc.Brokers == 1, "local-brokers", pc.Brokers, "1: the constants are those of one replica"),
		between("rounds", 1, 1, pc.Rounds))
}

// planner is one run of the workload.
type planner struct {
	*run
	c        *PlanConfig
	rep      *Report
	measured sizing.Constants // 0 if not measured
}

func (pc *PlanConfig) measure(ctx context.Context, r *run) error {
	p := &planner{run: r, c: pc, rep: r.report("plan", "", "")}
	if err := inTurn(ctx, p.costs, p.partition, p.pending); err != nil {
		return err
	}
	p.rep.Constants = constantsOf(p.measured)
	if pc.Out == "" {
		return nil
	}
	return writeConstants(pc.Out, p.rep.Constants)
}

// costs measures each rate with each interval, and fits the costs of a timer, a transaction and an instance to all of
// them.
func (p *planner) costs(ctx context.Context) error {
	var points []sizing.Point
	for _, interval := range p.c.Intervals {
		p.cfg.FiringInterval = interval
		if err := serveWarm(ctx, p.run); err != nil {
			return err
		}
		for _, rate := range p.c.Rates {
			told, err := p.c.paced(ctx, p.run, p.rep, rate, fmt.Sprintf("%.0f/s, interval %s", rate, interval))
			if err != nil {
				return err
			}
			if told.CPU == nil || told.Transactions <= 0 {
				return errors.New("measure processor time: this system does not tell it, or the process belongs to " +
					"another user")
			}
			points = append(
				points, sizing.Point{Rate: rate, Transactions: told.Transactions, Service: told.CPU.Own * rate / 1e6,
					Broker: told.CPU.Broker * rate / 1e6})
		}
		if err := p.unserve(); err != nil {
			return err
		}
	}
	p.measured.Fit(points)
	return nil
}

// partition measures how many timers a second one partition can handle, with the settings of the service.
func (p *planner) partition(ctx context.Context) error {
	p.cfg.FiringInterval = p.Cluster.FiringInterval
	if err := serveWarm(ctx, p.run); err != nil {
		return err
	}
	b := p.nextBatch(0).place(p.partitions, func(n int) bool { return n == 0 })
	ph, err := p.collect(ctx, "one partition", p.target, b.open(p.c.Timers), p.c.Timers)
	if err != nil {
		return err
	}
	told, err := ph.capacity(ctx, p.rep, offer{timers: p.c.Timers, due: p.c.due()}, p.c.Lives)
	if err != nil {
		return err
	}
	p.measured.Partition = told.PerSecond
	return p.unserve()
}

// pending measures how much space pending timers take in the changelog and on disk, and how fast an instance without a
// directory replays them.
func (p *planner) pending(ctx context.Context) error {
	c := DefaultRestart()
	c.Common, c.Pending = p.c.Common, p.c.Pending
	before, err := p.changelogBytes(ctx)
	if err != nil {
		return err
	}
	s := newRestart(&c, p.run, p.rep)
	if err := s.starts(ctx); err != nil {
		return err
	}
	after, err := p.changelogBytes(ctx)
	if err != nil {
		return err
	}
	size := float64(p.rep.Sizes.Request)
	p.measured.DiskPerByte = p.rep.Sizes.Disk / size
	p.measured.ChangelogPerByte = float64(after-before) / float64(c.Pending) / size
	empty, full := p.rep.Starts[0], p.rep.Starts[len(p.rep.Starts)-1]
	if seconds := full.Seconds - empty.Seconds; seconds > 0 { // otherwise there are too few timers
		p.measured.Replay = float64(full.Replayed) / seconds
	}
	return nil
}

// changelogBytes returns the size of one replica of the changelog.
func (p *planner) changelogBytes(ctx context.Context) (sum int64, err error) {
	var of kadm.TopicsSet
	for n := range p.partitions {
		of.Add(changelog(p.requests), int32(n))
	}
	dirs, err := kadm.NewClient(p.client).DescribeAllLogDirs(ctx, of)
	if err != nil {
		return 0, fmt.Errorf("measure the changelog: %w", err)
	}
	dirs.Each(func(d kadm.DescribedLogDir) {
		err = cmp.Or(err, d.Err)
		sum += d.Topics.Size()
	})
	return sum / int64(max(1, p.Replication)), err
}

// Constant is one that waterclock plan calculates with.
type Constant struct {
	Name     string  `json:"name"`
	Measured float64 `json:"measured,omitempty"` // 0: not measured
	BuiltIn  float64 `json:"built_in"`
}

// constantsOf returns the measured constants, with three digits, next to the built-in ones.
func constantsOf(c sizing.Constants) (all []Constant) {
	measured, builtIn := c.ByName(), sizing.Measured()
	for name, v := range builtIn.ByName() {
		text := strconv.FormatFloat(measured[name], 'g', 3, 64)
		x, _ := strconv.ParseFloat(text, 64)
		all = append(all, Constant{name, x, v})
	}
	slices.SortFunc(all, func(a, b Constant) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// writeConstants writes the measured constants to a file for waterclock plan.
func writeConstants(file string, all []Constant) error {
	measured := make(map[string]float64)
	for _, c := range all {
		if c.Measured > 0 {
			measured[c.Name] = c.Measured
		}
	}
	data, err := json.MarshalIndent(measured, "", "  ")
	if err == nil {
		err = os.WriteFile(file, append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write constants: %w", err)
	}
	return nil
}

func (rep *Report) writeConstantsTable(w io.Writer) {
	if len(rep.Constants) == 0 {
		return
	}
	g := &grid{}
	g.row("constant", "measured", "built in", "ratio")
	for _, c := range rep.Constants {
		measured, ratio := "", ""
		if c.Measured > 0 {
			measured, ratio = figure(c.Measured), fmt.Sprintf("%.2f", c.Measured/c.BuiltIn)
		}
		g.row(c.Name, measured, figure(c.BuiltIn), ratio)
	}
	fmt.Fprintln(w)
	g.write(w)
}

// figure writes a number without an exponent.
func figure(v float64) string {
	if v >= 1000 {
		return strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
