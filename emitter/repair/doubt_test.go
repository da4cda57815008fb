package repair

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/timer"
)

// A partition may stay in doubt for long, because the service may not inspect it. Transactions that end there long
// after its leader moved are not remembered for it, and their producer IDs are not retired. While it has no leader, all
// of them are.
func TestDoubtForgetsItsMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewMarkers(nil, targets.NewMetadata(nil, targets.MetadataOptions{}), "g", slog.New(slog.DiscardHandler),
			NewMetrics(prometheus.NewRegistry()))
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
		if k.leaderless(to); !end(3) {
			t.Error("not remembered without a leader")
		}
		time.Sleep(endedKept / 2)
		if k.Moved(to); !end(4) || !k.Retired(3) {
			t.Error("not remembered after another move")
		}
	})
}

// A partition in doubt is shown once a transaction has ended on it while it had no leader. It is shown until two looks
// at the leader have found nothing open.
func TestMissingMarkersAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		k := NewMarkers(nil, targets.NewMetadata(nil, targets.MetadataOptions{}), "g", slog.New(slog.DiscardHandler),
			NewMetrics(reg))
		to := timer.TopicPartition{Topic: "t", Partition: 0}
		shows := func(when string, want float64) {
			t.Helper()
			if n, there := gathered(t, reg)["waterclock_missing_markers"]; n != want || !there {
				t.Errorf("%s: %v missing markers are shown, want %v", when, n, want)
			}
		}
		k.Moved(to)
		k.leaderless(to)
		shows("no leader, and no transaction has ended", 0)
		k.NoteEnd("id", Producer{1, 0}, EndingCommit, map[string][]int32{"t": {0}})
		k.leaderless(to)
		shows("a transaction has ended without a leader", 1)
		k.looked(to, true)
		shows("one look has found nothing open", 1)
		time.Sleep(doubtAfter)
		k.looked(to, true)
		shows("two looks have found nothing open", 0)
	})
}
