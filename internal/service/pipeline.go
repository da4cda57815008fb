package service

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/hanging"
	"github.com/waterclock/waterclock/internal/membership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/service/policy"
	"github.com/waterclock/waterclock/internal/targets"
	"github.com/waterclock/waterclock/internal/transaction"
)

// replaySlots is how many partitions are replayed at a time: one for each core, because a replay mostly
// computes, but minReplays at least, and no more than memory has room for.
func replaySlots(cores, room int) int { return min(room, max(minReplays, cores)) }

// startPipeline builds everything between intake and the lanes, and starts it under
// life. What ends with an error ends the instance.
func (in *instance) startPipeline(life context.Context, end context.CancelCauseFunc) (*sync.WaitGroup, error) {
	in.setPhase("joining the group")
	in.life = life
	in.replays = semaphore.NewWeighted(int64(replaySlots(runtime.GOMAXPROCS(0), in.shares.Replays)))
	in.scans = semaphore.NewWeighted(int64(max(1, runtime.GOMAXPROCS(0)/2)))
	in.budgets = newBudgets(&in.shares, in.topics, in.delayed)
	in.openMetrics()
	repairs := hanging.NewMetrics(in.registry)
	in.openTargets(repairs)
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
	in.openLanes()
	start(in.lanes.Run)
	start(func(ctx context.Context) error { in.access.watch(ctx, in.o.AccessInterval); return nil })
	start(in.recheck.Run)
	start(newEdges(in).Run)
	start(in.stamps.Run)
	start(in.newLeftovers().Run)
	start(in.clock.Run)
	start(in.reader.Run)
	start(in.reload)
	start(in.targets.Run)
	start(in.health.Run)
	start(in.markers.Run)
	start(in.newWatch(repairs).Run)
	in.registry.MustRegister(&stateCollector{in})
	return background, nil
}

// openMetrics makes what partitions count in.
func (in *instance) openMetrics() {
	in.metrics = partition.NewMetrics(in.registry)
	if in.o.Shown {
		in.metrics.Mute()
	}
	for _, name := range in.all() {
		in.metrics.Serve(name)
	}
	in.stamps = partition.NewStamps(in.client, in.metrics)
}

// openTargets makes what remembers which targets are unhealthy and which markers may be
// missing, and tells the limits of our own topics.
func (in *instance) openTargets(repairs *hanging.Metrics) {
	for _, name := range in.all() {
		t := in.of(name)
		for _, own := range t.set.Own() {
			in.targets.SetBatchMaxBytes(own.Name, int32(own.MaxMessageBytes))
		}
	}
	in.markers = hanging.NewMarkers(in.client, in.targets, in.cfg.Group, in.log, repairs)
	prober := targets.NewProber(targets.ProberOptions{
		Client: in.opts, IDPrefix: hanging.TransactionalIDPrefix(in.cfg.Group) + in.process + "/", Metadata: in.targets, Probed: in.markers.Probed, Now: in.o.Now,
	})
	in.health = targets.NewHealth(targets.HealthOptions{Probe: prober.Probe, Targets: in.targets, Logger: in.log})
}

// openIntake makes what reads requests, and the member of the group.
func (in *instance) openIntake() (err error) {
	if in.reader, err = intake.NewReader(in.largestRequest(), in.opts...); err != nil {
		return err
	}
	for name, t := range in.topics {
		in.reader.SetQuota(name, policy.Quota(in.cfg, t.set))
	}
	in.group, err = membership.New(membership.Options{
		Client: append(slices.Clone(in.opts), kgo.Dialer(in.dialer.DialPatiently)), Group: in.cfg.Group, Process: in.process, InstanceID: in.cfg.InstanceID, Topics: in.all(),
		SessionTimeout: in.cfg.SessionTimeout, RebalanceTimeout: in.cfg.RebalanceTimeout,
		Leave: in.cfg.OnStop == config.Leave, Now: in.o.Now, Views: in.views, Logger: in.log,
	}, in)
	return err
}

// openLanes makes what commits the steps of all partitions.
func (in *instance) openLanes() {
	lanes := transaction.NewLanes(transaction.Options{
		Client: in.opts, Admin: in.client, Group: in.cfg.Group, Process: in.process, Lanes: in.laneCount(),
		TransactionalIDs: in.cfg.TransactionalIDs, Interval: in.cfg.FiringInterval, TransactionTimeout: in.cfg.TransactionTimeout, CommitTimeout: in.o.CommitTimeout,
		BatchMaxBytes: in.targets.BatchMaxBytes, Version: in.targets.Version, Stale: in.targets.Stale, Refuted: in.targets.Refuted,
		Health: in.health, Markers: in.markers, Leaders: in.targets.Leaders, Logger: in.log, Metrics: transaction.NewMetrics(in.registry),
	})
	in.mu.Lock()
	defer in.mu.Unlock()
	in.lanes = lanes
}

// newWatch makes what ends the transactions that others of the group left open.
func (in *instance) newWatch(repairs *hanging.Metrics) *hanging.Watch {
	return &hanging.Watch{
		Client: in.client, Group: in.cfg.Group, Process: in.process, Timeout: in.cfg.TransactionTimeout, Markers: in.markers, Logger: in.log, Metrics: repairs,
		Living: func(g *kadm.DescribedGroup) (map[string]bool, bool) { return membership.Living(g, processOf) },
	}
}

// processOf returns the process in a client ID, "" for a foreign one.
func processOf(clientID string) string {
	p, ours := strings.CutPrefix(clientID, clientPrefix)
	if !ours {
		return ""
	}
	return p
}

// maxLanes is how many lanes there may be at most if --lanes is not set. On four cores a fourth lane
// brings a fiftieth to a tenth more; nothing was measured with more than six.
const maxLanes = 8

// laneCount is how many lanes there may be: one for each core, but two on one core, because a second
// lane goes on while the first waits for the broker.
func (in *instance) laneCount() int {
	if in.cfg.Lanes > 0 {
		return in.cfg.Lanes
	}
	return min(maxLanes, max(2, runtime.GOMAXPROCS(0)))
}

// largestRequest is the size of the largest record that any topic takes that is read.
func (in *instance) largestRequest() (n int) {
	for _, name := range in.all() {
		n = max(n, in.of(name).set.Request.MaxMessageBytes)
	}
	return n
}
