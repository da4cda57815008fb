package ownership

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
)

// A position behind a marker has the epoch of the marker. With the epoch of the request before it, brokers would name
// the marker's offset as the end of that epoch, and the log would look as if it had been cut.
func TestEpochBelowAMarker(t *testing.T) {
	var e epochs
	e.begin(10, partlog.EpochOf(1))
	e.read([]*kgo.Record{{Offset: 10, LeaderEpoch: 2}, {Offset: 11, LeaderEpoch: 2}}, 13, partlog.EpochOf(3))
	e.read(nil, 15, partlog.EpochOf(3))
	e.read(nil, 16, partlog.EpochOf(4))
	e.read([]*kgo.Record{{Offset: 16, LeaderEpoch: 4}}, 17, partlog.EpochOf(4))
	for position, want := range map[int64]int32{10: 1, 11: 2, 12: 2, 13: 3, 15: 3, 16: 4, 17: 4} {
		if got := e.below(position); got != partlog.EpochOf(want) {
			t.Errorf("below %d: %v, want %v", position, got, partlog.EpochOf(want))
		}
	}
}
