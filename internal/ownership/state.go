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
	Gated                  // planning what was in the log when it was taken
	Live
	Stalled // live, but nothing can be committed: see Status.Reason
	Failed  // refuses to go on; the reason is in Status
	Gone
)

func (s State) String() string {
	return [...]string{"acquiring", "replaying", "gated", "live", "stalled", "failed", "gone"}[s]
}

// Status is what can be said about a partition.
type Status struct {
	State  State
	Since  time.Time // when State began; of Stalled, when it went live
	Reason string    // of Failed and Stalled, why an acquisition does not get on, and Held as a sentence
	Held   *Held     // what keeps intake from the log's end; nil: nothing, as far as is known
	// Warning is what an operator has to see to although the partition goes on.
	Warning string
	// Replayed and ReplayEnd are changelog offsets, for progress.
	Replayed, ReplayEnd int64
	Pending             int64
	// Misplaced is how many of them have IDs that belong on another partition;
	// -1 while they are counted. None are known of a partition that is not acquired.
	Misplaced int64
	Parked    int64 // about how many of them wait for an unhealthy target
	Ledger    int64 // accepted - outcomes - pending: 0 at rest
	// Queued requests and firings are on their way, of so many bytes.
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
