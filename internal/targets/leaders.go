package targets

import (
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// awayRefresh is how old metadata may be while a partition in use is led by a
	// broker that cannot be reached, and refreshFast how long after a broker came
	// or went.
	awayRefresh = 150 * time.Millisecond
	refreshFast = 30 * time.Second
	// settleTime is for how long a leader that was elected in the place of one that
	// cannot be reached is left alone: until its followers follow it takes no writes,
	// and all else in a step with them would wait too.
	settleTime = 500 * time.Millisecond
)

// Reach tells which brokers cannot be reached now, by their addresses.
type Reach interface {
	// AllReachable reports that all can be, which costs nothing.
	AllReachable() bool
	Reachable(addr string) bool
	// LastLost is when a broker that was there was last found to be out of reach.
	LastLost() time.Time
}

// Leaders tells which partitions cannot be written to now: led by a broker that cannot
// be reached, or by none.
type Leaders interface {
	// AllReachable reports that none is, which costs nothing.
	AllReachable() bool
	Away(p timer.TopicPartition) bool
	// Dying reports that a broker was lost so recently that the others may not have
	// given it up.
	Dying() bool
	// Leaderless reports that a partition has no leader, by what was heard last.
	Leaderless(p timer.TopicPartition) bool
	// Shun says that a partition takes no writes while others do. Where a broker that
	// cannot be reached is in its in-sync replicas, it is Away for now, and Shun true.
	Shun(p timer.TopicPartition) bool
}

// AllThere is Reach and Leaders of those who are told of none.
type AllThere struct{}

func (AllThere) AllReachable() bool    { return true }
func (AllThere) Reachable(string) bool { return true }
func (AllThere) LastLost() time.Time   { return time.Time{} }

func (AllThere) Away(timer.TopicPartition) bool { return false }

func (AllThere) Dying() bool { return false }

func (AllThere) Leaderless(timer.TopicPartition) bool { return false }

func (AllThere) Shun(timer.TopicPartition) bool { return false }

// Dying reports whether a broker has died or become unresponsive so recently that the
// others may not have given it up: it is in the in-sync replicas of partitions
// that they lead, which take no writes until it is not.
func Dying(r Reach) bool {
	return !r.AllReachable() && time.Since(r.LastLost()) < BrokerDeath
}

// Watch has partitions that are led by a broker which cannot be reached taken for
// Away. Set it before anything else, and call Reached whenever reach changes.
// changed is called, without a lock, when others may lead since.
func (t *Metadata) Watch(reach Reach, changed func()) { t.reach, t.changed = reach, changed }

// Reached has Run ask at once who leads now, and often while somebody does who
// cannot be reached.
func (t *Metadata) Reached() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fast, t.wantAll = time.Now().Add(refreshFast), true
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// meet learns the brokers' addresses.
func (t *Metadata) meet(brokers []kmsg.MetadataResponseBroker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range brokers {
		t.hosts[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
}

// Away reports whether a partition is led by a broker that cannot be reached now, or
// waits for one (see Shun). That ends settleTime after metadata names another leader,
// or when the broker answers again.
func (t *Metadata) Away(p timer.TopicPartition) bool {
	if t.AllReachable() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.topics[p.Topic]
	if e == nil || p.Partition < 0 || int(p.Partition) >= len(e.leaders) {
		return false
	}
	return t.unreachable(e.leaders[p.Partition]) || t.unsettled(e, p.Partition)
}

// unsettled reports whether a partition is to be left alone although its leader is
// there. The lock is held.
func (t *Metadata) unsettled(e *cachedTopic, partition int32) bool {
	return t.o.Now().Before(e.settled[partition]) || e.shunned[partition] && t.burdened(e, partition)
}

// burdened reports whether a partition's in-sync replicas hold a broker that died or
// became unresponsive so recently that it may stay there for now. The lock is held.
func (t *Metadata) burdened(e *cachedTopic, partition int32) bool {
	return Dying(t.reach) && slices.ContainsFunc(e.isr[partition], t.unreachable)
}

// Shun implements Leaders. It is asked by who has waited in vain: the broker may be out
// of reach from here alone, and is in no leader's way then. What ends it: the broker
// leaves the in-sync replicas, or answers again; or BrokerDeath.
func (t *Metadata) Shun(p timer.TopicPartition) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.topics[p.Topic]
	if e == nil || p.Partition < 0 || int(p.Partition) >= len(e.isr) || !t.burdened(e, p.Partition) {
		return false
	}
	if e.shunned == nil {
		e.shunned = make(map[int32]bool)
	}
	e.shunned[p.Partition] = true
	return true
}

// settle notes partitions whose leader, which could not be reached, has a successor,
// before that is taken over. The lock is held.
func (t *Metadata) settle(e *cachedTopic, leaders []int32) {
	if t.AllReachable() {
		e.settled, e.shunned = nil, nil
		return
	}
	for p := range min(len(e.leaders), len(leaders)) {
		was, is := e.leaders[p], leaders[p]
		if is >= 0 && is != was && (was < 0 || t.unreachable(was)) {
			if e.settled == nil {
				e.settled = make(map[int32]time.Time)
			}
			e.settled[int32(p)] = t.o.Now().Add(settleTime)
		}
	}
}

// AllReachable reports that no partition is Away, which costs nothing.
func (t *Metadata) AllReachable() bool { return t.reach.AllReachable() }

// Dying implements Leaders.
func (t *Metadata) Dying() bool { return Dying(t.reach) }

// unreachable reports whether a leader cannot be reached. The lock is held.
func (t *Metadata) unreachable(leader int32) bool {
	addr, known := t.hosts[leader]
	return known && !t.reach.Reachable(addr)
}

// strained reports whether partitions in use are Away: for how long Run asks often
// then is bounded, but for new leaders, which are soon settled. The lock is held.
func (t *Metadata) strained() bool {
	if t.AllReachable() {
		return false
	}
	tired := time.Now().After(t.fast)
	for _, e := range t.topics {
		for p, leader := range e.leaders {
			if !tired && t.unreachable(leader) || t.unsettled(e, int32(p)) {
				return true
			}
		}
	}
	return false
}

// pause is how long Run waits before it asks again.
func (t *Metadata) pause() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.strained() {
		return awayRefresh
	}
	return targetRefresh
}
