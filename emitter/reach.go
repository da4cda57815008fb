package emitter

import (
	"time"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/timer"
)

// Leaders says which brokers are unreachable, and which partitions cannot be written to now. This package asks nothing
// else about that, and the functions below are all that it concludes. No caller has to check AllReachable before it
// asks another method.
type Leaders interface {
	// AllReachable reports whether every broker can be reached. It costs nothing.
	AllReachable() bool
	Reachable(addr string) bool
	// Dying reports whether a broker was lost so recently that the other brokers may still wait for it.
	Dying() bool
	Unreachable(p timer.TopicPartition) bool
	Leaderless(p timer.TopicPartition) bool
	Exclude(p timer.TopicPartition) bool
}

var _ Leaders = (*targets.Leaders)(nil)

const (
	// unreachableBackoff is maxBackoff while a broker cannot be reached.
	unreachableBackoff = 200 * time.Millisecond
	// findTimeout bounds the search for coordinators. Without an answer the first ID is taken. It is findUnreachable
	// while a broker cannot be reached, because then the answer matters more.
	findTimeout, findUnreachable = 200 * time.Millisecond, time.Second
)

// needsUnreachable reports whether a broker that a step needs cannot be reached: the coordinator of c, if there is one,
// or the leader of one of parts.
func needsUnreachable(leaders Leaders, c *txnClient, parts map[string][]int32) bool {
	if c != nil && !leaders.Reachable(c.addr()) {
		return true
	}
	for topic, ps := range parts {
		for _, p := range ps {
			if leaders.Unreachable(timer.TopicPartition{Topic: topic, Partition: p}) {
				return true
			}
		}
	}
	return false
}

// whileUnreachable returns usual, or other while a broker cannot be reached.
func whileUnreachable(leaders Leaders, usual, other time.Duration) time.Duration {
	if leaders.AllReachable() {
		return usual
	}
	return other
}

// nextBackoff returns the pause between two attempts that follows backoff.
func nextBackoff(leaders Leaders, backoff time.Duration) time.Duration {
	return min(2*backoff, whileUnreachable(leaders, maxBackoff, unreachableBackoff))
}
