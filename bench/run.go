package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
	"github.com/waterclock/waterclock/internal/kit/tasks"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
)

// cleanupTimeout bounds the deletion of a run's topics.
const cleanupTimeout = 15 * time.Second

// run is one run of a workload, with its brokers, topics, clients and instance.
type run struct {
	*Common
	admin
	cfg        config.Config // Cluster, with the brokers that the run has started
	cluster    *localkafka.Cluster
	name       string // random; part of every name that the run makes up
	target     string
	partitions int               // of the request topic
	made       []string          // topics to delete
	serving    *instance         // nil before serve, and if instances of others serve
	delayed    config.DelayTopic // also served; its Topic is empty if there is none
	more       []string          // further targets
	rates      []config.TargetRate
	api        bool     // the instance has its HTTP API
	batches    []*batch // of all phases that schedule
	bare       *bareLoops
	receive    func(history.Received) // called for each emission that a phase reads; may be nil
	reports    []*Report
}

// report begins a report of the run. ratioIs and cpuRatioIs describe what its ratios compare, if it has any.
func (r *run) report(workload, ratioIs, cpuRatioIs string) *Report {
	m := Machine{CPUs: runtime.NumCPU(), Load: load(), Partitions: r.partitions, ValueBytes: r.ValueBytes,
		Events: r.Events}
	if r.cluster != nil {
		m.Brokers = len(r.cluster.Brokers)
	}
	rep := &Report{Workload: workload, RatioIs: ratioIs, CPURatioIs: cpuRatioIs, Machine: m}
	r.reports = append(r.reports, rep)
	return rep
}

// start starts brokers if the settings name none, makes topics, and checks that a named request topic is served. close
// undoes it.
func (c *Common) start(ctx context.Context) (*run, error) {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	r := &run{Common: c, cfg: *c.Cluster, name: "waterclock-bench-" + hex.EncodeToString(b[:])}
	r.bare = &bareLoops{run: r}
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *run) open(ctx context.Context) (err error) {
	if r.Local && len(r.cfg.Brokers) == 0 {
		if err := r.startBrokers(ctx); err != nil {
			return err
		}
	}
	if r.client, err = r.newClient(); err != nil {
		return err
	}
	if err := r.openTopics(ctx); err != nil {
		return err
	}
	r.group = r.cfg.Group
	if r.Requests == "" {
		r.group = r.name
		return nil
	}
	if r.Local {
		return nil
	}
	return r.awaitServed(ctx)
}

func (r *run) startBrokers(ctx context.Context) error {
	tools, err := localkafka.Find(ctx)
	if err != nil {
		return fmt.Errorf("start a local broker, which needs Java %d or later and Maven (or give --brokers): %w",
			localkafka.MinJava, err)
	}
	if r.cluster, err = localkafka.Start(ctx, tools, filepath.Join(r.Dir, "kafka"), r.Brokers); err != nil {
		return fmt.Errorf("start a local broker: %w", err)
	}
	r.cfg.Brokers = r.cluster.Seeds()
	return nil
}

func (r *run) openTopics(ctx context.Context) (err error) {
	r.requests, r.target = r.Requests, r.Target
	if r.requests == "" {
		if r.requests, err = r.makeTopic(ctx, "requests"); err != nil {
			return err
		}
	}
	if r.target == "" {
		r.target, err = r.makeTopic(ctx, "target")
	} else if err = r.create(ctx, r.target, r.Partitions, r.Replication); errors.Is(err, kerr.TopicAlreadyExists) {
		err = nil
	}
	if err != nil {
		return err
	}
	r.partitions, err = r.countPartitions(ctx, r.requests)
	return err
}

// close stops the processes that the run has started, and deletes its topics.
func (r *run) close() error {
	var err error
	if r.client != nil {
		err = r.tidy()
	}
	if r.serving != nil {
		err = errors.Join(err, r.serving.stop())
	}
	if r.client != nil {
		if own := r.own(); len(own) > 0 && r.cluster == nil {
			ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
			defer cancel()
			_, _ = kadm.NewClient(r.client).DeleteTopics(ctx, own...) // they do no harm if they stay
		}
		r.client.Close()
	}
	if r.cluster != nil {
		r.cluster.Close()
	}
	return err
}

// own returns the topics of the run, and those that the service made for them.
func (r *run) own() []string {
	own := r.made
	if r.Requests == "" && r.requests != "" {
		own = append(own, changelog(r.requests), r.requests+".waterclock.dead-letters")
		if r.Events {
			own = append(own, r.requests+".waterclock.events")
		}
	}
	if d := r.delayed.Topic; d != "" {
		own = append(own, d+".waterclock.checkpoints", d+".waterclock.dead-letters")
	}
	return own
}

func changelog(requests string) string { return requests + ".waterclock.changelog" }

// makeTopic makes a topic that close deletes.
func (r *run) makeTopic(ctx context.Context, what string) (string, error) {
	name := fmt.Sprintf("%s-%s-%d", r.name, what, len(r.made))
	err := r.create(ctx, name, r.Partitions, r.Replication)
	if err == nil {
		r.made = append(r.made, name)
	}
	return name, err
}

// poll calls done repeatedly until it returns true or an error, or until ctx ends. In the last case it returns the
// error that the argument what returns.
func poll(ctx context.Context, every time.Duration, done func() (bool, error), what func() error) error {
	for {
		ok, err := done()
		switch {
		case ok:
			return nil
		case ctx.Err() != nil: // done may have failed because of that
			return what()
		case err != nil:
			return err
		}
		beats.Sleep(ctx, every)
	}
}

// background runs do in a goroutine. stop ends do's context and waits for do; it may be called twice.
func background(ctx context.Context, do func(context.Context)) (stop func()) {
	g := tasks.New(ctx)
	g.Go(do)
	return g.Stop
}

func (r *run) newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	return newClient(&r.cfg, r.Log, opts...)
}

func newClient(cfg *config.Config, log *slog.Logger, opts ...kgo.Opt) (*kgo.Client, error) {
	base, err := connect.Options(cfg, "waterclock-bench", log)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("build client: %w", err)
	}
	return cl, nil
}

// bar returns a progress bar, never nil.
func (r *run) bar(what string, total int) *progressbar.ProgressBar {
	if r.Progress == nil {
		return progressbar.DefaultSilent(int64(total))
	}
	return progressbar.NewOptions(total, progressbar.OptionSetWriter(r.Progress),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetRenderBlankState(true))
}
