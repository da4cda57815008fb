package targets

import (
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// Metadata is refreshed every targetRefresh. It is refreshed every unreachableRefresh while new leaders are left
	// alone, or while a leader is unreachable, the latter for at most refreshFast after a broker came or went.
	targetRefresh      = 5 * time.Second
	unreachableRefresh = 150 * time.Millisecond
	refreshFast        = 30 * time.Second
	// newLeaderTime is how long the successor of an unreachable leader is left alone. It takes no writes until its
	// followers follow it, and everything else in the same step would wait too.
	newLeaderTime = 500 * time.Millisecond
	// BrokerDeath is how long after the loss of a broker failures are put down to it. Partitions get other leaders and
	// other in-sync replicas by themselves.
	BrokerDeath = 12 * time.Second
)

// Reach tells which brokers are unreachable now, by their addresses.
type Reach interface {
	// AllReachable reports whether every broker is reachable. It costs nothing.
	AllReachable() bool
	Reachable(addr string) bool
	// LastLost returns when a broker that had responded was last found unreachable.
	LastLost() time.Time
}

// allThere is the Reach of a process that watches no brokers.
type allThere struct{}

var _ Reach = allThere{}

func (allThere) AllReachable() bool    { return true }
func (allThere) Reachable(string) bool { return true }
func (allThere) LastLost() time.Time   { return time.Time{} }

// Leaders knows which partitions cannot be written to now: those without a leader, and those that are unreachable. A
// partition is unreachable
//   - while its leader, by the last metadata, is a broker that is unreachable;
//   - for newLeaderTime after such a leader has got a successor;
//   - while it waits for a broker in its in-sync replicas that is unreachable, see Exclude.
//
// All of this follows from metadata and from the dialer, so no probe is needed before the partition is written to
// again. Each of these states ends by metadata, by the broker's return, or by time.
//
// mu guards topics, hosts and fast.
type Leaders struct {
	Reach
	now func() time.Time

	mu     sync.Mutex
	topics map[string][]partitionLeader // by topic and partition
	hosts  map[int32]string             // addresses of brokers by node ID
	fast   time.Time                    // metadata is requested often until then while a leader cannot be reached
}

// partitionLeader is the known state of a partition's leader.
type partitionLeader struct {
	node     int32         // its node ID; -1: none
	epoch    partlog.Epoch // 0 if it is not known
	isr      []int32       // node IDs of the in-sync replicas
	newUntil time.Time     // it is left alone until then, because it is new
	excluded bool          // see Exclude
}

// NewLeaders returns Leaders that know no partition. A nil reach means that all brokers are reachable.
func NewLeaders(reach Reach, now func() time.Time) *Leaders {
	if reach == nil {
		reach = allThere{}
	}
	return &Leaders{Reach: reach, now: now, topics: make(map[string][]partitionLeader), hosts: make(map[int32]string)}
}

// Dying reports whether a broker has died or become unresponsive so recently that the others may not have given it up.
// Then it is still in the in-sync replicas of partitions that they lead, and these take no writes.
func (l *Leaders) Dying() bool {
	return !l.AllReachable() && time.Since(l.LastLost()) < BrokerDeath
}

// Unreachable reports whether a partition's leader is unreachable, or waits for an unreachable broker.
func (l *Leaders) Unreachable(p timer.TopicPartition) bool {
	if l.AllReachable() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.leaderOf(p)
	return x != nil && l.unreachable(x)
}

// unreachable is Unreachable of a known partition while a broker is unreachable. The lock is held.
func (l *Leaders) unreachable(x *partitionLeader) bool {
	return l.brokerUnreachable(x.node) || l.waits(x)
}

// Leaderless reports that a partition was last seen without a leader.
func (l *Leaders) Leaderless(p timer.TopicPartition) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.leaderOf(p)
	return x != nil && x.node < 0
}

// Stalled reports whether a partition was last seen without a leader, or is unreachable.
func (l *Leaders) Stalled(topic string, partition int32) bool {
	_, stalled := l.Epoch(topic, partition)
	return stalled
}

// Epoch returns the leader epoch of a partition as of the last metadata, 0 if it is not known, and whether the
// partition is stalled.
func (l *Leaders) Epoch(topic string, partition int32) (e partlog.Epoch, stalled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.leaderOf(timer.TopicPartition{Topic: topic, Partition: partition})
	if x == nil {
		return 0, false
	}
	return x.epoch, x.node < 0 || !l.AllReachable() && l.unreachable(x)
}

// leaderUnreachable reports whether a partition has no leader, or an unreachable one.
func (l *Leaders) leaderUnreachable(p timer.TopicPartition) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.leaderOf(p)
	return x != nil && (x.node < 0 || l.brokerUnreachable(x.node))
}

// Exclude notes that a partition takes no writes while others do. If an unreachable broker is in its in-sync replicas,
// the partition is unreachable from now on, and Exclude returns true. Call it only after a write has timed out: perhaps
// only this process has lost the broker, and then no leader is waiting for it. The state ends when the broker leaves
// the in-sync replicas or answers again, and after BrokerDeath.
func (l *Leaders) Exclude(p timer.TopicPartition) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.leaderOf(p)
	if x == nil || !l.burdened(x) {
		return false
	}
	x.excluded = true
	return true
}

// leaderOf returns the leader of a partition, nil if the partition is not known. The lock is held.
func (l *Leaders) leaderOf(p timer.TopicPartition) *partitionLeader {
	t := l.topics[p.Topic]
	if p.Partition < 0 || int(p.Partition) >= len(t) {
		return nil
	}
	return &t[p.Partition]
}

// waits reports whether a partition is to be left alone although its leader is reachable. The lock is held.
func (l *Leaders) waits(x *partitionLeader) bool {
	return l.now().Before(x.newUntil) || x.excluded && l.burdened(x)
}

// burdened reports whether a partition's in-sync replicas hold a broker that died or became unresponsive so recently
// that it may stay there for now. The lock is held.
func (l *Leaders) burdened(x *partitionLeader) bool {
	return l.Dying() && slices.ContainsFunc(x.isr, l.brokerUnreachable)
}

// brokerUnreachable reports whether a broker is unreachable. The lock is held.
func (l *Leaders) brokerUnreachable(node int32) bool {
	addr, known := l.hosts[node]
	return known && !l.Reachable(addr)
}

// setBrokers stores the brokers' addresses.
func (l *Leaders) setBrokers(brokers []kmsg.MetadataResponseBroker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range brokers {
		l.hosts[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
}

// learn stores the leaders and in-sync replicas of a topic's partitions. The successor of an unreachable leader is left
// alone for newLeaderTime. It returns the leaders before, nil if the topic was not known.
func (l *Leaders) learn(topic string, all []partitionLeader) (before []partitionLeader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.topics[topic]
	l.topics[topic] = all
	if l.AllReachable() {
		return before // no leader is left alone
	}
	for p := range min(len(before), len(all)) {
		was, now := &before[p], &all[p]
		now.newUntil, now.excluded = was.newUntil, was.excluded
		if now.node >= 0 && now.node != was.node && (was.node < 0 || l.brokerUnreachable(was.node)) {
			now.newUntil = l.now().Add(newLeaderTime)
		}
	}
	return before
}

// forget drops a topic.
func (l *Leaders) forget(topic string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.topics, topic)
}

// hurry shortens the refresh of metadata for a while if a leader is unreachable.
func (l *Leaders) hurry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fast = time.Now().Add(refreshFast)
}

// refreshEvery is how old metadata may be.
func (l *Leaders) refreshEvery() time.Duration {
	if l.pressing() {
		return unreachableRefresh
	}
	return targetRefresh
}

// pressing reports whether metadata is refreshed often: new leaders are left alone, or partitions in use have
// unreachable leaders, the latter for at most refreshFast.
func (l *Leaders) pressing() bool {
	if l.AllReachable() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	tired := time.Now().After(l.fast)
	for _, t := range l.topics {
		for p := range t {
			if !tired && l.brokerUnreachable(t[p].node) || l.waits(&t[p]) {
				return true
			}
		}
	}
	return false
}
