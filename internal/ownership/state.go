package ownership

import (
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// State is where in its life a partition is.
type State int32

// The states, in order.
const (
	Acquiring State = iota // waiting for the former owner, claiming
	Replaying              // folding the changelog
	Gated                  // behind the catch-up barrier: planning what was in the log at the acquisition
	Live
	Stalled // live, but nothing can be committed: see Status.Reason
	Failed  // refuses to go on; the reason is in Status
	Gone
)

func (s State) String() string {
	return [...]string{"acquiring", "replaying", "gated", "live", "stalled", "failed", "gone"}[s]
}

// Status is a snapshot of a partition.
type Status struct {
	State  State
	Since  time.Time // when State began; of Stalled known to about a second
	Reason string    // of Failed and Stalled, or why an acquisition makes no progress, or Held as a sentence
	Held   *Held     // what keeps intake from the log's end; nil: nothing, as far as is known
	// Warning is what an operator has to do something about although the partition goes on.
	Warning string
	// Replayed and ReplayEnd are changelog offsets, for progress.
	Replayed, ReplayEnd int64
	Pending             int64
	// Misplaced is how many of the pending timers have IDs that belong on another partition; -1: not counted.
	// It is 0 for a partition that is not acquired.
	Misplaced int64
	Parked    int64 // about how many of them wait for an unhealthy target
	Ledger    int64 // accepted - outcomes - pending: 0 at rest
	// Queued is how many requests and firings are on their way, and QueuedBytes how much memory they take.
	Queued      int
	QueuedBytes int64
	// Behind requests are known to wait in the log, and Lag is the age of the newest one
	// that was read.
	Behind int64
	Lag    time.Duration
	// Overdue is for how long the oldest timer in memory that is not planned has been due, and
	// Uncommitted the oldest whose firing is not committed. Parked timers are neither: OldestParked
	// is the same for the oldest of those, about a second old.
	Overdue, Uncommitted, OldestParked time.Duration
	// ParkedBy is about how many timers are parked for each target.
	ParkedBy map[timer.TopicPartition]int64
}
