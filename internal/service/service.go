package service

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/membership"
	"github.com/waterclock/waterclock/internal/ops"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// maxReplays is how many partitions are replayed at a time; each may hold some 50 MB.
	maxReplays = 4
	// maxSubPartitions is the automatic number of workers per partition.
	maxSubPartitions = 4
	// minWheel is the least memory for timers that a worker is given.
	minWheel = 64 << 10
	// deadStoreWait is how long the end of partitions is waited for when the
	// store can not go on.
	deadStoreWait = time.Second
	// minQueue is the least memory for a partition's queue.
	minQueue = 2 << 20
	// clientPrefix and the process ID make the client ID.
	clientPrefix = "waterclock-"
	// storeDir is the folder of the local store within the data folder.
	storeDir = "store"
	// queueEntry is about what a request takes in the queue; it turns the
	// queue's bytes into a count.
	queueEntry = 256
)

// Options are what tests and embedders set beyond configuration.
type Options struct {
	// Kafka is added to the options of every client.
	Kafka []kgo.Opt
	// AutoCreateTargets lets the broker make target topics on first use.
	AutoCreateTargets bool
	// Now is the clock; nil is the machine's.
	Now func() time.Time
	// Registry takes the metrics; nil makes one.
	Registry *prometheus.Registry
	// Started is called when the instance serves HTTP, with its address.
	Started func(httpAddr string)
	// AccessInterval is how often rights are looked at; 0 is the usual 30 s.
	AccessInterval time.Duration
	// BeforeApply is for tests: see partition.Options.
	BeforeApply func(topic string, partition int32)
}

// Run runs an instance until ctx ends, and then hands over in order. A nil
// error is a clean stop.
func Run(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	return RunWith(ctx, cfg, log, Options{})
}

// RunWith is Run with options.
func RunWith(ctx context.Context, cfg *config.Config, log *slog.Logger, o Options) error {
	in := &instance{cfg: cfg, log: log, o: o, process: randomID(), parts: make(map[key]*owned)}
	if in.o.Now == nil {
		in.o.Now = time.Now
	}
	return in.run(ctx)
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

// owned is a partition of ours with the end of its goroutine.
type owned struct {
	token *membership.Token
	p     *partition.Partition
	gone  chan struct{}
}

// instance is one running process. It implements membership.Handler and
// ops.Readiness.
type instance struct {
	cfg     *config.Config
	log     *slog.Logger
	o       Options
	process string

	registry *prometheus.Registry
	opts     []kgo.Opt
	client   *kgo.Client // administration and raw fetches
	store    *statestore.Store
	lanes    []*emitter.Lane
	reader   *intake.Reader
	targets  *emitter.Targets
	health   *emitter.Health
	markers  *emitter.Markers
	group    *membership.Group
	replays  *semaphore.Weighted
	topics   map[string]*served
	metrics  *partition.Metrics
	recheck  *recheck
	life     context.Context // of partitions
	partsWG  sync.WaitGroup
	// storeDead: calls into the store may never return.
	storeDead atomic.Bool

	mu     sync.Mutex // guards what follows
	phase  string     // what start waits for; "" when running
	access *access    // nil until there is a client
	parts  map[key]*owned
}

// served is one request topic.
type served struct {
	set        delaytopics.Set
	rules      *intake.Rules
	maxAbsence time.Duration
}

func (in *instance) run(ctx context.Context) (err error) {
	in.registry = in.o.Registry
	if in.registry == nil {
		in.registry = prometheus.NewRegistry()
	}
	in.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	in.setPhase("reaching the brokers")

	// What must outlive membership runs under life; its failure ends all.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	var background sync.WaitGroup
	defer background.Wait()
	defer end(nil)
	if in.cfg.HTTP != "" {
		server := ops.NewServer(in.cfg.HTTP, in.registry, in, in.log)
		server.Secure(in.cfg.HTTPWebConfig)
		if err := server.Listen(); err != nil {
			return err
		}
		if in.o.Started != nil {
			in.o.Started(server.Addr())
		}
		background.Go(func() {
			if err := server.Run(life); err != nil {
				end(err)
			}
		})
	}
	if in.cfg.Pprof != "" {
		profiler := ops.NewProfiler(in.cfg.Pprof, in.log)
		if err := profiler.Listen(); err != nil {
			return err
		}
		background.Go(func() {
			if err := profiler.Run(life); err != nil {
				end(err)
			}
		})
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	defer stop()
	err = in.serve(ctx, life, end)
	if cause := context.Cause(life); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // told to stop while starting
	}
	return err
}

// serve starts everything from the brokers on, and runs until ctx ends.
func (in *instance) serve(ctx, life context.Context, end context.CancelCauseFunc) error {
	if err := in.connect(ctx); err != nil {
		return err
	}
	defer in.client.Close()
	if err := in.openTopics(ctx); err != nil {
		return err
	}
	if err := in.openStore(ctx, end); err != nil {
		return err
	}
	defer func() {
		if err := in.store.Close(); err != nil {
			in.log.Error("close the store", "err", err)
		}
	}()
	background, err := in.startPipeline(life, end)
	if err != nil {
		return err
	}
	in.setPhase("")
	in.log.Info("running", "group", in.cfg.Group, "requests", in.cfg.Requests, "process", in.process)
	err = in.group.Run(ctx) // drains and leaves when ctx ends
	in.setPhase("stopped")
	end(nil)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		in.partsWG.Wait()
		background.Wait()
	}()
	for {
		select {
		case <-gone:
			return err
		case <-time.After(deadStoreWait):
			if in.storeDead.Load() {
				return err // a write that is blocked for ever holds them up
			}
		}
	}
}

func (in *instance) connect(ctx context.Context) (err error) {
	// The process ID in the client ID tells others of the group, through
	// DescribeGroups, whose transactions belong to a living member.
	in.opts, err = clientOptions(in.cfg, clientPrefix+in.process, in.log)
	if err != nil {
		return err
	}
	in.opts = append(in.opts, in.o.Kafka...)
	in.client, err = kgo.NewClient(requestOptions(in.opts)...)
	if err != nil {
		return fmt.Errorf("build client: %w", err)
	}
	a := &access{cfg: in.cfg, client: in.client, log: in.log, probe: emitter.TransactionalIDPrefix(in.cfg.Group) + in.process + "/rights"}
	in.mu.Lock()
	in.access = a
	in.mu.Unlock()
	in.registry.MustRegister(a)
	if err := a.await(ctx); err != nil {
		in.client.Close()
		return err
	}
	return nil
}

func (in *instance) openTopics(ctx context.Context) error {
	in.setPhase("checking topics")
	adm := kadm.NewClient(in.client)
	in.topics = make(map[string]*served)
	for _, name := range in.cfg.Requests {
		set, problems, err := delaytopics.Ensure(ctx, adm, name, delaytopics.Options{
			Create: in.cfg.CreateTopics, Replication: int16(in.cfg.ReplicationFactor),
		})
		if err != nil {
			return err
		}
		for _, p := range problems {
			in.log.Warn("topic setting", "problem", p.String())
		}
		in.topics[name] = &served{set: set, rules: rules(in.cfg, set), maxAbsence: set.Changelog.DeleteRetention / 2}
	}
	return nil
}

// rules are what requests of one topic are judged by.
func rules(cfg *config.Config, set delaytopics.Set) *intake.Rules {
	globs := cfg.TargetsOf(set.Request.Name)
	own := make(map[string]bool)
	for _, r := range cfg.Requests {
		own[r] = true
	}
	limits := intake.DefaultLimits()
	limits.Horizon, limits.Headers, limits.HeaderBytes = cfg.LimitHorizon, cfg.LimitHeaders, int(cfg.LimitHeaderBytes)
	limits.RecordBytes = set.Request.MaxMessageBytes
	check := intake.Warn
	switch cfg.PartitionerCheck {
	case config.CheckOff:
		check = intake.Off
	case config.CheckDeadLetter:
		check = intake.DeadLetter
	}
	return &intake.Rules{
		Topic: set.Request.Name, Partitions: set.Request.Partitions, DefaultTarget: cfg.DefaultTargetOf(set.Request.Name),
		PartitionerCheck: check, Limits: limits,
		Allow: func(topic string) bool {
			if strings.HasPrefix(topic, "__") || delaytopics.IsOwn(topic) || own[topic] {
				return false
			}
			for _, g := range globs {
				if ok, err := path.Match(g, topic); ok && err == nil {
					return true
				}
			}
			return false
		},
	}
}

func (in *instance) openStore(ctx context.Context, end context.CancelCauseFunc) error {
	in.setPhase("opening the store")
	cluster, err := kadm.NewClient(in.client).BrokerMetadata(ctx)
	if err != nil {
		return fmt.Errorf("read the cluster's ID: %w", err)
	}
	if err := os.MkdirAll(in.cfg.DataDir, 0o755); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	in.store, err = statestore.Open(statestore.Options{
		Dir: filepath.Join(in.cfg.DataDir, storeDir), Logger: in.log, Now: in.o.Now,
		OnFatal: func(err error) {
			err = fmt.Errorf("the local store in %s can not go on: %w", in.cfg.DataDir, err)
			in.log.Error("ending the process", "err", err)
			in.storeDead.Store(true)
			end(err)
		},
	})
	if err != nil {
		return err
	}
	if err := in.store.BindCluster(cluster.Cluster); err != nil {
		return errors.Join(err, in.store.Close())
	}
	in.registry.MustRegister(in.store.Collector())
	return nil
}

// startPipeline starts lanes, intake and the target cache under life.
func (in *instance) startPipeline(life context.Context, end context.CancelCauseFunc) (*sync.WaitGroup, error) {
	in.setPhase("joining the group")
	in.life = life
	in.replays = semaphore.NewWeighted(maxReplays)
	in.metrics = partition.NewMetrics(in.registry)
	in.targets = emitter.NewTargets(in.client, in.o.AutoCreateTargets)
	for _, t := range in.topics {
		for _, own := range []delaytopics.Topic{t.set.Changelog, t.set.DeadLetters} {
			in.targets.SetBatchMaxBytes(own.Name, int32(own.MaxMessageBytes))
		}
	}
	laneMetrics := emitter.NewMetrics(in.registry)
	in.markers = emitter.NewMarkers(in.client, in.targets, in.cfg.Group, in.log, laneMetrics)
	in.health = emitter.NewHealth(emitter.NewProber(in.opts, in.cfg.Group, in.process, in.markers).Probe, in.log)
	in.recheck = newRecheck(in)
	var err error
	if in.reader, err = intake.NewReader(in.opts...); err != nil {
		return nil, err
	}
	in.group, err = membership.New(membership.Options{
		Client: in.opts, Group: in.cfg.Group, InstanceID: in.cfg.InstanceID, Topics: in.cfg.Requests,
		SessionTimeout: in.cfg.SessionTimeout, RebalanceTimeout: in.cfg.RebalanceTimeout,
		Leave: in.cfg.OnStop == config.Leave, Logger: in.log,
	}, in)
	if err != nil {
		return nil, err
	}
	background := new(sync.WaitGroup)
	start := func(run func(context.Context) error) {
		background.Go(func() {
			if err := run(life); err != nil {
				end(err)
			}
		})
	}
	for i := range in.laneCount() {
		lane := emitter.NewLane(emitter.Options{
			Client: in.opts, Admin: in.client, Group: in.cfg.Group, Process: in.process, Lane: i,
			TransactionalIDs: in.cfg.TransactionalIDs, TransactionTimeout: in.cfg.TransactionTimeout,
			BatchMaxBytes: in.targets.BatchMaxBytes, Version: in.targets.Version, Stale: in.targets.Stale,
			Health: in.health, Markers: in.markers, Leaderless: in.targets.Leaderless, Logger: in.log, Metrics: laneMetrics,
		})
		in.lanes = append(in.lanes, lane)
		start(lane.Run)
	}
	start(func(ctx context.Context) error { in.access.watch(ctx, in.o.AccessInterval); return nil })
	start(in.recheck.Run)
	start(newClockWatch(in.o.Now, in.wake, in.log, in.registry).Run)
	start(in.reader.Run)
	start(in.targets.Run)
	start(in.health.Run)
	start(in.markers.Run)
	watch := &emitter.Watch{
		Client: in.client, Group: in.cfg.Group, Process: in.process, Timeout: in.cfg.TransactionTimeout, Markers: in.markers, Logger: in.log, Metrics: laneMetrics,
		ProcessOf: func(clientID string) string {
			p, ours := strings.CutPrefix(clientID, clientPrefix)
			if !ours {
				return ""
			}
			return p
		},
	}
	start(watch.Run)
	in.registry.MustRegister(&stateCollector{in})
	return background, nil
}

func (in *instance) laneCount() int {
	if in.cfg.Lanes > 0 {
		return in.cfg.Lanes
	}
	return max(1, runtime.GOMAXPROCS(0)/4)
}

func (in *instance) subPartitions() int {
	if in.cfg.SubPartitions > 0 {
		return in.cfg.SubPartitions
	}
	return min(maxSubPartitions, runtime.GOMAXPROCS(0))
}

// partitions is the number of partitions of all request topics: this process
// may come to own them all, and its memory is shared out for that.
func (in *instance) partitions() (n int64) {
	for _, t := range in.topics {
		n += int64(t.set.Request.Partitions)
	}
	return n
}

// Assigned implements membership.Handler.
func (in *instance) Assigned(t *membership.Token) {
	topic := in.topics[t.Topic]
	if topic == nil {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	k := key{t.Topic, t.Partition}
	before := in.parts[k]
	o := &owned{token: t, p: in.newPartition(t, topic), gone: make(chan struct{})}
	in.parts[k] = o
	if why := in.recheck.stop(t.Topic); why != nil {
		o.p.Refuse(why)
	} else if t.Partition >= topic.set.Request.Partitions {
		in.recheck.soon()
		o.p.Refuse(errNewPartition)
	}
	in.partsWG.Go(func() {
		defer close(o.gone)
		if before != nil {
			<-before.gone
		}
		o.p.Run(in.life)
	})
}

func (in *instance) newPartition(t *membership.Token, topic *served) *partition.Partition {
	owner := in.cfg.InstanceID
	if owner == "" {
		owner, _ = os.Hostname()
	}
	workers := in.subPartitions()
	queue := max(minQueue, int64(in.cfg.QueueMemory)/in.partitions())
	return partition.New(partition.Options{
		Topics: &topic.set, Partition: t.Partition, Rules: topic.rules,
		Group: in.cfg.Group, Owner: owner + "/" + in.process,
		SubPartitions: workers, Token: t,
		Store: in.store.Partition(statestore.PartitionID{Topic: topic.set.Request.ID, Partition: t.Partition}),
		Lane:  in.lanes[int(t.Partition)%len(in.lanes)], Targets: in.targets, Health: in.health, Markers: in.markers, Reader: in.reader, Client: in.client,
		Replays: in.replays, Now: in.o.Now,
		WheelBytes:   max(minWheel, int64(in.cfg.WheelMemory)/in.partitions()/int64(workers)),
		QueueEntries: int(queue / queueEntry), QueueBytes: queue,
		MaxAbsence: topic.maxAbsence, AcceptGroup: in.cfg.AcceptGroup, AcceptLostChangelog: in.cfg.AcceptLostChangelog,
		Logger: in.log, Metrics: in.metrics, BeforeApply: in.o.BeforeApply,
	})
}

// Revoked implements membership.Handler.
func (in *instance) Revoked(ts []*membership.Token) {
	var wg sync.WaitGroup
	for _, t := range ts {
		if o := in.owned(t); o != nil {
			wg.Go(o.p.Drain)
		}
	}
	wg.Wait()
	in.forget(ts)
}

// Lost implements membership.Handler.
func (in *instance) Lost(ts []*membership.Token) {
	for _, t := range ts {
		in.log.Warn("partition lost", "topic", t.Topic, "partition", t.Partition, "err", t.Err())
	}
	in.forget(ts)
}

func (in *instance) owned(t *membership.Token) *owned {
	in.mu.Lock()
	defer in.mu.Unlock()
	if o := in.parts[key{t.Topic, t.Partition}]; o != nil && o.token == t {
		return o
	}
	return nil
}

// ownedOf returns the partitions of a request topic that are ours.
func (in *instance) ownedOf(topic string) (ps []*partition.Partition) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for k, o := range in.parts {
		if k.topic == topic {
			ps = append(ps, o.p)
		}
	}
	return ps
}

// wake makes every partition look at the clock.
func (in *instance) wake() {
	for name := range in.topics {
		for _, p := range in.ownedOf(name) {
			p.Wake()
		}
	}
}

// forget drops partitions from the list once their goroutines have ended.
func (in *instance) forget(ts []*membership.Token) {
	for _, t := range ts {
		o := in.owned(t)
		if o == nil {
			continue
		}
		go func() {
			<-o.gone
			in.mu.Lock()
			defer in.mu.Unlock()
			if k := (key{t.Topic, t.Partition}); in.parts[k] == o {
				delete(in.parts, k)
			}
		}()
	}
}

func (in *instance) setPhase(p string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.phase = p
}
