package api

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock"
)

// Before is no order: by source c < a, by partition a < b < c. Whichever comes first in the map wins.
func TestLettersOfOneMomentHaveAnOrder(t *testing.T) {
	at := time.UnixMilli(1)
	for range 200 {
		o := newTimeOrder(map[int32][2]int64{0: {}, 1: {}, 2: {}}, false)
		o.ahead = map[int32][]recordAt{
			0: {{0, 1, at, waterclock.Source{Partition: 5, Offset: 10}, 1, nil}},
			1: {{1, 1, at, waterclock.Source{Partition: 6, Offset: 1}, 1, nil}},
			2: {{2, 1, at, waterclock.Source{Partition: 5, Offset: 3}, 1, nil}},
		}
		var offsets []int64
		for _, l := range o.take(10, 1000) {
			if l.source.Partition == 5 {
				offsets = append(offsets, l.source.Offset)
			}
		}
		if len(offsets) != 2 || offsets[0] != 3 {
			t.Fatalf("requests of one partition in the order %v", offsets)
		}
	}
}
