package partition

import (
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// What each outcome does to the number that must be pending, and a planted fault:
// a timer that the store lost.
func TestLedger(t *testing.T) {
	for _, c := range []struct {
		outcome timer.Outcome
		change  int64
	}{
		{timer.None, 0}, {timer.Scheduled, 1}, {timer.Replaced, 0}, {timer.Cancelled, -1}, {timer.NotFound, 0},
		{timer.Fired, -1}, {timer.Expired, -1}, {timer.Refused, 0}, {undeliverable, -1},
	} {
		var l ledger
		l.open(7)
		var counts [undeliverable + 1]int
		counts[c.outcome] = 3
		l.add(&counts)
		if got := l.balance(7 + 3*c.change); got != 0 {
			t.Errorf("outcome %d: the balance is %d", c.outcome, got)
		}
		if got := l.balance(7 + 3*c.change - 1); got != 1 {
			t.Errorf("outcome %d: a lost timer shows as %d", c.outcome, got)
		}
	}
}
