package partition

import (
	"sync/atomic"

	"github.com/waterclock/waterclock/internal/timer"
)

// ledger counts what must be pending by the outcomes of committed steps alone:
// what was pending at the acquisition, plus what was accepted, minus what had an
// outcome since. A request that replaces is both, for two generations.
//
// Held against the number that the store had at the acquisition, plus what each step
// that was folded has changed in it, it must come to zero whenever every committed step
// is folded: so it finds a timer whose outcome was counted and whose state did not
// change, or the other way round.
type ledger struct {
	due     atomic.Int64
	pending atomic.Int64 // timers in the store and the delta
}

func (l *ledger) open(pending int64) {
	l.pending.Store(pending)
	l.due.Store(pending)
}

// add takes in the outcomes of a step; recur of them left a timer pending, for its
// next occurrence, or as a remembered timer, minus those that are forgotten or replaced.
func (l *ledger) add(counts *[timer.Outcomes]int, recur int) {
	accepted := counts[timer.Scheduled] + counts[timer.Replaced]
	outcomes := counts[timer.Replaced] + counts[timer.Cancelled] + counts[timer.Fired] + counts[timer.Expired] + counts[timer.Undeliverable] + counts[timer.Completed]
	l.due.Add(int64(accepted - outcomes + recur))
}

// balance is what was pending at the acquisition plus accepted minus outcomes minus
// pending.
func (l *ledger) balance() int64 { return l.due.Load() - l.pending.Load() }
