package service

import (
	"context"
	"os"
	"sync"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/membership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/statestore"
)

// owned is a partition of ours with the end of its goroutine.
type owned struct {
	token *membership.Token
	p     *partition.Partition
	gone  chan struct{}
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
	entries, bytes := queueOf(in.cfg, in.partitions())
	return partition.New(partition.Options{
		Topics: &topic.set, Partition: t.Partition, Rules: topic.rules,
		Group: in.cfg.Group, Owner: owner + "/" + in.process,
		SubPartitions: workers, Token: t,
		Store: in.store.Partition(statestore.PartitionID{Topic: topic.set.Request.ID, Partition: t.Partition}),
		Lane:  in.lanes[int(t.Partition)%len(in.lanes)], Targets: in.targets, Health: in.health, Markers: in.markers, Reader: in.reader, Client: in.client,
		Replays: in.replays, Now: in.o.Now,
		WheelBytes:   max(minWheel, int64(in.cfg.WheelMemory)/in.partitions()/int64(workers)),
		DeltaBytes:   max(minDelta, int64(in.cfg.WheelMemory)/in.partitions()),
		QueueEntries: entries, QueueBytes: bytes,
		MaxAbsence: topic.maxAbsence, AcceptGroup: in.cfg.AcceptGroup, AcceptLostChangelog: in.cfg.AcceptLostChangelog,
		Logger: in.log, Stamps: in.stamps, Metrics: in.metrics, BeforeApply: in.o.BeforeApply, Newer: in.resign,
	})
}

// queueOf is a partition's share of the memory for what is on its way.
func queueOf(cfg *config.Config, partitions int64) (entries int, bytes int64) {
	bytes = max(minQueue, int64(cfg.QueueMemory)/partitions)
	return int(bytes / queueEntry), bytes
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

// checkpoint has all partitions bring what is committed into the store, one after
// the other, so that the work is spread.
func (in *instance) checkpoint(ctx context.Context) {
	in.mu.Lock()
	parts := make([]*partition.Partition, 0, len(in.parts))
	for _, o := range in.parts {
		parts = append(parts, o.p)
	}
	in.mu.Unlock()
	for _, p := range parts {
		p.Checkpoint(ctx)
	}
}
