package node

import "testing"

// As many replays at a time as there are cores, and as there is memory for.
func TestReplaySlots(t *testing.T) {
	for _, x := range [][3]int{{1, 4, 2}, {2, 4, 2}, {3, 4, 3}, {4, 4, 4}, {64, 4, 4}, {64, 2, 2}, {1, 2, 2}} {
		if got := replaySlots(x[0], x[1]); got != x[2] {
			t.Errorf("%d on %d cores with memory for %d, want %d", got, x[0], x[1], x[2])
		}
	}
}
