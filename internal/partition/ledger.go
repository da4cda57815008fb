package partition

import (
	"sync/atomic"

	"github.com/waterclock/waterclock/internal/timer"
)

// ledger counts the pending timers in two ways. expected follows from the outcomes of committed steps alone: timers
// that were pending at the acquisition, plus those accepted since, minus those with an outcome since. A request that
// replaces a timer counts as both, for two generations.
//
// pending follows from what applied steps have changed. Whenever every committed step is applied, the two must be equal.
// If not, a timer's outcome was counted and its state did not change, or the other way round.
type ledger struct {
	expected atomic.Int64
	pending  atomic.Int64 // timers that are pending after all applied steps
}

func (l *ledger) open(pending int64) {
	l.pending.Store(pending)
	l.expected.Store(pending)
}

// add adds the outcomes of a step. recur is how many of them left a timer, for its next occurrence or as a remembered one,
// minus remembered timers that are forgotten or replaced.
func (l *ledger) add(counts *[timer.Outcomes]int, recur int) {
	accepted := counts[timer.Scheduled] + counts[timer.Replaced]
	outcomes := counts[timer.Replaced] + counts[timer.Cancelled] + counts[timer.Fired] + counts[timer.Expired] + counts[timer.Undeliverable] + counts[timer.Completed]
	l.expected.Add(int64(accepted - outcomes + recur))
}

// balance is the difference of the two counts.
func (l *ledger) balance() int64 { return l.expected.Load() - l.pending.Load() }
