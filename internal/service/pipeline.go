package service

import (
	"context"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/membership"
	"github.com/waterclock/waterclock/internal/partition"
)

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
		Never: func(topic string) string {
			switch {
			case delaytopics.IsOwn(topic):
				return "it is a topic that waterclock keeps for itself"
			case own[topic]:
				return "it is a request topic, where what fires would be refused for want of a due time, or be taken for a cancel"
			}
			return ""
		},
		Allow: func(topic string) bool {
			for _, g := range globs {
				if ok, err := path.Match(g, topic); ok && err == nil {
					return true
				}
			}
			return false
		},
	}
}

// startPipeline builds everything between intake and the lanes, and starts it under
// life. What ends with an error ends the instance.
func (in *instance) startPipeline(life context.Context, end context.CancelCauseFunc) (*sync.WaitGroup, error) {
	in.setPhase("joining the group")
	in.life = life
	in.replays = semaphore.NewWeighted(maxReplays)
	in.openMetrics()
	laneMetrics := emitter.NewMetrics(in.registry)
	in.openTargets(laneMetrics)
	in.clock = newClockWatch(in.o.Now, in.metrics.Clocks(), in.health, in.wake, in.stamps.Want, in.log, in.registry)
	in.recheck = newRecheck(in)
	if err := in.openIntake(); err != nil {
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
		start(in.openLane(i, laneMetrics).Run)
	}
	start(func(ctx context.Context) error { in.access.watch(ctx, in.o.AccessInterval); return nil })
	start(in.recheck.Run)
	start(in.stamps.Run)
	start(in.newLeftovers().Run)
	start(in.clock.Run)
	start(in.reader.Run)
	start(in.targets.Run)
	start(in.health.Run)
	start(in.markers.Run)
	start(in.newWatch(laneMetrics).Run)
	in.registry.MustRegister(&stateCollector{in})
	return background, nil
}

// openMetrics makes what partitions count in.
func (in *instance) openMetrics() {
	in.metrics = partition.NewMetrics(in.registry)
	if in.o.Shown {
		in.metrics.Mute()
	}
	for name := range in.topics {
		in.metrics.Serve(name)
	}
	in.stamps = partition.NewStamps(in.client, in.metrics)
}

// openTargets makes what remembers which targets are sick and which markers may be
// missing, and tells the limits of our own topics.
func (in *instance) openTargets(metrics *emitter.Metrics) {
	for _, t := range in.topics {
		for _, own := range []delaytopics.Topic{t.set.Changelog, t.set.DeadLetters} {
			in.targets.SetBatchMaxBytes(own.Name, int32(own.MaxMessageBytes))
		}
	}
	in.markers = emitter.NewMarkers(in.client, in.targets, in.cfg.Group, in.log, metrics)
	in.health = emitter.NewHealth(emitter.HealthOptions{
		Probe: emitter.NewProber(in.opts, in.cfg.Group, in.process, in.markers, in.o.Now).Probe, Targets: in.targets, Logger: in.log,
	})
}

// openIntake makes what reads requests, and the member of the group.
func (in *instance) openIntake() (err error) {
	if in.reader, err = intake.NewReader(in.largestRequest(), in.opts...); err != nil {
		return err
	}
	in.group, err = membership.New(membership.Options{
		Client: append(slices.Clone(in.opts), kgo.Dialer(in.dialer.DialPatiently)), Group: in.cfg.Group, InstanceID: in.cfg.InstanceID, Topics: in.cfg.Requests,
		SessionTimeout: in.cfg.SessionTimeout, RebalanceTimeout: in.cfg.RebalanceTimeout,
		Leave: in.cfg.OnStop == config.Leave, Logger: in.log,
	}, in)
	return err
}

// openLane adds a lane.
func (in *instance) openLane(number int, metrics *emitter.Metrics) *emitter.Lane {
	lane := emitter.NewLane(emitter.Options{
		Client: in.opts, Admin: in.client, Group: in.cfg.Group, Process: in.process, Lane: number,
		TransactionalIDs: in.cfg.TransactionalIDs, TransactionTimeout: in.cfg.TransactionTimeout, CommitTimeout: in.o.CommitTimeout,
		BatchMaxBytes: in.targets.BatchMaxBytes, Version: in.targets.Version, Stale: in.targets.Stale, Refuted: in.targets.Refuted,
		Health: in.health, Markers: in.markers, Reach: in.dialer, Leaders: in.targets, Logger: in.log, Metrics: metrics,
	})
	in.mu.Lock()
	defer in.mu.Unlock()
	in.lanes = append(in.lanes, lane)
	return lane
}

// newWatch makes what ends the transactions that others of the group left open.
func (in *instance) newWatch(metrics *emitter.Metrics) *emitter.Watch {
	return &emitter.Watch{
		Client: in.client, Group: in.cfg.Group, Process: in.process, Timeout: in.cfg.TransactionTimeout, Markers: in.markers, Logger: in.log, Metrics: metrics,
		ProcessOf: func(clientID string) string {
			p, ours := strings.CutPrefix(clientID, clientPrefix)
			if !ours {
				return ""
			}
			return p
		},
	}
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

// largestRequest is the size of the largest record that any request topic takes.
func (in *instance) largestRequest() (n int) {
	for _, t := range in.topics {
		n = max(n, t.set.Request.MaxMessageBytes)
	}
	return n
}
