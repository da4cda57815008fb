package partition

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/partition/questions"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// The oldest due time in memory counts. Nothing is overdue if nothing is due, or if nothing is pending at all.
func TestOverdue(t *testing.T) {
	const now = 1_000_000
	g := newSetup(t)
	for _, c := range []struct {
		name string
		due  []int64
		want time.Duration
	}{
		{"nothing pending", nil, 0},
		{"due later", []int64{now + 1}, 0},
		{"due now", []int64{now}, 0},
		{"the oldest", []int64{now - 1000, now - 2000, now + 5}, 2 * time.Second},
	} {
		p, s := newRooms(Options{
			Options: ownership.Options{Now: func() time.Time { return time.UnixMilli(now) }},
			Store:   g.store.Partition(statestore.PartitionID{}),
			Metrics: g.metrics,
		})
		overdue := func() (time.Duration, time.Duration) {
			status := p.Status()
			return status.Overdue, status.Uncommitted
		}
		if got, waits := overdue(); got != 0 || waits != 0 {
			t.Errorf("not taken: %s", got)
		}
		p.served.Store(s)
		p.Questions.Open(questions.Acquisition{Planners: s.subs})
		var timers []*timer.Timer
		for i, due := range c.due {
			timers = append(timers, &timer.Timer{ID: []byte{byte(i)}, Due: due, Offset: int64(i)})
		}
		s.subs.planners[0].Load(planner.Lowest, planner.Highest, timers)
		if got, waits := overdue(); got != c.want || waits != c.want {
			t.Errorf("%s: %s and %s, want %s", c.name, got, waits, c.want)
		}
	}
}
