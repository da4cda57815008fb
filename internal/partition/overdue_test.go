package partition

import (
	"testing"
	"time"
)

// The oldest due time of all workers counts; nothing is overdue where nothing is
// due, and where nothing is pending at all.
func TestOverdue(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	for _, c := range []struct {
		name string
		next []int64
		want time.Duration
	}{
		{"no worker", nil, 0},
		{"nothing pending", []int64{never, never}, 0},
		{"due later", []int64{1_000_001, never}, 0},
		{"due now", []int64{1_000_000}, 0},
		{"the oldest", []int64{999_000, 998_000, never}, 2 * time.Second},
	} {
		p := &Partition{clock: clock{now: func() time.Time { return now }}}
		for _, next := range c.next {
			w := &worker{}
			w.next.Store(next)
			p.workers = append(p.workers, w)
		}
		if got := p.overdue(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
