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
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/dialer"
	"github.com/waterclock/waterclock/internal/hanging"
	"github.com/waterclock/waterclock/internal/membership"
	"github.com/waterclock/waterclock/internal/memory"
	"github.com/waterclock/waterclock/internal/ops"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/targets"
	"github.com/waterclock/waterclock/internal/topics"
	"github.com/waterclock/waterclock/internal/transaction"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// minReplays is how many partitions may be replayed at a time even on one core.
	minReplays = 2
	// deadStoreWait is how long the end of partitions is waited for when the
	// store cannot go on.
	deadStoreWait = time.Second
	// clientPrefix and the process ID make the client ID.
	clientPrefix = "waterclock-"
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
	in := &instance{cfg: cfg, log: log, o: o, process: randomID(), begun: time.Now(), parts: make(map[key]*owned)}
	if in.o.Now == nil {
		in.o.Now = time.Now
	}
	in.sayStart()
	in.shareMemory()
	err := refusedSetting(cfg, in.run(ctx))
	if err == nil {
		log.Info("stopped", "process", in.process, "after", time.Since(in.begun).Round(time.Millisecond))
	}
	return err
}

// sayStart logs what a reader of the log will want to know first.
func (in *instance) sayStart() {
	b := ops.ReadBuild()
	dir, err := filepath.Abs(in.cfg.DataDir)
	if err != nil {
		dir = in.cfg.DataDir // it is still a name for it
	}
	in.log.Info("starting", "version", b.Version, "revision", b.Revision, "go", runtime.Version(), "process", in.process,
		"data_dir", dir, "settings", in.cfg)
}

// shareMemory divides the memory that there is, and says what it is and why.
func (in *instance) shareMemory() {
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

type key struct {
	topic     string
	partition int32
}

// instance is one running process. It implements membership.Handler and
// ops.Readiness.
type instance struct {
	cfg     *config.Config
	log     *slog.Logger
	o       Options
	process string
	begun   time.Time

	registry *prometheus.Registry
	opts     []kgo.Opt
	client   *kgo.Client // administration and raw fetches
	dialer   *dialer.Dialer
	store    *statestore.Store
	reader   *intake.Reader
	targets  *targets.Metadata
	health   *targets.Health
	markers  *hanging.Markers
	group    *membership.Group
	replays  *semaphore.Weighted
	scans    *semaphore.Weighted
	shares   memory.Shares
	budgets  budgets
	topics   map[string]*served // request topics
	delayed  map[string]*served // fixed-delay topics
	metrics  *partition.Metrics
	stamps   *partition.Stamps
	clock    *clockWatch
	recheck  *recheck
	api      *apiServer      // nil: none
	life     context.Context // of partitions
	member   context.Context // of the membership
	leave    context.CancelCauseFunc
	partsWG  sync.WaitGroup
	// storeDead: calls into the store may never return.
	storeDead atomic.Bool

	mu     sync.Mutex // guards what follows
	phase  string     // what start waits for; "" when running
	access *access    // nil until there is a client
	lanes  *transaction.Lanes
	parts  map[key]*owned
}

// served is one request topic, or one fixed-delay topic.
type served struct {
	set      topics.Set
	settings *ownership.Settings
	rules    *intake.Rules
}

func newServed(cl *kgo.Client, set topics.Set, rules *intake.Rules) *served {
	s := &served{set: set, rules: rules}
	s.settings = ownership.NewSettings(cl, &s.set)
	return s
}

func (in *instance) run(ctx context.Context) error {
	in.registry = in.o.Registry
	if in.registry == nil {
		in.registry = prometheus.NewRegistry()
	}
	in.registry.MustRegister(ops.ReadBuild().Collector(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	in.setPhase("reaching the brokers")

	// What must outlive membership runs under life; its failure ends all.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	defer background.Wait()
	defer end(nil)
	servers, err := in.listen()
	for _, s := range servers {
		background.Go(func() {
			if err := s.Run(life); err != nil {
				end(err)
			}
		})
	}
	if err != nil {
		return err
	}
	if in.api, err = in.listenAPI(); err != nil {
		return err
	}
	if in.api != nil {
		background.Go(func() {
			if err := in.api.Run(life); err != nil {
				end(err)
			}
		})
		if in.o.StartedAPI != nil {
			in.o.StartedAPI(in.api.URL())
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	defer stop()
	err = in.serve(ctx, life, end)
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

// listen binds the addresses for HTTP and the profiler. What it returns must be run,
// also with an error.
func (in *instance) listen() (servers []*ops.Server, err error) {
	if in.cfg.HTTP != "" {
		server := ops.NewServer(in.cfg.HTTP, in.registry, in, in.log)
		server.Secure(in.cfg.HTTPWebConfig)
		if err := server.Listen(); err != nil {
			return nil, err
		}
		servers = append(servers, server)
		if in.o.Started != nil {
			in.o.Started(server.Addr())
		}
	}
	if in.cfg.Pprof != "" {
		profiler := ops.NewProfiler(in.cfg.Pprof, in.log)
		if err := profiler.Listen(); err != nil {
			return servers, err
		}
		servers = append(servers, profiler)
	}
	return servers, nil
}

// serve starts everything from the brokers on, and runs until ctx ends.
func (in *instance) serve(ctx, life context.Context, end context.CancelCauseFunc) error {
	if err := in.openClient(); err != nil {
		return err
	}
	defer in.client.Close()
	defer in.probe(life)()
	if err := in.connect(ctx); err != nil {
		return err
	}
	if err := in.openTopics(ctx); err != nil {
		return err
	}
	if err := in.openStore(ctx, end); err != nil {
		return err
	}
	defer func() {
		if err := in.store.Close(); err != nil && !errors.Is(err, statestore.ErrEnded) {
			in.log.Error("close the store", "err", err)
		}
	}()
	in.member, in.leave = context.WithCancelCause(ctx)
	defer in.leave(nil)
	background, err := in.startPipeline(life, end)
	if err != nil {
		return err
	}
	if in.api != nil {
		stop, err := in.api.open(in)
		if err != nil {
			end(err)
			return err
		}
		defer stop()
	}
	in.setPhase("")
	in.log.Info("running", "group", in.cfg.Group, "requests", in.cfg.Requests, "delay", in.cfg.DelayTopics(), "process", in.process)
	err = in.group.Run(in.member) // drains and leaves when ctx ends
	in.standAside(ctx, err)
	in.setPhase("stopped")
	end(nil)
	in.awaitEnd(background)
	return err
}

// awaitEnd waits for partitions and all else that runs, unless they are held up by
// a write that is blocked forever.
func (in *instance) awaitEnd(background *sync.WaitGroup) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		in.partsWG.Wait()
		background.Wait()
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

func (in *instance) setPhase(p string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.phase = p
}
