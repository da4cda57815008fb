package partition

import (
	"sync/atomic"

	"github.com/waterclock/waterclock/internal/timer"
)

// ledger counts what must be pending by the outcomes of committed steps alone:
// what was pending at the take, plus what was accepted, minus what had an
// outcome since. A request that replaces is both, for two generations.
//
// Held against the number that the store keeps beside its rows it must come to
// zero whenever every committed step is folded, so it finds a timer that was
// counted and not stored, or stored and not counted.
type ledger struct{ due atomic.Int64 }

func (l *ledger) open(pending int64) { l.due.Store(pending) }

func (l *ledger) add(counts *[undeliverable + 1]int) {
	accepted := counts[timer.Scheduled] + counts[timer.Replaced]
	outcomes := counts[timer.Replaced] + counts[timer.Cancelled] + counts[timer.Fired] + counts[timer.Expired] + counts[undeliverable]
	l.due.Add(int64(accepted - outcomes))
}

// balance is accepted minus outcomes minus pending.
func (l *ledger) balance(pending int64) int64 { return l.due.Load() - pending }
