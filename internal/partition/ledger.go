package partition

import (
	"sync/atomic"

	"github.com/waterclock/waterclock/internal/timer"
)

// ledger counts how many timers must be pending by the outcomes of committed steps alone: those that were pending at the
// acquisition, plus those accepted since, minus those with an outcome since. A request that replaces a timer is both,
// for two generations.
//
// It also counts how many are pending by what folded steps have changed. Whenever every committed step is folded, the
// two must be equal. If not, a timer's outcome was counted and its state did not change, or the other way round.
type ledger struct {
	due     atomic.Int64
	pending atomic.Int64 // timers in the store and the delta
}

func (l *ledger) open(pending int64) {
	l.pending.Store(pending)
	l.due.Store(pending)
}

// add adds the outcomes of a step. recur is how many of them left a timer, for its next occurrence or as a remembered one,
// minus remembered timers that are forgotten or replaced.
func (l *ledger) add(counts *[timer.Outcomes]int, recur int) {
	accepted := counts[timer.Scheduled] + counts[timer.Replaced]
	outcomes := counts[timer.Replaced] + counts[timer.Cancelled] + counts[timer.Fired] + counts[timer.Expired] + counts[timer.Undeliverable] + counts[timer.Completed]
	l.due.Add(int64(accepted - outcomes + recur))
}

// balance is the difference of the two counts.
func (l *ledger) balance() int64 { return l.due.Load() - l.pending.Load() }
