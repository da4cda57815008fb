package service

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/dialer"
	"github.com/waterclock/waterclock/internal/hanging"
	"github.com/waterclock/waterclock/internal/memory"
	"github.com/waterclock/waterclock/internal/ops"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/service/apiserver"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// clientPrefix and the process ID make the client ID.
	clientPrefix = "waterclock-"
	// connectPause is the pause between two tries to reach the brokers at start.
	connectPause = time.Second
)

// Options are what tests and embedders set beyond configuration.
type Options struct {
	// Dial opens connections to brokers; nil: TCP or TLS, as configured.
	Dial dialer.Func
	// AutoCreateTargets lets the broker make target topics on first use.
	AutoCreateTargets bool
	// CommitTimeout is how long an unanswered commit is waited for, 0 is the usual
	// 2.5 s: tests that hold one back want more.
	CommitTimeout time.Duration
	// MissingAfter is how long a target topic must be missing until what is due for
	// it becomes dead letters; 0 is the usual 10 s.
	MissingAfter time.Duration
	// HeldPatience is for how long an acquired partition waits for open transactions on its
	// request topic until its timers fire; 0 is the usual 10 s.
	HeldPatience time.Duration
	// Now is the clock; nil is the machine's.
	Now func() time.Time
	// Registry takes the metrics; nil makes one.
	Registry *prometheus.Registry
	// Started is called when the instance serves HTTP, with its address.
	Started func(httpAddr string)
	// StartedAPI is called when it listens for its API, with the URL that others know it by.
	StartedAPI func(url string)
	// AccessInterval is how often rights are looked at; 0 is the usual 30 s.
	AccessInterval time.Duration
	// FlushInterval is how often the local store goes to disk; 0 is the usual 30 s.
	FlushInterval time.Duration
	// Shown says that what is refused is shown to the user in another way, and is
	// not to be logged too.
	Shown bool
	// Reload brings other settings while the instance runs: those that can change
	// then are taken over. They must be valid.
	Reload <-chan *config.Config
	// WholeProcess says that nothing else runs in this process: the runtime keeps to the
	// instance's memory.
	WholeProcess bool
	// Memory is for tests: other shares than those of the setting.
	Memory *memory.Shares
	// BeforeApply and BeforeLookup are for tests: see partition.Options.
	BeforeApply  func(topic string, partition int32)
	BeforeLookup func(ids [][]byte)
	// Assigned is for tests: it is called with each partition of a request topic that is
	// assigned, before it is acquired.
	Assigned func(*partition.Partition)
}

// Run runs an instance until ctx ends, and then hands over in order. A nil
// error is a clean stop.
func Run(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	return RunWith(ctx, cfg, log, Options{})
}

// Serve is Run with other settings that come while the instance runs; see
// [Options].
func Serve(ctx context.Context, cfg *config.Config, reload <-chan *config.Config, log *slog.Logger) error {
	return RunWith(ctx, cfg, log, Options{Reload: reload, WholeProcess: true})
}

// RunWith is Run with options.
func RunWith(ctx context.Context, cfg *config.Config, log *slog.Logger, o Options) error {
	in := &instance{cfg: cfg, log: log, o: o, process: randomID(), begun: time.Now(), registry: o.Registry, partitions: newPartitions(log)}
	in.ready = &readiness{partitions: in.partitions, phase: "reaching the brokers"}
	if in.o.Now == nil {
		in.o.Now = time.Now
	}
	if in.registry == nil {
		in.registry = prometheus.NewRegistry()
	}
	in.logStart()
	in.divideMemory()
	if err := in.openTraces(ctx); err != nil {
		return err
	}
	defer in.traces.stop()
	err := refusedSetting(cfg, in.run(ctx))
	if err == nil {
		in.log.Info("stopped", "process", in.process, "after", time.Since(in.begun).Round(time.Millisecond))
	}
	return err
}

// instance is one running process. It starts its parts in order, and stops them.
type instance struct {
	cfg      *config.Config
	log      *slog.Logger
	o        Options
	process  string
	begun    time.Time
	registry *prometheus.Registry
	traces   traces
	shares   memory.Shares

	ready      *readiness
	api        *apiserver.Server // nil: none
	partitions *partitions
	cluster    *cluster
	access     *access
	topics     *servedTopics
	store      *statestore.Store
	// storeDead: calls into the store may never return.
	storeDead atomic.Bool
}

// logStart logs what a reader of the log will want to know first.
func (in *instance) logStart() {
	b := ops.ReadBuild()
	dir, err := filepath.Abs(in.cfg.DataDir)
	if err != nil {
		dir = in.cfg.DataDir // it is still a name for it
	}
	in.log.Info("starting", "version", b.Version, "revision", b.Revision, "go", runtime.Version(), "process", in.process,
		"data_dir", dir, "settings", in.cfg)
}

// divideMemory divides the memory that there is, and logs how much it is and why.
func (in *instance) divideMemory() {
	if in.o.Memory != nil {
		in.shares = *in.o.Memory
		return
	}
	machine := os.DirFS("/")
	size, why := int64(in.cfg.Memory), "the setting memory"
	if size == 0 {
		size, why = memory.Choose(machine)
	}
	in.shares = memory.Divide(size)
	if in.o.WholeProcess {
		in.shares.Limit()
	}
	in.log.Info("memory that may be used", "because", why, "size", in.shares)
	if has, of := memory.Has(machine); has > 0 && has < size+size/10 {
		in.log.Warn("there is hardly more memory than may be used: the process may be killed; lower --memory, or raise the limit",
			"limit", of, "bytes", has)
	}
}

func randomID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// name names this process where owners are named, for people.
func (in *instance) name() string {
	name := in.cfg.InstanceID
	if name == "" {
		name, _ = os.Hostname()
	}
	return name + "/" + in.process
}

// run serves HTTP and runs the instance until ctx ends or a part of it fails.
func (in *instance) run(ctx context.Context) error {
	in.registry.MustRegister(ops.ReadBuild().Collector(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	// What must outlive membership runs under life; its failure ends everything.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	var servers sync.WaitGroup
	stop := func() { end(nil); servers.Wait() }
	defer stop()
	serve := func(run func(context.Context) error) {
		servers.Go(func() {
			if err := run(life); err != nil {
				end(err)
			}
		})
	}
	if err := in.listen(serve); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(life, func() { cancel(context.Cause(life)) })()
	err := in.serve(ctx, life, end)
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if cause := context.Cause(life); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause // also while starting: err is but its echo
	}
	if ctx.Err() != nil {
		return nil // told to stop, perhaps while starting
	}
	return err
}

// listen binds the addresses for HTTP, the profiler and the API, and passes on what serves them.
func (in *instance) listen(serve func(run func(context.Context) error)) (err error) {
	if in.cfg.HTTP != "" {
		server := ops.NewServer(in.cfg.HTTP, in.registry, in.ready, in.log)
		server.Secure(in.cfg.HTTPWebConfig)
		server.OnLeave(in.ready.handOver)
		if err := server.Listen(); err != nil {
			return err
		}
		serve(server.Run)
		if in.o.Started != nil {
			in.o.Started(server.Addr())
		}
	}
	if in.cfg.Pprof != "" {
		profiler := ops.NewProfiler(in.cfg.Pprof, in.log)
		if err := profiler.Listen(); err != nil {
			return err
		}
		serve(profiler.Run)
	}
	if in.api, err = apiserver.Listen(in.cfg, in.shares.Calls, in.log, in.registry); in.api == nil {
		return err
	}
	serve(in.api.Run)
	if in.o.StartedAPI != nil {
		in.o.StartedAPI(in.api.URL())
	}
	return nil
}

// serve starts everything from the brokers on, and runs until ctx ends. An error of what runs under life
// is passed on to end.
func (in *instance) serve(ctx, life context.Context, end context.CancelCauseFunc) (err error) {
	if in.cluster, err = openCluster(in.cfg, in.process, &in.o, in.log, in.registry); err != nil {
		return err
	}
	defer in.cluster.close()
	if err := in.awaitAccess(ctx); err != nil {
		return err
	}
	in.ready.setPhase("checking topics")
	if in.topics, err = openTopics(ctx, in.cfg, in.cluster); err != nil {
		return err
	}
	in.ready.setPhase("opening the store")
	if err := in.openStore(ctx, end); err != nil {
		return err
	}
	defer in.closeStore()
	in.ready.setPhase("joining the group")
	p, err := in.openPipeline(ctx)
	if err != nil {
		return err
	}
	in.partitions.life = life
	p.start(life, end)
	stopAPI, err := in.openAPI(p)
	if err == nil {
		in.ready.runs(p.member, p.clock, in.topics)
		in.log.Info("running", "group", in.cfg.Group, "requests", in.cfg.Requests, "delay", in.cfg.DelayTopics(), "process", in.process)
		err = p.member.run(ctx, func(why error) {
			in.ready.setPhase("left the group: " + why.Error() + "; run a version that can read it")
		})
	}
	in.ready.setPhase("stopped")
	end(nil)
	in.awaitEnd(p)
	stopAPI()
	return err
}

// openAPI has the API answer, if there is one, until stop is called.
func (in *instance) openAPI(p *pipeline) (stop func(), err error) {
	if in.api == nil {
		return func() {}, nil
	}
	return in.api.Open(&apiserver.Instance{
		Name: in.name(), Process: in.process, Begun: in.begun, Now: in.o.Now, Client: in.cluster.client, Options: in.cluster.options, Topics: in.topics.sets(),
		Group: p.member.group, Problem: p.member.problem, Partitions: in.partitions, Targets: in.cluster.targets, CreateTargets: in.o.AutoCreateTargets, Health: p.health, Tracer: in.traces.calls,
	})
}

// awaitAccess waits until the brokers let this process do what it needs.
func (in *instance) awaitAccess(ctx context.Context) error {
	in.access = &access{cfg: in.cfg, client: in.cluster.client, log: in.log, probe: hanging.TransactionalIDPrefix(in.cfg.Group) + in.process + "/rights"}
	in.ready.setAccess(in.access)
	in.registry.MustRegister(in.access)
	return in.access.await(ctx)
}

// awaitEnd waits for partitions and all else that runs, unless they are held up by
// a write that is blocked forever.
func (in *instance) awaitEnd(p *pipeline) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		in.partitions.wg.Wait()
		p.running.Wait()
	}()
	for {
		select {
		case <-gone:
			return
		case <-time.After(deadStoreWait):
			if in.storeDead.Load() {
				return
			}
		}
	}
}
