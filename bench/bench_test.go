package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/service"
)

// asServe makes this test binary an instance, as the command line would.
const asServe = "serve"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asServe {
		os.Exit(serveMain(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func serveMain(args []string) int {
	loader := config.NewLoader(config.Default())
	fs := pflag.NewFlagSet(asServe, pflag.ContinueOnError)
	loader.AddFlags(fs, config.Client, config.Topics, config.Instance, config.Log)
	err := fs.Parse(args)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		var cfg *config.Config
		if cfg, err = loader.Load(nil); err == nil {
			err = service.Run(ctx, cfg, DefaultCommon().Log)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// common is a small run on a simulated broker.
func common(t *testing.T) Common {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second),
		kfake.ListenFn(func(network, address string) (net.Listener, error) { return net.Listen(network, "127.0.0.1:0") }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	cfg := config.Default()
	cfg.Brokers, cfg.DataDir, cfg.HTTP = cluster.ListenAddrs(), t.TempDir(), "127.0.0.1:0"
	c := DefaultCommon()
	c.Cluster, c.Partitions, c.Replication, c.Timeout = &cfg, 2, 1, time.Minute
	c.Serve = InProcess(c.Log)
	return c
}

func phaseOf(t *testing.T, rep *Report, name string) Phase {
	t.Helper()
	for _, p := range rep.Phases {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no phase %q in %+v", name, rep.Phases)
	return Phase{}
}

func TestThroughput(t *testing.T) {
	c := DefaultThroughput()
	c.Common, c.Timers, c.Spread, c.Burst, c.Step = common(t), 3000, 200*time.Millisecond, 500, 1000
	rep, err := RunThroughput(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{"pass-through 1:1": 3000, "pass-through 1:3": 3000, "whole lives": 3000, "burst": 500} {
		p := phaseOf(t, rep, name)
		if p.Exact != (Exactness{Scheduled: n, Received: n}) || p.PerSecond <= 0 || p.Bare != strings.HasPrefix(name, "pass") {
			t.Errorf("%+v", p)
		}
	}
	if p := phaseOf(t, rep, "taking in"); p.PerSecond <= 0 || p.Note != "" {
		t.Errorf("%+v", p)
	}
	if len(rep.Ratios) != 3 {
		t.Errorf("%+v", rep.Ratios)
	}
}

func TestLatenessWorkload(t *testing.T) {
	c := DefaultLateness()
	c.Common, c.Rates, c.Duration, c.Least, c.Spread = common(t), []float64{500}, time.Second, 50*time.Millisecond, 200*time.Millisecond
	rep, err := RunLateness(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bare loop", "500/s"} {
		p := phaseOf(t, rep, name)
		if p.Exact != (Exactness{Scheduled: 500, Received: 500}) || p.ByReceipt == nil || p.ByReceipt.P50 > p.ByReceipt.P99 || p.ByReceipt.P99 > p.ByReceipt.Max {
			t.Errorf("%+v", p)
		}
	}
	var out bytes.Buffer
	rep.WriteTable(&out)
	if !strings.Contains(out.String(), "500 offered") || !strings.Contains(out.String(), "p50/p99/max: half of them") {
		t.Errorf("table:\n%s", &out)
	}
	out.Reset()
	var back Report
	if err := rep.WriteJSON(&out); err != nil || json.Unmarshal(out.Bytes(), &back) != nil || back.Phases[1].Exact.Received != 500 {
		t.Errorf("%v: %s", err, &out)
	}
}

// TestRestart runs the instances as processes: this binary, see TestMain.
func TestRestart(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := DefaultRestart()
	c.Common, c.Pending, c.Overdue, c.Command, c.Dir = common(t), 2000, 50, []string{self, asServe}, t.TempDir()
	rep, err := RunRestart(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Starts) != 4 {
		t.Fatalf("%+v", rep.Starts)
	}
	clean, bare := rep.Starts[2], rep.Starts[3]
	if clean.Replayed >= 2000 || bare.Replayed < 2000 {
		t.Errorf("replayed %d with the folder, %d without, of 2000", clean.Replayed, bare.Replayed)
	}
	for _, s := range rep.Starts {
		if s.Seconds <= 0 || s.RSS <= 0 || s.PeakRSS < s.RSS {
			t.Errorf("%+v", s)
		}
	}
	for _, p := range rep.Phases {
		if p.Exact != (Exactness{Scheduled: 50, Received: 50}) {
			t.Errorf("%+v", p)
		}
	}
	if rep.Sizes == nil || rep.Sizes.Disk < 100 {
		t.Errorf("%+v", rep.Sizes)
	}
}

// stub serves requests as waterclock would, without exactness: it fires each
// timer once it is due, and fault may change what becomes of number n.
func stub(seeds []string, fault func(n int, r *kgo.Record) []*kgo.Record) Server {
	return func(ctx context.Context, cfg *config.Config, started func(string)) error {
		cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(cfg.Requests...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
		if err != nil {
			return err
		}
		defer cl.Close()
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"detail":{"topics":{%q:{"0":{"state":"live"},"1":{"state":"live"}}}}}`, cfg.Requests[0])
		}))
		defer web.Close()
		started(web.Listener.Addr().String())
		for n := 0; ctx.Err() == nil; {
			cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				due, _ := strconv.ParseInt(string(r.Headers[0].Value), 10, 64)
				time.Sleep(time.Until(time.UnixMilli(due))) // a stub: it has nothing to be woken by
				out := &kgo.Record{Topic: cfg.Targets[0], Key: r.Key, Value: r.Value, Timestamp: time.Now(), Headers: []kgo.RecordHeader{
					{Key: waterclock.HeaderID, Value: r.Key}, {Key: waterclock.HeaderDue, Value: r.Headers[0].Value}}}
				for _, o := range fault(n, out) {
					cl.Produce(ctx, o, nil)
				}
				n++
			})
		}
		return nil
	}
}

// TestPlantedFaults: a run against a service that goes wrong once must say so.
func TestPlantedFaults(t *testing.T) {
	at := func(n int, do func(*kgo.Record) []*kgo.Record) func(int, *kgo.Record) []*kgo.Record {
		return func(i int, r *kgo.Record) []*kgo.Record {
			if i == n {
				return do(r)
			}
			return []*kgo.Record{r}
		}
	}
	for _, c := range []struct {
		name  string
		fault func(int, *kgo.Record) []*kgo.Record
		want  Exactness
	}{
		{"none", at(-1, nil), Exactness{Received: 200}},
		{"one lost", at(17, func(*kgo.Record) []*kgo.Record { return nil }), Exactness{Received: 199, Lost: 1}},
		{"the last one doubled", at(199, func(r *kgo.Record) []*kgo.Record {
			again := *r
			return []*kgo.Record{r, &again}
		}), Exactness{Received: 200, Doubled: 1}},
		{"one early", at(17, func(r *kgo.Record) []*kgo.Record {
			r.Timestamp = r.Timestamp.Add(-time.Hour)
			return []*kgo.Record{r}
		}), Exactness{Received: 200, Early: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := DefaultLateness()
			l.Common, l.Rates, l.Duration, l.Least, l.Spread = common(t), []float64{1000}, 200*time.Millisecond, 0, 10*time.Millisecond
			l.Timeout = 6 * time.Second // which ends the wait for what is lost
			l.Serve = stub(l.Cluster.Brokers, c.fault)
			rep, err := RunLateness(t.Context(), l)
			c.want.Scheduled = 200
			if exact := c.want.Received == 200 && c.want.Doubled+c.want.Early == 0; errors.Is(err, ErrInexact) == exact || exact && err != nil {
				t.Errorf("error %v", err)
			}
			if rep == nil {
				t.Fatal("no report")
			}
			if got := phaseOf(t, rep, "1000/s").Exact; got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestBadSettings(t *testing.T) {
	c := DefaultThroughput()
	c.Cluster, c.Timers, c.Partitions = &config.Config{}, 0, 0
	_, err := RunThroughput(t.Context(), c)
	if !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "timers") {
		t.Errorf("%v", err)
	}
}
