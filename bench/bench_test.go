package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
)

// This test binary is an instance, or a bare loop, as the command line would be, or a stub of an instance that makes a
// fault.
const (
	asServe = "serve"
	asBare  = "bare"
	asStub  = "stub"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{asServe, asBare, asStub}, os.Args[1]) {
		if err := play(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if !testing.Short() {
		if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// parallel is how many parallel tests run at once where one of them, TestLocal, may wait for its broker all the while.
const parallel = 3

func play(role string, args []string) error {
	loader := config.NewLoader(config.Default())
	fs := pflag.NewFlagSet(role, pflag.ContinueOnError)
	loader.AddFlags(fs, config.Client, config.Topics, config.Instance, config.Log)
	fault := fs.String("fault", "", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := loader.Load(nil)
	switch {
	case err != nil:
		return err
	case role == asBare:
		return RunBare(ctx, cfg, DefaultCommon().Log, os.Stdin, os.Stdout)
	case role == asStub:
		return stub(ctx, cfg, faults()[*fault])
	}
	return node.RunWith(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)), node.Options{})
}

// passRecords take some ticks of processor time, which are 10 ms, in any pass-through.
const passRecords = 10_000

// common is a small run on a simulated broker.
func common(t *testing.T) Common {
	t.Helper()
	cluster, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			return net.Listen(network, "127.0.0.1:0")
		}))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Brokers, cfg.DataDir = cluster.ListenAddrs(), ""
	c := DefaultCommon()
	c.Cluster, c.Partitions, c.Replication, c.Timeout, c.Local = &cfg, 2, 1, 5*time.Minute, true
	c.Serve, c.Bare, c.Dir, c.Logs = []string{self, asServe}, []string{self, asBare}, t.TempDir(), t.TempDir()
	c.PassRecords, c.Steps, c.linger = passRecords, []int{500, 1000}, 50*time.Millisecond
	c.IDs, c.Loops = []int{2}, []int{1}
	return c
}

// one is the only report of a run that must be exact.
func one(t *testing.T, reports []*Report, err error) *Report {
	t.Helper()
	if errors.Is(err, ErrInexact) {
		kafkatest.Inexact(t, "%v", err)
	}
	if err != nil || len(reports) != 1 || !reports[0].Verified {
		t.Fatalf("%v, reports: %+v", err, reports)
	}
	return reports[0]
}

func phaseOf(t *testing.T, rep *Report, name string) *Phase {
	t.Helper()
	for _, p := range rep.Phases {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no phase %q in %+v", name, rep.Phases)
	return nil
}

// measured fails unless the phase has all its timers, a speed and processor time.
func measured(t *testing.T, p *Phase, timers int) {
	t.Helper()
	if p.Exact != (history.Counts{Scheduled: timers, Received: timers}) || p.PerSecond <= 0 {
		t.Errorf("%+v", p)
	}
	if p.CPU == nil || p.CPU.Own <= 0 { // the clients may use less than a tick
		t.Errorf("%s: processor time %+v", p.Name, p.CPU)
	}
}

func TestLife(t *testing.T) {
	t.Parallel()
	c := DefaultLife()
	c.Common, c.Timers, c.Least, c.Spread, c.Rounds = common(t), 3000, 0, 200*time.Millisecond, 2
	reports, err := Run(t.Context(), &c)
	rep := one(t, reports, err)
	for _, name := range []string{"bare 1:3, 500 a step", "bare 1:3, 1000 a step"} {
		measured(t, phaseOf(t, rep, name), passRecords)
	}
	p := phaseOf(t, rep, "life")
	measured(t, p, 3000)
	if len(rep.Phases) != 6 || rep.Ratio <= 0 || rep.CPURatio <= 0 || len(rep.ratios) != 2 || p.PeakRSS == 0 ||
		p.ByReceipt == nil {
		t.Errorf("%+v, %+v", rep, p)
	}
}

// An instance that is to write events says at its start that it does.
func TestBenchWithEvents(t *testing.T) {
	runs.NotRaced(t)
	t.Parallel()
	c := DefaultLife()
	c.Common, c.Timers, c.Least, c.Spread, c.Events = common(t), 500, 0, 100*time.Millisecond, true
	reports, err := Run(t.Context(), &c)
	if rep := one(t, reports, err); !rep.Machine.Events {
		t.Errorf("%+v", rep.Machine)
	}
	logs, err := filepath.Glob(filepath.Join(c.Logs, "*"))
	if err != nil {
		t.Fatal(err)
	}
	said := slices.ContainsFunc(logs, func(name string) bool {
		text, err := os.ReadFile(name)
		return err == nil && strings.Contains(string(text), "settings.events=true")
	})
	if !said {
		t.Errorf("none of %v says so", logs)
	}
}

func TestWait(t *testing.T) {
	runs.NotRaced(t)
	t.Parallel()
	c := DefaultWait()
	c.Common, c.Timers, c.Least, c.Spread = common(t), 2000, 3*time.Second, time.Second
	reports, err := Run(t.Context(), &c)
	rep := one(t, reports, err)
	taken, all := phaseOf(t, rep, "taking in"), phaseOf(t, rep, "wait")
	if taken.PerSecond <= 0 || taken.Seconds > all.Seconds || all.Seconds < 3 || all.PerSecond != 0 ||
		taken.Note != "" {
		t.Errorf("%+v, %+v", taken, all)
	}
	if all.Exact != (history.Counts{Scheduled: 2000, Received: 2000}) || taken.CPU.Own > all.CPU.Own ||
		rep.Ratio <= 0 || rep.CPURatio <= 0 {
		t.Errorf("%+v, %+v", all, rep)
	}
	firing := phaseOf(t, rep, "bare loop") // for 1 s before it is measured, and then for the spread
	if firing.Rate != 2000 || firing.Exact != (history.Counts{Scheduled: 4000, Received: 4000}) ||
		firing.CPU.Own <= 0 || firing.PerStep < 20 {
		t.Errorf("%+v: 2000 firings a second in steps of 20 ms have 40", firing)
	}
	if limit := all.CPU.Own / rep.CPURatio; limit <= firing.CPU.Own {
		t.Errorf("the limit is %.1f µs, %.1f of it firings: what taking in costs is missing", limit, firing.CPU.Own)
	}
}

func TestSteady(t *testing.T) {
	t.Parallel()
	c := DefaultSteady()
	c.Common, c.Rates, c.Duration, c.Least, c.Spread = common(t), []float64{500}, time.Second, 500*time.Millisecond,
		500*time.Millisecond
	reports, err := Run(t.Context(), &c)
	rep := one(t, reports, err)
	for _, name := range []string{"bare loop", "500/s"} {
		p := phaseOf(t, rep, name)
		if p.Exact != (history.Counts{Scheduled: 1000, Received: 1000}) || p.ByReceipt == nil ||
			p.ByReceipt.P50 > p.ByReceipt.P99 || p.ByReceipt.P99 > p.ByReceipt.Max {
			t.Errorf("%+v", p)
		}
		if p.CPU == nil || p.CPU.Own <= 0 {
			t.Errorf("%s: processor time %+v", name, p.CPU)
		}
	}
	if len(rep.Ratios) != 2 {
		t.Errorf("ratios %+v, want two", rep.Ratios)
	}
	if rep.Rate != 500 || rep.Ratio <= 0 || rep.CPURatio <= 0 {
		t.Errorf("%+v", rep)
	}
	var out bytes.Buffer
	rep.WriteTable(&out)
	if !strings.Contains(out.String(), "steady 500/s: 200 bytes") || !strings.Contains(out.String(), "cpu ratio") {
		t.Errorf("table:\n%s", &out)
	}
	out.Reset()
	var back Report
	if err := rep.WriteJSON(&out); err != nil || json.Unmarshal(out.Bytes(), &back) != nil ||
		back.CPURatio != rep.CPURatio {
		t.Errorf("%v: %s", err, &out)
	}
}

// Also the largest figures fit into a terminal.
func TestTableIsNarrow(t *testing.T) {
	late := &Lateness{12345.6, 23456.7, 34567.8}
	p := &Phase{
		Name: "bare 1:3, 20000 a step", PerSecond: 123456, ByReceipt: late, CPU: &CPU{123.4, 1234.5, 123.4, 1},
		PerStep: 12345, PeakRSS: 12 << 30,
		Exact: history.Counts{Scheduled: MaxTimers}, Note: "a note",
	}
	rep := &Report{
		Workload: "restart", Verified: true, Ratio: 123.45, CPURatio: 12.3, RatioIs: "replayed a second without the " +
			"directory / plain consumer", Machine: Machine{2, 99.9, 3, 1000, 1 << 20, true},
		Phases: []*Phase{p}, Sizes: &Sizes{MaxTimers, 1234, 1234, 123.4, 123.4},
		Starts: []Start{{"after a clean stop", MaxTimers, 123.45, MaxTimers, 123.45, 1 << 30, 1 << 30, 12.34}},
		Ratios: []Ratio{{"requests a second / those of timers that nobody cancels", 12.34}},
	}
	var out bytes.Buffer
	rep.WriteTable(&out)
	rep.Verified = false
	p.Exact = history.Counts{Scheduled: MaxTimers, Lost: MaxTimers, Duplicated: MaxTimers, Early: MaxTimers,
		Altered: MaxTimers}
	rep.WriteTable(&out)
	for line := range strings.Lines(out.String()) {
		if columns := utf8.RuneCountInString(line) - 1; columns > 100 {
			t.Errorf("%d columns: %s", columns, line)
		}
	}
	if !strings.Contains(out.String(), "NOT EXACT") ||
		strings.Contains(out.String()[strings.Index(out.String(), "NOT EXACT"):], "123456") {
		t.Errorf("what is not exact has figures:\n%s", &out)
	}
}

func TestLimit(t *testing.T) {
	runs.NotRaced(t)
	t.Parallel()
	c := common(t)
	c.IDs, c.Loops = []int{2, 1}, []int{1, 2, 4} // four loops share the two partitions
	reports, err := runWith(t.Context(), &c, func(ctx context.Context, r *run) error {
		rep := r.report("limit", "", "")
		_, one := r.bare.limit(ctx, rep, oneToOne)
		_, three := r.bare.limit(ctx, rep, oneToThree)
		return errors.Join(one, three)
	})
	rep := one(t, reports, err)
	for _, kind := range []string{"bare 1:1", "bare 1:3"} {
		for _, step := range []string{"500", "1000"} {
			measured(t, phaseOf(t, rep, kind+", "+step+" a step"), passRecords)
		}
		for _, what := range []string{", 1 ID", ", 2 loops", ", 4 loops"} {
			if !slices.ContainsFunc(rep.Phases, func(p *Phase) bool {
				return strings.HasPrefix(p.Name, kind) && strings.Contains(p.Name, what)
			}) {
				t.Errorf("%s%s: not measured", kind, what)
			}
		}
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	c := DefaultRestart()
	c.Common, c.Pending, c.Overdue = common(t), 2000, 50
	reports, err := Run(t.Context(), &c)
	rep := one(t, reports, err)
	if len(rep.Starts) != 4 {
		t.Fatalf("%+v", rep.Starts)
	}
	clean, bare := rep.Starts[2], rep.Starts[3]
	if clean.Replayed >= 2000 || bare.Replayed < 2000 {
		t.Errorf("replayed %d with the directory, %d without, of 2000", clean.Replayed, bare.Replayed)
	}
	for _, s := range rep.Starts {
		if s.Seconds <= 0 || s.RSS <= 0 || s.PeakRSS < s.RSS {
			t.Errorf("%+v", s)
		}
	}
	for _, name := range []string{"overdue, clean stop", "overdue, no directory"} {
		if p := phaseOf(t, rep, name); p.Exact != (history.Counts{Scheduled: 50, Received: 50}) {
			t.Errorf("%+v", p)
		}
	}
	if rep.Sizes == nil || rep.Sizes.Disk < 100 || rep.Ratio <= 0 {
		t.Errorf("%+v, %+v", rep, rep.Sizes)
	}
}

// stub serves requests as waterclock would, without exactness: it fires each timer once it is due, and makes a fault
// once.
func stub(ctx context.Context, cfg *config.Config, fault fault) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.ConsumeTopics(cfg.Requests...),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		return err
	}
	defer cl.Close()
	web, err := net.Listen("tcp", cfg.HTTP)
	if err != nil {
		return err
	}
	defer web.Close()
	go func() {
		_ = http.Serve(web, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"detail":{"topics":{%q:{"0":{"state":"live"},"1":{"state":"live"}}}}}`, cfg.Requests[0])
		}))
	}()
	for n := 0; ctx.Err() == nil; {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			due, _ := strconv.ParseInt(string(r.Headers[0].Value), 10, 64)
			select {
			case <-time.After(time.Until(time.UnixMilli(due))): // a stub: it has nothing to be woken by
			case <-ctx.Done():
			}
			out := []*kgo.Record{{Topic: cfg.Targets[0], Key: r.Key, Value: r.Value, Timestamp: time.Now(),
				Headers: []kgo.RecordHeader{
					{Key: waterclock.HeaderID, Value: r.Key}, {Key: waterclock.HeaderDue, Value: r.Headers[0].Value}}}}
			if n == warmTimers+fault.at && fault.do != nil {
				out = fault.do(out[0])
			}
			for _, o := range out {
				cl.Produce(ctx, o, nil)
			}
			n++
		})
	}
	return nil
}

// warmTimers come before those of the phase.
const warmTimers = 50

// fault is what a stub makes of one of the phase's 200 timers.
type fault struct {
	at   int // its number
	do   func(*kgo.Record) []*kgo.Record
	want history.Counts
}

func faults() map[string]fault {
	return map[string]fault{
		"none":     {want: history.Counts{Received: 200}},
		"one lost": {17, func(*kgo.Record) []*kgo.Record { return nil }, history.Counts{Received: 199, Lost: 1}},
		"the last one duplicated": {199, func(r *kgo.Record) []*kgo.Record {
			again := *r
			return []*kgo.Record{r, &again}
		}, history.Counts{Received: 200, Duplicated: 1}},
		"one early": {17, func(r *kgo.Record) []*kgo.Record {
			r.Timestamp = r.Timestamp.Add(-time.Hour)
			return []*kgo.Record{r}
		}, history.Counts{Received: 200, Early: 1}},
	}
}

// TestPlantedFaults: a run against a service that goes wrong once must say so.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	for name, c := range faults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := DefaultLife()
			l.Common, l.Timers, l.Least, l.Spread = common(t), 200, 0, 10*time.Millisecond
			l.Timeout = 10 * time.Second // which ends the wait for what is lost
			l.PassRecords, l.Steps, l.linger = warmTimers, []int{warmTimers}, time.Second
			l.Serve = []string{l.Serve[0], asStub, "--fault", name}
			reports, err := Run(t.Context(), &l)
			c.want.Scheduled = 200
			if exact := c.want.Received == 200 && c.want.Duplicated+c.want.Early == 0; errors.Is(
				err, ErrInexact) == exact || exact && err != nil {
				t.Errorf("error %v", err)
			}
			if len(reports) != 1 {
				t.Fatal("no report")
			}
			p := phaseOf(t, reports[0], "life")
			if p.Exact != c.want || reports[0].Verified == (err != nil) || (p.PerSecond == 0) != (err != nil) {
				t.Errorf("%+v, want %+v", p, c.want)
			}
		})
	}
}

func TestBadSettings(t *testing.T) {
	c := DefaultLife()
	c.Cluster, c.Timers, c.Partitions = &config.Config{}, 0, 0
	_, err := Run(t.Context(), &c)
	if !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "timers") {
		t.Errorf("%v", err)
	}
}

// Partitions move, and no timer is lost, doubled or early. Each event tells of all partitions, those that moved and the
// others.
func TestMove(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := DefaultMove()
	c.Common, c.Pending, c.Rate, c.Cases = common(t), 300, 100, []string{moveQuiet, moveJoin, moveDrain}
	c.Partitions = 6
	c.Cluster.Standbys = 1
	reports, err := Run(t.Context(), &c)
	rep := one(t, reports, err)
	for _, event := range c.Cases {
		partitions := 0
		for _, of := range []string{"moved", "untouched"} {
			if of == "moved" && event == moveQuiet {
				continue
			}
			p := phaseOf(t, rep, event+", "+of)
			n, _, _ := strings.Cut(p.Note, " ")
			some, err := strconv.Atoi(n)
			if err != nil || some < 1 || p.Silence <= 0 || p.Exact.Received == 0 || p.ByReceipt == nil {
				t.Errorf("%s, %s: %+v", event, of, p)
			}
			partitions += some
		}
		if partitions != 6 {
			t.Errorf("%s: tells of %d partitions, want 6", event, partitions)
		}
	}
	if p := phaseOf(t, rep, "timers that fire"); p.Exact.Received < 500 || p.Exact.Received != p.Exact.Scheduled {
		t.Errorf("%+v", p)
	}
}

// burstTimers take some ticks of processor time too, to fire.
const burstTimers = 10_000

func TestBurst(t *testing.T) {
	runs.NotRaced(t)
	t.Parallel()
	c := DefaultBurst()
	c.Common, c.Timers = common(t), burstTimers
	reports, err := Run(t.Context(), &c)
	rep := one(t, reports, err)
	p := phaseOf(t, rep, "burst")
	measured(t, p, burstTimers)
	if taken := phaseOf(t, rep, "taking in"); taken.PerSecond <= 0 || rep.Ratio <= 0 || p.ByReceipt == nil {
		t.Errorf("%+v, %+v, %+v", taken, p, rep)
	}
}

// A burst of twenty seconds at its rate: it is never exceeded.
func TestPaced(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := DefaultPaced()
	c.Common, c.Timers, c.TargetRate, c.Rates, c.Duration, c.Least, c.Spread = common(t), 2200, 100, []float64{100},
		time.Second, 500*time.Millisecond, 500*time.Millisecond
	reports, err := Run(t.Context(), &c)
	rep := one(t, reports, err)
	p := phaseOf(t, rep, "paced burst")
	if p.Exact != (history.Counts{Scheduled: 2200, Received: 2200}) || p.Seconds < 20 || rep.Ratio <= 0 {
		t.Errorf("%+v, %+v", p, rep)
	}
	if most := rep.Ratios[1]; most.Value > 1.02 || most.Value <= 0 {
		t.Errorf("%+v", rep.Ratios)
	}
}

func TestWithin(t *testing.T) {
	begin := time.Now()
	for _, c := range []struct {
		seconds     []float64
		least, most int
	}{
		{[]float64{0, 1, 2, 3, 4, 5}, 2, 2},
		{[]float64{0, 1, 1, 1, 4, 7, 7.5, 7.7}, 1, 4},
		{[]float64{0, 1}, 2, 0}, // no span is as long
	} {
		var at []time.Time
		for _, s := range c.seconds {
			at = append(at, begin.Add(seconds(s)))
		}
		if least, most := within(at, 2*time.Second); least != c.least || most != c.most {
			t.Errorf("%v: %d to %d, want %d to %d", c.seconds, least, most, c.least, c.most)
		}
	}
}

func TestFixed(t *testing.T) {
	runs.NotRaced(t)
	t.Parallel()
	c := DefaultFixed()
	c.Common, c.Records, c.Delay = common(t), 20_000, 100*time.Millisecond
	reports, err := Run(t.Context(), &c)
	rep := one(t, reports, err)
	measured(t, phaseOf(t, rep, "fixed"), 20_000)
	if rep.Ratio <= 0 {
		t.Errorf("%+v", rep)
	}
	c.Local = false
	if _, err := Run(t.Context(), &c); err == nil || !strings.Contains(err.Error(), "--local") {
		t.Errorf("without an instance of its own: %v", err)
	}
}

// A run that would end before its timers are due says so, and not that they are lost.
func TestRunsThatEndTooEarly(t *testing.T) {
	runs.NotRaced(t)
	t.Parallel()
	fixed, burst := DefaultFixed(), DefaultBurst()
	fixed.Common, fixed.Records, fixed.Delay = common(t), 100, 100*time.Millisecond
	burst.Common, burst.Timers = common(t), 100
	fixed.PassRecords, burst.PassRecords = 100, 100
	for name, w := range map[string]Workload{
		"fixed": &fixed, "burst": &burst,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), burstLead)
		_, err := Run(ctx, w)
		cancel()
		if err == nil || errors.Is(err, ErrInexact) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An overload is exact, and tells its phases.
func TestOverload(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := DefaultOverload()
	c.Common, c.Timers, c.Before, c.Over, c.Least, c.Spread = common(t), 2000, 1500*time.Millisecond, 2*time.Second,
		300*time.Millisecond, 300*time.Millisecond
	c.Capacity = 500
	reports, err := Run(t.Context(), &c)
	rep := one(t, reports, err)
	all := phaseOf(t, rep, "all of them")
	// 0.8 of the capacity for 1.5 s, twice of it for 2 s, 0.8 again.
	if n := 3200; all.Exact != (history.Counts{Scheduled: n, Received: n}) {
		t.Errorf("%+v", all)
	}
	for _, name := range []string{"at 0.8 of the capacity", "at twice the capacity", "at 0.8 again"} {
		if p := phaseOf(t, rep, name); p.CPU == nil || p.CPU.Own <= 0 || p.PeakRSS == 0 || p.OwnP99 <= 0 {
			t.Errorf("%s: %+v, %+v", name, p, p.CPU)
		}
	}
}

func TestLatenessesOfBuckets(t *testing.T) {
	then := latenesses{1: 10, 2: 10, 5: 10, math.Inf(1): 10}
	now := latenesses{1: 20, 2: 110, 5: 110, math.Inf(1): 111}
	p50, p99 := now.since(then)
	if p50 < 1.4 || p50 > 1.5 || p99 < 1.99 || p99 > 5 {
		t.Errorf("p50 %v, p99 %v of 10 up to 1 ms, 90 up to 2, one above 5", p50, p99)
	}
	if p50, p99 := now.since(now); p50 != 0 || p99 != 0 {
		t.Errorf("p50 %v, p99 %v of nothing", p50, p99)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	c := DefaultLoad()
	c.Common, c.Pending, c.Rates, c.Duration, c.Least, c.Spread = common(t), 3000, []float64{200}, time.Second,
		500*time.Millisecond, 500*time.Millisecond
	reports, err := Run(t.Context(), &c)
	if err != nil || len(reports) != 2 || !reports[0].Verified || !reports[1].Verified {
		t.Fatalf("%v, %+v", err, reports)
	}
	load, top := phaseOf(t, reports[0], "load"), phaseOf(t, reports[1], "200/s on top")
	if load.Exact != (history.Counts{Scheduled: 3000}) || load.PerSecond <= 0 || load.PeakRSS == 0 ||
		reports[0].Sizes == nil {
		t.Errorf("%+v", load)
	}
	if top.Exact != (history.Counts{Scheduled: 400, Received: 400}) || reports[1].Ratio <= 0 || reports[1].Rate != 200 {
		t.Errorf("%+v, %+v", top, reports[1])
	}
}

// A timer too many, or one too few, is told.
func TestNotAllPending(t *testing.T) {
	for n, want := range map[int]history.Counts{4: {Scheduled: 4, Lost: 1}, 2: {Scheduled: 2, Altered: 1},
		3: {Scheduled: 3}} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, "waterclock_pending_timers{topic=\"a\"} 1\nwaterclock_pending_timers_x "+
				"9\nwaterclock_pending_timers{topic=\"b\"} 2")
		}))
		defer web.Close()
		i, p := &instance{http: web.Listener.Addr().String()}, &Phase{}
		if err := i.allPending(t.Context(), p, n, 50*time.Millisecond); (err != nil) != (n != 3) || p.Exact != want {
			t.Errorf("%d: %v, %+v", n, err, p.Exact)
		}
	}
}

// The timers of one day in ten follow a changed calendar, while others fire.
func TestCalendar(t *testing.T) {
	runs.NotRaced(t)
	t.Parallel()
	c := DefaultCalendar()
	c.Common, c.Pending, c.Rate, c.Duration, c.Events = common(t), 3000, 200, time.Second, true
	c.Profiles = t.TempDir()
	reports, err := Run(t.Context(), &c)
	rep := one(t, reports, err)
	all := history.Counts{Scheduled: 300, Received: 300}
	if p := phaseOf(t, rep, "rescheduled"); p.Exact != all || p.Seconds <= 0 {
		t.Errorf("%+v", p)
	}
	if found, err := filepath.Glob(filepath.Join(c.Profiles, "service-calendar-allocs.pprof")); len(found) != 1 {
		t.Errorf("profiles of the instance: %v, %v", found, err)
	}
	for _, name := range []string{"200/s before", "200/s meanwhile"} {
		if p := phaseOf(t, rep, name); p.ByReceipt == nil || p.Exact.Received < 200 {
			t.Errorf("%+v", p)
		}
	}
}

// Timers are listed by a rare label, and others moved, while others fire.
func TestBulk(t *testing.T) {
	runs.NotRaced(t)
	t.Parallel()
	c := DefaultBulk()
	c.Common, c.Pending, c.Moved, c.Rate, c.Duration = common(t), 3000, 600, 200, time.Second
	reports, err := Run(t.Context(), &c)
	rep := one(t, reports, err)
	for name, n := range map[string]int{"list by label": 1, "move": 600} {
		if p := phaseOf(t, rep, name); p.Exact != (history.Counts{Scheduled: n, Received: n}) {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if p := phaseOf(t, rep, "200/s before"); p.ByReceipt == nil || p.Exact.Received == 0 {
		t.Errorf("%+v", p)
	}
}
