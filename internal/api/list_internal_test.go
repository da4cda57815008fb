package api

import "testing"

// A partition is asked for about what it contributes to a page, not for the whole page, and never
// for nothing.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		limit      int
		partitions int32
		again      bool
		want       int
	}{
		{1000, 8, false, 169},
		{1000, 8, true, 250},
		{1000, 1, false, 1000},
		{1000, 2, false, 589},
		{1000, 1000, false, leastShare},
		{1, 8, false, leastShare},
		{50, 2, false, 45},
		{50, 2, true, 50},
	} {
		if got := share(c.limit, c.partitions, c.again); got != c.want {
			t.Errorf("share(%d, %d, %v) is %d, want %d", c.limit, c.partitions, c.again, got, c.want)
		}
	}
}
