package service

import (
	"context"
	"os"
	"runtime"
	"sync"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/internal/budget"
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/membership"
	"github.com/waterclock/waterclock/internal/memory"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/statestore"
)

// owned is a partition of ours with the end of its goroutine.
type owned struct {
	token *membership.Token
	p     servedPartition
	gone  chan struct{}
}

// servedPartition is an owned partition, of a request topic or of a fixed-delay one.
type servedPartition interface {
	Run(ctx context.Context)
	Drain()
	Wake()
	Status() ownership.Status
	Serving() (s ownership.State, leaving bool)
	SetLogEnd(e ownership.LogEnd)
	Life() *ownership.Life
}

// Assigned implements membership.Handler.
func (in *instance) Assigned(t *membership.Token) {
	topic := in.of(t.Topic)
	if topic == nil {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	k := key{t.Topic, t.Partition}
	before := in.parts[k]
	o := &owned{token: t, gone: make(chan struct{})}
	if in.topics[t.Topic] != nil {
		o.p = in.newPartition(t, topic)
	} else {
		o.p = in.newDelayed(t, topic)
	}
	in.parts[k] = o
	if why := in.recheck.stop(t.Topic); why != nil {
		o.p.Life().Refuse(why)
	} else if t.Partition >= topic.set.Request.Partitions {
		in.recheck.soon()
		o.p.Life().Refuse(errNewPartition)
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
	p := partition.New(partition.Options{
		Options: in.ownership(t, topic), Rules: topic.rules, Reader: in.reader,
		Store:   in.store.Partition(statestore.PartitionID{Topic: topic.set.Request.ID, Partition: t.Partition}),
		Replays: in.replays, Scans: in.scans, Memory: in.budgets.of(t.Topic), HeldPatience: in.o.HeldPatience,
		Stamps: in.stamps, Metrics: in.metrics, SubPartitions: in.subPartitions, BeforeApply: in.o.BeforeApply, BeforeLookup: in.o.BeforeLookup,
	})
	if in.o.Assigned != nil {
		in.o.Assigned(p)
	}
	return p
}

// subPartitions is how many planners a partition gets that is acquired now: one if the instance owns as many
// partitions as it has cores, and more if it owns fewer, to keep the cores busy. A number that is set counts
// instead, as long as the planners of all partitions take no more than a sixteenth of the memory.
func (in *instance) subPartitions() int {
	in.mu.Lock()
	owned := max(1, len(in.parts))
	in.mu.Unlock()
	if n := in.cfg.SubPartitions; n > 0 {
		return min(n, max(1, int(in.shares.Total/16/planner.Memory)/owned))
	}
	return min(max(1, runtime.GOMAXPROCS(0)/owned), config.MaxSubPartitions)
}

func (in *instance) newDelayed(t *membership.Token, topic *served) *delaytopics.Partition {
	return delaytopics.New(delaytopics.Options{
		Options: in.ownership(t, topic), Rules: topic.rules, Reader: in.reader,
		Queue: in.budgets.requests.Open(t.Topic), Stamps: in.stamps, Metrics: in.metrics,
	})
}

// ownership is what any partition of ours is made of.
func (in *instance) ownership(t *membership.Token, topic *served) ownership.Options {
	return ownership.Options{
		Topics: &topic.set, Settings: topic.settings, Partition: t.Partition, Group: in.cfg.Group, Owner: in.owner(), API: in.api.URL(), Token: t,
		Lanes: in.lanes, Targets: in.targets, Health: in.health, Markers: in.markers, Client: in.client,
		Now: in.o.Now, AcceptGroup: in.cfg.AcceptGroup, AcceptLost: in.cfg.AcceptLostChangelog, Logger: in.log, Newer: in.resign,
	}
}

// owner names this process where owners are named, for people.
func (in *instance) owner() string {
	name := in.cfg.InstanceID
	if name == "" {
		name, _ = os.Hostname()
	}
	return name + "/" + in.process
}

// budgets are what all partitions share. This process may come to own them all.
type budgets struct {
	wheel, delta, requests, firings, overlay *budget.Budget
	replay                                   int // bytes of one replay
}

func newBudgets(s *memory.Shares, topics, delayed map[string]*served) budgets {
	timers, all := make(map[string]int32), make(map[string]int32)
	for name, t := range topics {
		timers[name], all[name] = t.set.Request.Partitions, t.set.Request.Partitions
	}
	for name, t := range delayed {
		all[name] = t.set.Request.Partitions
	}
	// A partition's delta is full at half of what it may hold: the other half is being written then.
	return budgets{budget.New(s.Wheel, timers), budget.New(s.Delta/2, timers), budget.New(s.Requests, all), budget.New(s.Firings, timers), budget.New(s.Overlay, timers), int(s.Replay)}
}

// of is what a partition of a request topic has of it.
func (m *budgets) of(topic string) partition.Memory {
	return partition.Memory{
		Wheel: m.wheel.Open(topic), Delta: m.delta.Open(topic), Requests: m.requests.Open(topic), Firings: m.firings.Open(topic), Overlay: m.overlay.Open(topic), Replay: m.replay,
	}
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

// has reports whether a partition is ours, whatever its state.
func (in *instance) has(k key) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.parts[k] != nil
}

// ownedOf returns the partitions of a topic that are ours.
func (in *instance) ownedOf(topic string) (ps []servedPartition) {
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
	for _, name := range in.all() {
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

// checkpoint has all partitions bring what is committed into the store, one after
// the other, so that the work is spread.
func (in *instance) checkpoint(ctx context.Context) {
	in.mu.Lock()
	parts := make([]*partition.Partition, 0, len(in.parts))
	for _, o := range in.parts {
		if p, ok := o.p.(*partition.Partition); ok { // others have nothing in the store
			parts = append(parts, p)
		}
	}
	in.mu.Unlock()
	for _, p := range parts {
		p.Checkpoint(ctx)
	}
}
