package partition

import (
	"fmt"
	"time"

	"github.com/waterclock/waterclock/emitter"
)

// State is where in its life a partition is.
type State int32

// The states, in order.
const (
	Taking    State = iota // waiting for the former owner, claiming
	Replaying              // folding the changelog
	Gated                  // planning what was in the log when it was taken
	Live
	Stalled // live, but nothing can be committed: see Status.Reason
	Failed  // refuses to go on; the reason is in Status
	Gone
)

func (s State) String() string {
	return [...]string{"taking", "replaying", "gated", "live", "stalled", "failed", "gone"}[s]
}

// Status is what can be said about a partition.
type Status struct {
	State  State
	Reason string // of Failed and Stalled, and why a take does not get on
	// Replayed and ReplayEnd are changelog offsets, for progress.
	Replayed, ReplayEnd int64
	Pending             int64
	// Misplaced is how many of them have IDs that belong on another partition;
	// -1 while they are counted. None are known of a partition that is not taken.
	Misplaced int64
	Parked    int64 // about how many of them wait for a sick target
	Ledger    int64 // accepted - outcomes - pending: 0 at rest
	// Queued requests and firings are on their way, of so many bytes.
	Queued      int
	QueuedBytes int64
	// Overdue is for how long the oldest timer in memory has been due.
	Overdue time.Duration
	// ParkedBy is about how many timers are parked for each target.
	ParkedBy map[emitter.TargetPartition]int64
}

// Status returns a snapshot.
func (p *Partition) Status() Status {
	s := Status{
		State: State(p.state.Load()), Replayed: p.replayed.Load(), ReplayEnd: p.replayEnd.Load(), Pending: p.pending.Load(),
		Parked: p.parked.Load(), Overdue: p.overdue(),
	}
	if p.taken.Load() {
		n, known := p.o.Store.Misplaced()
		if s.Misplaced = n; !known {
			s.Misplaced = -1
		}
	}
	if s.State == Gated || s.State == Live {
		s.Ledger = p.ledger.balance(s.Pending)
	}
	if by := p.parkedBy.Load(); by != nil {
		s.ParkedBy = *by
	}
	p.pauseMu.Lock()
	s.Queued, s.QueuedBytes = p.queued, p.queuedB
	p.pauseMu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tracker != nil {
		entries, bytes := p.tracker.Fill()
		s.Queued, s.QueuedBytes = s.Queued+entries, s.QueuedBytes+bytes
	}
	switch {
	case p.failure != nil:
		s.Reason = p.failure.Error()
	case p.o.Targets.Stalled(p.o.Topics.Changelog.Name, p.o.Partition):
		// As of now, not of the last seal: a share may be out, waiting for the leader.
		s.Reason = fmt.Sprintf("no leader for %v that can be reached", p.changelogTarget())
	case p.held != nil:
		s.Reason = p.held.Error()
	case p.tail.doubt && time.Since(p.tail.at) > doubtShown:
		s.Reason = "somebody else has written to " + p.o.Topics.Changelog.Name + " and may have claimed the partition"
	}
	if s.State == Live && p.failure == nil && s.Reason != "" {
		s.State = Stalled
	}
	return s
}
