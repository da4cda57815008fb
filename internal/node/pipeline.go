package node

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/kit/clocks"
	"github.com/waterclock/waterclock/internal/kit/memory"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/policy"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/ownership/membership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/rates"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// minReplays is how many partitions may be replayed at a time even on one core, if memory has room for them.
	minReplays = 2
	// maxLanes is the largest number of lanes if --lanes is not set. On four cores a fourth lane adds 2 to 10 %. More
	// than six lanes were never measured.
	maxLanes = 8
	// deadStoreWait is how often an instance that waits for the end of its partitions checks whether the store is dead.
	deadStoreWait = time.Second
)

// replaySlots returns how many partitions are replayed at a time: one for each core, because a replay mostly computes.
// It is at least minReplays, but never more than memory has room for.
func replaySlots(cores, room int) int { return min(room, max(minReplays, cores)) }

// laneCount returns how many lanes there may be. If the setting gives no number, it is one for each core, up to
// maxLanes, and two on one core, because a second lane works while the first waits for the broker.
func laneCount(set int) int {
	if set > 0 {
		return set
	}
	return min(maxLanes, max(2, runtime.GOMAXPROCS(0)))
}

// pipeline is everything between the request topics and the targets, and the parts that watch over it.
type pipeline struct {
	member   *member
	health   *targets.Health
	clock    *clockWatch
	settings *settingsWatch
	limiter  *rates.Limiter

	runs    []func(context.Context) error // each runs until its context ends
	running sync.WaitGroup
}

// openPipeline builds everything between the request topics and the targets. Its member is in no group yet.
func (in *instance) openPipeline(ctx context.Context) (*pipeline, error) {
	cfg, c, log := in.cfg, in.cluster, in.log
	metrics := partition.NewMetrics(in.o.Registry)
	if in.o.Shown {
		metrics.Mute()
	}
	for name, t := range in.topics.byName {
		metrics.Serve(name)
		for _, own := range t.set.Own() {
			c.targets.SetBatchMaxBytes(own.Name, int32(own.MaxMessageBytes))
		}
	}
	known := new(clocks.Clocks)
	repairs := repair.NewMetrics(in.o.Registry)
	markers := repair.NewMarkers(c.client, c.targets, cfg.Group, log, repairs)
	p := &pipeline{member: newMember(ctx, cfg.Group, log)}
	prober := targets.NewProber(targets.ProberOptions{
		Client: c.options, IDPrefix: repair.TransactionalIDPrefix(cfg.Group) + in.process + "/", Metadata: c.targets,
		Probed: markers.Probed, Now: in.o.Now,
	})
	p.health = targets.NewHealth(targets.HealthOptions{Probe: prober.Probe, Targets: c.targets, Logger: log})
	lanes := emitter.NewLanes(emitter.Options{
		Client: c.options, Admin: c.client, Group: cfg.Group, Process: in.process, Lanes: laneCount(cfg.Lanes),
		TransactionalIDs: cfg.TransactionalIDs, Interval: cfg.FiringInterval,
		TransactionTimeout: cfg.TransactionTimeout, CommitTimeout: in.o.CommitTimeout, Targets: c.targets,
		Health: p.health, Markers: markers, Leaders: c.targets.Leaders, Logger: log,
		Metrics: emitter.NewMetrics(in.o.Registry),
	})
	skew := partition.NewClockSkew(c.client, known, lanes.Wake)
	p.clock = newClockWatch(in.o.Now, known, p.health, in.partitions.wake, skew.Want, log, in.o.Registry)
	reader, err := in.openReader()
	if err != nil {
		return nil, err
	}
	slots := replaySlots(runtime.GOMAXPROCS(0), in.shares.Replays)
	b := &builder{
		store: in.store, budgets: newBudgets(&in.shares, in.topics), assigned: in.o.Assigned,
		shared: ownership.Options{
			Group: cfg.Group, Owner: in.name(), API: in.api.URL(), Lanes: lanes, Targets: c.targets, Health: p.health,
			Markers: markers, Client: c.client,
			Now: in.o.Now, Clocks: known, AcceptGroup: cfg.AcceptGroup, AcceptLost: cfg.AcceptLostChangelog,
			Logger: log, Newer: p.member.resign,
		},
		timers: partition.Options{
			Reader: reader, ClockSkew: skew, Metrics: metrics, Traces: in.traces.firings,
			HeldPatience: in.o.HeldPatience, BeforeCheckpoint: in.o.BeforeCheckpoint, BeforeLookup: in.o.BeforeLookup,
			Calendars: in.calendars, Follow: semaphore.NewWeighted(1),
			Replays: semaphore.NewWeighted(int64(slots)),
			Scans:   semaphore.NewWeighted(int64(max(1, runtime.GOMAXPROCS(0)/2))),
			SubPartitions: func() int {
				return subPartitions(cfg.SubPartitions, in.partitions.count(), in.shares.Total)
			},
		},
		delays: delaytopics.Options{Reader: reader, ClockSkew: skew, Metrics: metrics, Traces: in.traces.firings},
	}
	partitions := make(map[string]int32)
	for name, t := range in.topics.requests() {
		partitions[name] = t.set.Request.Partitions
	}
	limiter := rates.New(rates.Options{Partitions: partitions, Rules: policy.Rates(cfg)})
	p.limiter, b.timers.Limiter = limiter, limiter
	for _, t := range in.topics.byName {
		t.rules.Schedules().Calendars = in.calendars
	}
	stand := newStandbys(standbyOptions{
		topics: in.topics, partitions: in.partitions, store: in.store, client: c.client, slots: b.timers.Replays,
		turns: semaphore.NewWeighted(int64(max(1, slots-1))), room: int(in.shares.Replay), session: cfg.SessionTimeout,
		damaged: metrics.Damaged, log: log,
	}, in.o.Registry)
	in.partitions.topics, in.partitions.build, in.partitions.take = in.topics, b.build, stand.take
	p.settings = newSettingsWatch(cfg, c.client, log, in.o.Registry)
	p.member.group, err = membership.New(membership.Options{
		Client: append(slices.Clone(c.options), kgo.Dialer(c.dialer.DialPatiently)), Group: cfg.Group,
		Process: in.process, InstanceID: cfg.InstanceID, Topics: in.topics.names(),
		SessionTimeout: cfg.SessionTimeout, RebalanceTimeout: cfg.RebalanceTimeout, Leave: cfg.OnStop == config.Leave,
		Now: in.o.Now, Logger: log,
		Views:    func() []membership.View { return localViews(in.store, in.topics, in.o.Now()) },
		Settings: p.settings.digest,
		Standbys: stand.asMember(cfg.Standbys),
	}, in.partitions)
	if err != nil {
		return nil, err
	}
	in.o.Registry.MustRegister(
		&stateCollector{in.partitions, in.topics, p.member.group, cfg.PartitionerCheck != config.CheckOff})
	c.lanes.Store(lanes)
	watch := &repair.Watch{
		Client: c.client, Group: cfg.Group, Process: in.process, Timeout: cfg.TransactionTimeout, Markers: markers,
		Logger: log, Metrics: repairs,
		Living: func(g *kadm.DescribedGroup) (map[string]bool, bool) { return membership.Living(g, processOf) },
	}
	p.runs = []func(context.Context) error{
		lanes.Run, reader.Run, c.targets.Run, p.health.Run, markers.Run, watch.Run, skew.Run, p.clock.Run,
		newRecheck(cfg, in.topics, in.partitions, c.client, log, in.o.Registry).Run,
		newLogEnds(in.partitions, in.topics, c.client, log).Run,
		newStaleViews(in.store, in.topics, in.partitions, in.o.Now, log).Run,
		(&reloader{cfg, in.o.Reload, in.topics, reader, limiter, in.access, p.settings, p.member.group.Rejoin,
			log}).Run,
		limiter.Run,
		p.settings.Run, in.calendars.Run,
		func(ctx context.Context) error { in.access.watch(ctx, in.o.AccessInterval); return nil },
		func(ctx context.Context) error { return stand.Run(ctx, p.member.group.Rejoin) },
	}
	return p, nil
}

// openReader makes the client that reads requests.
func (in *instance) openReader() (*intake.Reader, error) {
	reader, err := intake.NewReader(in.topics.largestRequest(), int(in.shares.Fetch), in.cluster.options...)
	if err != nil {
		return nil, err
	}
	for name, t := range in.topics.requests() {
		reader.SetQuota(name, policy.Quota(in.cfg, t.set))
	}
	return reader, nil
}

// processOf returns the process that a client ID names; "" if the client does not belong to an instance.
func processOf(clientID string) string {
	p, ours := strings.CutPrefix(clientID, clientPrefix)
	if !ours {
		return ""
	}
	return p
}

// start runs everything until life ends. It passes errors to failed.
func (p *pipeline) start(life context.Context, failed func(error)) {
	for _, run := range p.runs {
		p.running.Go(func() {
			if err := run(life); err != nil {
				failed(err)
			}
		})
	}
}

// builder builds partitions. Its options are common to all partitions.
type builder struct {
	shared   ownership.Options
	timers   partition.Options   // of partitions of request topics
	delays   delaytopics.Options // of partitions of fixed-delay topics
	store    *statestore.Store
	budgets  budgets
	assigned func(*partition.Partition) // nil, or a test's
}

func (b *builder) build(t *membership.Token, topic *served) servedPartition {
	own := b.shared
	own.Topics, own.Settings, own.Partition, own.Token = &topic.set, topic.settings, t.Partition, t
	if topic.delayed() {
		o := b.delays
		o.Options, o.Rules, o.Queue = own, topic.rules, b.budgets.requests.Open(t.Topic)
		return delaytopics.New(o)
	}
	o := b.timers
	o.Options, o.Rules, o.Memory = own, topic.rules, b.budgets.of(t.Topic)
	o.Store = b.store.Partition(statestore.PartitionID{Topic: topic.set.Request.ID, Partition: t.Partition})
	p := partition.New(o)
	if b.assigned != nil {
		b.assigned(p)
	}
	return p
}

// subPartitions returns how many planners a partition gets if it is acquired now: one if the instance owns as many
// partitions as it has cores, and more if it owns fewer, to keep the cores busy. A number in the settings takes
// precedence, as long as the planners of all partitions take no more than a sixteenth of the memory.
func subPartitions(set, owned int, memory int64) int {
	owned = max(1, owned)
	if set > 0 {
		return min(set, max(1, int(memory/16/planner.Memory)/owned))
	}
	return min(max(1, runtime.GOMAXPROCS(0)/owned), config.MaxSubPartitions)
}

// budgets are shared by all partitions. This process may come to own all of them.
type budgets struct {
	wheel, dirty, requests, firings, questions *budget.Budget
	replay                                     int // bytes of one replay
}

func newBudgets(s *memory.Shares, topics *servedTopics) budgets {
	timers, all := make(map[string]int32), make(map[string]int32)
	for name, t := range topics.byName {
		if all[name] = t.set.Request.Partitions; !t.delayed() {
			timers[name] = all[name]
		}
	}
	// Dirty timers may take half of their share of the memory, because the checkpoint that is being written may hold as
	// much again.
	return budgets{budget.New(s.Wheel, timers), budget.New(s.Dirty/2, timers), budget.New(s.Requests, all),
		budget.New(s.Firings, timers), budget.New(s.Questions, timers), int(s.Replay)}
}

// of returns the shares of a partition of a request topic.
func (b *budgets) of(topic string) partition.Memory {
	return partition.Memory{
		Wheel: b.wheel.Open(topic), Dirty: b.dirty.Open(topic), Requests: b.requests.Open(topic),
		Firings: b.firings.Open(topic), Questions: b.questions.Open(topic), Replay: b.replay,
	}
}
