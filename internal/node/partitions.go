package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/internal/node/apiserver"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/ownership/membership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/timer"
)

// servedPartition is an owned partition, of a request topic or of a fixed-delay one.
type servedPartition interface {
	Run(ctx context.Context)
	Drain()
	Wake()
	Status() ownership.Status
	SetLogEnd(e ownership.LogEnd)
	Life() *ownership.Life
}

var (
	_ servedPartition = (*partition.Partition)(nil)
	_ servedPartition = (*delaytopics.Partition)(nil)
)

// owned is a partition that the instance owns or is giving up. gone is closed when its goroutine has ended.
type owned struct {
	token *membership.Token
	p     servedPartition
	gone  chan struct{}
}

// errNewPartition is why the instance refuses a partition that the topic did not have when the instance started.
var errNewPartition = errors.New("the topic had fewer partitions when this instance started: it is being checked")

// partitions are the partitions that the instance owns. Each is started when it is assigned. partitions implements
// membership.Handler and apiserver.Partitions.
type partitions struct {
	log    *slog.Logger
	topics *servedTopics
	life   context.Context // the partitions run under it
	build  func(*membership.Token, *served) servedPartition
	take   func(timer.TopicPartition) *ownership.Follower // ends a standby and returns its follower; nil: there is none
	wg     sync.WaitGroup                                 // the goroutines of the partitions

	mu    sync.Mutex // guards the fields below
	owned map[timer.TopicPartition]*owned
}

var (
	_ apiserver.Partitions = (*partitions)(nil)
	_ membership.Handler   = (*partitions)(nil)
)

func newPartitions(log *slog.Logger) *partitions {
	return &partitions{log: log, owned: make(map[timer.TopicPartition]*owned)}
}

func placeOf(t *membership.Token) timer.TopicPartition {
	return timer.TopicPartition{Topic: t.Topic, Partition: t.Partition}
}

// Assigned implements membership.Handler.
func (ps *partitions) Assigned(t *membership.Token) {
	topic := ps.topics.of(t.Topic)
	if topic == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	before := ps.owned[placeOf(t)]
	o := &owned{token: t, p: ps.build(t, topic), gone: make(chan struct{})}
	ps.owned[placeOf(t)] = o
	if why := ps.topics.stopOf(t.Topic); why != nil {
		o.p.Life().Refuse(why)
	} else if t.Partition >= topic.set.Request.Partitions {
		ps.topics.check.Send()
		o.p.Life().Refuse(errNewPartition)
	}
	ps.wg.Go(func() {
		defer close(o.gone)
		if before != nil {
			<-before.gone
		}
		f := ps.take(placeOf(t))
		if p, ok := o.p.(*partition.Partition); ok && f != nil {
			p.Take(f)
		}
		o.p.Run(ps.life)
	})
}

// Revoked implements membership.Handler.
func (ps *partitions) Revoked(ts []*membership.Token) {
	var wg sync.WaitGroup
	for _, t := range ts {
		if o := ps.find(t); o != nil {
			wg.Go(o.p.Drain)
		}
	}
	wg.Wait()
	ps.forget(ts)
}

// Lost implements membership.Handler.
func (ps *partitions) Lost(ts []*membership.Token) {
	for _, t := range ts {
		ps.log.Warn("partition lost", "topic", t.Topic, "partition", t.Partition, "err", t.Err())
	}
	ps.forget(ts)
}

func (ps *partitions) find(t *membership.Token) *owned {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if o := ps.owned[placeOf(t)]; o != nil && o.token == t {
		return o
	}
	return nil
}

// forget drops partitions once their goroutines have ended. It does not wait for that.
func (ps *partitions) forget(ts []*membership.Token) {
	for _, t := range ts {
		o := ps.find(t)
		if o == nil {
			continue
		}
		go func() {
			<-o.gone
			ps.mu.Lock()
			defer ps.mu.Unlock()
			if ps.owned[placeOf(t)] == o {
				delete(ps.owned, placeOf(t))
			}
		}()
	}
}

// has reports whether a partition is owned, or is still being given up.
func (ps *partitions) has(at timer.TopicPartition) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.owned[at] != nil
}

func (ps *partitions) count() int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return len(ps.owned)
}

// all returns the partitions that are owned now, and those that are still being given up.
func (ps *partitions) all() map[timer.TopicPartition]servedPartition {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	all := make(map[timer.TopicPartition]servedPartition, len(ps.owned))
	for at, o := range ps.owned {
		all[at] = o.p
	}
	return all
}

// Owned implements apiserver.Partitions.
func (ps *partitions) Owned(at timer.TopicPartition) *partition.Partition {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	o := ps.owned[at]
	if o == nil || o.token.Err() != nil {
		return nil
	}
	p, _ := o.p.(*partition.Partition)
	return p
}

// Status implements apiserver.Partitions.
func (ps *partitions) Status() map[timer.TopicPartition]ownership.Status {
	all := make(map[timer.TopicPartition]ownership.Status)
	for at, p := range ps.all() {
		if s := p.Status(); s.State != ownership.Gone {
			all[at] = s
		}
	}
	return all
}

// refuse makes the partitions of a topic fail.
func (ps *partitions) refuse(topic string, why error) {
	for at, p := range ps.all() {
		if at.Topic == topic {
			p.Life().Refuse(why)
		}
	}
}

// wake tells every partition that the clock was set.
func (ps *partitions) wake() {
	for _, p := range ps.all() {
		p.Wake()
	}
}

// checkpoint makes all partitions write a checkpoint of the store. They do so one after the other, to spread the work.
func (ps *partitions) checkpoint(ctx context.Context) {
	for _, p := range ps.all() {
		if p, ok := p.(*partition.Partition); ok { // fixed-delay topics have nothing in the store
			p.Checkpoint(ctx)
		}
	}
}
