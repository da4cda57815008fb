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

// A partition may stay in doubt for long: the service may not look at it. What
// ends there long after its leader moved is not remembered for that, nor is
// its producer ID retired; while it has no leader everything is.
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
