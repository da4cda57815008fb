package hanging

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/targets"
	"github.com/waterclock/waterclock/internal/timer"
)

// A partition may stay in doubt for long, because the service may not look at it.
// Transactions that end there long after its leader moved are not remembered for that,
// and their producer IDs are not retired. While it has no leader they all are.
func TestDoubtForgetsItsMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewMarkers(nil, targets.NewMetadata(nil, targets.MetadataOptions{}), "g", slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry()))
		to := timer.TopicPartition{Topic: "t", Partition: 0}
		end := func(id int64) bool {
			k.NoteEnd("id", Producer{id, 0}, EndingCommit, map[string][]int32{"t": {0}})
			return k.Retired(id)
		}
		k.Moved(to)
		if !end(1) {
			t.Error("not remembered right after the move")
		}
		time.Sleep(lagging + time.Second)
		if end(2) {
			t.Error("remembered long after the move")
		}
		if k.away(to); !end(3) {
			t.Error("not remembered without a leader")
		}
		time.Sleep(endedKept / 2)
		if k.Moved(to); !end(4) || !k.Retired(3) {
			t.Error("not remembered after another move")
		}
	})
}
