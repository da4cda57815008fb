package kafkatest

import (
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// Reach stands in for the dialer and for metadata: a test tells it which brokers are unreachable. The zero value
// reaches all. It is safe for concurrent use.
type Reach struct {
	// NoLeader partitions have no leader. Burdened ones wait for a broker that is gone, until they are
	// excluded. Set them before use.
	NoLeader, Burdened map[timer.TopicPartition]bool

	mu    sync.Mutex // guards the fields below
	gone  map[string]bool
	leads map[timer.TopicPartition]bool
}

// AllReachable reports that nothing was lost.
func (r *Reach) AllReachable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.gone)+len(r.leads) == 0
}

// Reachable reports that a broker was not lost.
func (r *Reach) Reachable(addr string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.gone[addr]
}

// LastLost is always just now.
func (r *Reach) LastLost() time.Time { return time.Now() }

// Dying reports that something was lost.
func (r *Reach) Dying() bool { return !r.AllReachable() }

// Unreachable reports that the leader of a partition was lost, or that the partition is excluded.
func (r *Reach) Unreachable(p timer.TopicPartition) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leads[p]
}

// Leaderless reports that a partition is in NoLeader.
func (r *Reach) Leaderless(p timer.TopicPartition) bool { return r.NoLeader[p] }

// Exclude makes a Burdened partition unreachable.
func (r *Reach) Exclude(p timer.TopicPartition) bool {
	if r.Burdened[p] {
		r.LoseLeader(p)
	}
	return r.Burdened[p]
}

// Lose makes these brokers, and no others, unreachable.
func (r *Reach) Lose(addrs ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = make(map[string]bool)
	for _, addr := range addrs {
		r.gone[addr] = true
	}
}

// LoseLeader makes the leader of this partition, and of no other, unreachable.
func (r *Reach) LoseLeader(p timer.TopicPartition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leads = map[timer.TopicPartition]bool{p: true}
}

// Restore makes everything reachable.
func (r *Reach) Restore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone, r.leads = nil, nil
}
