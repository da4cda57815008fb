package node

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

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafka/calendars"
	"github.com/waterclock/waterclock/internal/kit/memory"
	"github.com/waterclock/waterclock/internal/kit/metric"
	"github.com/waterclock/waterclock/internal/node/apiserver"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/dialer"
	"github.com/waterclock/waterclock/internal/node/ops"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// clientPrefix and the process ID make the client ID.
	clientPrefix = "waterclock-"
	// connectPause is the pause between two tries to reach the brokers at start.
	connectPause = time.Second
)

// Options are for tests and embedders, in addition to the configuration.
type Options struct {
	// Dial opens connections to brokers; nil: TCP or TLS, as configured.
	Dial dialer.Func
	// CommitTimeout is how long an instance waits for the answer to a commit; 0 is the usual 2.5 s. Tests that delay an
	// answer need more.
	CommitTimeout time.Duration
	// MissingAfter is how long a target topic must be missing before due timers for it become dead letters; 0 is the
	// usual 10 s.
	MissingAfter time.Duration
	// HeldPatience is how long an acquired partition waits for open transactions on its request topic before its timers
	// fire; 0 is the usual 10 s.
	HeldPatience time.Duration
	// Now is the clock; nil is the machine's.
	Now func() time.Time
	// FS is for tests. It is the file system of the local store; nil is the machine's.
	FS vfs.FS
	// Registry takes the metrics; nil makes one.
	Registry *prometheus.Registry
	// Started is called when the instance serves HTTP, with its address.
	Started func(httpAddr string)
	// StartedAPI is called when the instance listens for its API, with the URL by which others know it.
	StartedAPI func(url string)
	// AccessInterval is how often the instance checks its rights; 0 is the usual 30 s.
	AccessInterval time.Duration
	// FlushInterval is how often the local store is flushed to disk; 0 is the usual 30 s.
	FlushInterval time.Duration
	// Shown says that the user sees refused requests in another way, so they are not logged.
	Shown bool
	// Reload brings new settings while the instance runs. They must be valid. The instance takes over those that can
	// change without a restart.
	Reload <-chan *config.Config
	// WholeProcess says that nothing else runs in this process, so the instance sets the runtime's memory limit.
	WholeProcess bool
	// Memory is for tests. It replaces the shares that follow from the setting.
	Memory *memory.Shares
	// BeforeCheckpoint and BeforeLookup are for tests: see partition.Options.
	BeforeCheckpoint func(topic string, partition int32)
	BeforeLookup     func(ids [][]byte)
	// Assigned is for tests. It is called with each partition of a request topic that is assigned, before its
	// acquisition.
	Assigned func(*partition.Partition)
}

// RunWith runs an instance until ctx ends, and then stops it in order (see the package comment). It returns nil after a
// clean stop.
func RunWith(ctx context.Context, cfg *config.Config, log *slog.Logger, o Options) error {
	in := &instance{
		cfg: cfg, log: log, o: o, process: randomID(), token: rand.Text(), begun: time.Now(),
		partitions: newPartitions(log),
	}
	in.ready = &readiness{partitions: in.partitions, phase: "reaching the brokers"}
	if in.o.Now == nil {
		in.o.Now = time.Now
	}
	if in.o.Registry == nil {
		in.o.Registry = prometheus.NewRegistry()
	}
	in.logStart()
	in.divideMemory()
	if err := in.openTraces(ctx); err != nil {
		return err
	}
	defer in.traces.stop()
	err := refusedSetting(cfg, in.run(ctx))
	if err == nil {
		in.log.Info("stopped", "process", in.process, "duration", time.Since(in.begun).Round(time.Millisecond))
	}
	return err
}

// instance is one running process. It starts its parts in order, and stops them.
type instance struct {
	cfg     *config.Config
	log     *slog.Logger
	o       Options
	process string
	token   string // that POST /leave needs
	begun   time.Time
	traces  traces
	shares  memory.Shares

	ready      *readiness
	api        *apiserver.Server // nil: none
	partitions *partitions
	cluster    *cluster
	access     *access
	topics     *servedTopics
	calendars  *calendars.Table
	store      *statestore.Store
	// storeDead says that calls into the store may never return.
	storeDead atomic.Bool
}

// logStart logs the first facts that readers of the log need.
func (in *instance) logStart() {
	b := ops.ReadBuild()
	dir, err := filepath.Abs(in.cfg.DataDir)
	if err != nil {
		dir = in.cfg.DataDir // the relative path names it, too
	}
	in.log.Info("starting", "version", b.Version, "revision", b.Revision, "go", runtime.Version(),
		"process", in.process,
		"data_dir", dir, "settings", in.cfg)
	if in.cfg.AcceptLostChangelog {
		in.log.Warn("accept-lost-changelog is set: the next lost changelog is accepted too, and timers that " +
			"have fired fire again; remove it once every partition is live")
	}
}

// divideMemory divides the instance's memory, and logs its size and source.
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
	in.log.Info("memory limit", "source", why, "size", in.shares)
	if has, of := memory.Has(machine); has > 0 && has < size+size/10 {
		in.log.Warn("memory limit close to the machine's memory, the process may be killed: lower --memory, or "+
			"raise the limit",
			"limit", of, "bytes", has)
	}
}

func randomID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// name is the name of this process as an owner of partitions, for people.
func (in *instance) name() string {
	name := in.cfg.InstanceID
	if name == "" {
		name, _ = os.Hostname()
	}
	return name + "/" + in.process
}

// run serves HTTP and runs the instance until ctx ends or a part of it fails.
func (in *instance) run(ctx context.Context) error {
	in.o.Registry.MustRegister(ops.ReadBuild().Collector(), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	// Everything that must outlive the membership runs under life. If one of these parts fails, everything ends.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	// The servers that show the instance's state answer until all else has ended, because a stop may hang too.
	seen, unseen := context.WithCancel(context.WithoutCancel(ctx))
	var servers sync.WaitGroup
	defer func() { end(nil); unseen(); servers.Wait() }()
	serve := func(under context.Context, run func(context.Context) error) {
		servers.Go(func() {
			if err := run(under); err != nil {
				end(err)
			}
		})
	}
	if err := in.listen(life, seen, serve); err != nil {
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
		return cause // err, if there is one, only follows from it
	}
	if ctx.Err() != nil {
		return nil // the instance was told to stop, perhaps while it started
	}
	return err
}

// listen binds the addresses for HTTP, the profiler and the API, and passes their servers to serve. The API ends with
// life, the others with seen.
func (in *instance) listen(
	life, seen context.Context, serve func(under context.Context, run func(context.Context) error)) (err error) {
	if in.cfg.HTTP != "" {
		server := ops.NewServer(in.cfg.HTTP, in.o.Registry, in.ready, in.log)
		server.Secure(in.cfg.HTTPWebConfig)
		server.OnLeave(in.token, in.ready.handOver)
		if err := server.Listen(); err != nil {
			return err
		}
		if in.o.Started != nil {
			in.o.Started(server.Addr()) // it is bound already, so early calls wait until it serves
		}
		serve(seen, server.Run)
	}
	if in.cfg.Pprof != "" {
		profiler := ops.NewProfiler(in.cfg.Pprof, in.log)
		if err := profiler.Listen(); err != nil {
			return err
		}
		serve(seen, profiler.Run)
	}
	if in.api, err = apiserver.Listen(in.cfg, in.shares.Calls, in.log, in.o.Registry); in.api == nil {
		return err
	}
	serve(life, in.api.Run)
	if in.o.StartedAPI != nil {
		in.o.StartedAPI(in.api.URL())
	}
	return nil
}

// serve starts everything from the brokers on, and runs until ctx ends. Errors of the parts that run under life go to
// end.
func (in *instance) serve(ctx, life context.Context, end context.CancelCauseFunc) (err error) {
	if in.cluster, err = openCluster(in.cfg, in.process, &in.o, in.log); err != nil {
		return err
	}
	defer in.cluster.close()
	if err := in.awaitAccess(ctx); err != nil {
		return err
	}
	if err := in.cluster.recognize(ctx); err != nil {
		return err
	}
	in.ready.setPhase("checking topics")
	if in.topics, err = openTopics(ctx, in.cfg, in.cluster); err != nil {
		return err
	}
	if in.calendars, err = openCalendars(ctx, in.cfg, in.cluster, in.o.Registry); err != nil {
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
		in.ready.setPhase("reading the calendars") // before any partition opens
		err = in.calendars.CaughtUp(ctx)
	}
	if err == nil {
		in.ready.runs(p.member, p.clock, in.topics)
		in.log.Info("running", "group", in.cfg.Group, "requests", in.cfg.Requests, "delay", in.cfg.DelayTopics(),
			"process", in.process)
		err = p.member.run(ctx, func() { in.ready.setPhase(p.member.problem()) })
	}
	in.ready.setPhase("stopping")
	end(nil)
	in.awaitEnd(p)
	stopAPI()
	return err
}

// openAPI makes the API answer until stop is called. If there is no API, it does nothing.
func (in *instance) openAPI(p *pipeline) (stop func(), err error) {
	if in.api == nil {
		return func() {}, nil
	}
	return in.api.Open(&apiserver.Instance{
		Name: in.name(), Process: in.process, Begun: in.begun, Now: in.o.Now,
		Client: in.cluster.client, Options: in.cluster.options, Topics: in.topics.sets(), Rules: in.topics.rules(),
		Group: p.member.group, Problem: p.member.problem, Partitions: in.partitions, Targets: in.cluster.targets,
		SettingsOf: p.settings.of, Health: p.health, Limiter: p.limiter, Tracer: in.traces.calls,
		Calendars: &calendars.Writer{Table: in.calendars, Options: in.cluster.options},
	})
}

// awaitAccess waits until the brokers grant this process all required permissions.
func (in *instance) awaitAccess(ctx context.Context) error {
	in.access = &access{cfg: in.cfg, targets: in.cfg, client: in.cluster.client, log: in.log,
		probe: repair.TransactionalIDPrefix(in.cfg.Group) + in.process + "/rights"}
	in.ready.setAccess(in.access)
	metric.In(in.o.Registry).GaugeFunc("waterclock_access_problems",
		"Missing Kafka permissions and rejected logins of this instance.", in.access.count)
	return in.access.await(ctx)
}

// awaitEnd waits until partitions and everything else have ended. If the store is dead, it stops waiting, because a
// call into the store may block them forever.
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
