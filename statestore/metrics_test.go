package statestore

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/timer"
)

// gathered returns the values of the store's metrics.
func gathered(t *testing.T, s *Store) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	must(t, r.Register(s.Collector()))
	families, err := r.Gather()
	must(t, err)
	values := make(map[string]float64)
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return values
}

// The metrics of troubles that no test can give a real disk: writers that wait, operations that take seconds, failed
// flushes, and replays that outrun compactions. The test calls the functions that Pebble would call.
func TestCollectorShowsTroubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := full(t)
		defer s.Close()
		troubles := []string{
			"waterclock_store_stalls_total", "waterclock_store_stalled_seconds_total",
			"waterclock_store_slow_disk_total",
			"waterclock_store_background_errors_total", "waterclock_store_replay_waits_total",
			"waterclock_store_replay_waited_seconds_total",
		}
		for _, name := range troubles {
			if v, there := gathered(t, s)[name]; v != 0 || !there {
				t.Errorf("%s is %v before anything happened, there %v", name, v, there)
			}
		}
		l := s.events.listener(s.inputs)
		l.WriteStallBegin(pebble.WriteStallBeginInfo{Reason: "memtable count limit reached"})
		time.Sleep(2 * time.Second)
		l.WriteStallEnd()
		l.DiskSlow(pebble.DiskSlowInfo{Path: "x", Duration: 6 * time.Second})
		l.BackgroundError(io.ErrUnexpectedEOF)
		must(t, r.Flush(1)) // waits for room in vain
		got := gathered(t, s)
		for i, want := range []float64{1, 2, 1, 1, 1, roomWait.Seconds()} {
			if got[troubles[i]] != want {
				t.Errorf("%s is %v, want %v", troubles[i], got[troubles[i]], want)
			}
		}
	})
}

// Each metric shows the value in its name, even if it is other than 0 only for moments.
func TestCollectorShowsEachMetric(t *testing.T) {
	s := memStore(t)
	defer s.Close()
	var m pebble.Metrics
	m.Table.ObsoleteSize, m.Table.ZombieSize, m.MemTable.Size = 1, 1, 3
	m.Levels[0].Sublevels, m.Levels[6].Sublevels = 4, 1
	m.Compact.EstimatedDebt, m.Compact.Count, m.Flush.Count, m.Ingest.Count, m.Keys.TombstoneCount = 6, 7, 8, 9, 10
	m.Levels[0].TableBytesFlushed, m.Levels[6].TableBytesCompacted = 11, 12
	m.BlockCache.Size, m.BlockCache.Hits, m.BlockCache.Misses, m.Filter.Hits, m.Filter.Misses = 13, 14, 15, 16, 17
	e := s.events
	e.stalls.Store(18)
	e.stallNanos.Store((19 * time.Second).Nanoseconds())
	e.replayWaits.Store(20)
	e.replayNanos.Store((21 * time.Second).Nanoseconds())
	e.slowDisk.Store(22)
	e.background.Store(23)
	e.damagedTables.Store(24)
	want := map[string]float64{
		"disk_bytes": float64(m.DiskSpaceUsage()), "free_bytes": -1, "obsolete_bytes": 2, "memtable_bytes": 3,
		"level0_layers":      4,
		"read_amplification": float64(m.ReadAmp()), "compaction_debt_bytes": 6, "compactions_total": 7,
		"flushes_total": 8, "ingests_total": 9,
		"tombstones": 10, "written_bytes_total": float64(bytesWritten(&m)), "cache_bytes": 13, "cache_hits_total": 14,
		"cache_misses_total": 15,
		"filter_hits_total":  16, "filter_misses_total": 17, "stalls_total": 18, "stalled_seconds_total": 19,
		"replay_waits_total":          20,
		"replay_waited_seconds_total": 21, "slow_disk_total": 22, "background_errors_total": 23,
		"damaged_tables_total": 24,
	}
	metrics := s.metrics()
	for _, x := range metrics {
		_, name, _ := strings.Cut(x.desc.String(), `"waterclock_store_`)
		name, _, _ = strings.Cut(name, `"`)
		if v, known := want[name]; !known || x.value(&m) != v {
			t.Errorf("%s shows %v, want %v", name, x.value(&m), v)
		}
	}
	if len(metrics) != len(want) {
		t.Errorf("%d metrics, want %d", len(metrics), len(want))
	}
}

// Tables that a compaction has replaced and a reader still holds are obsolete.
func TestMetricsOfObsoleteTables(t *testing.T) {
	s := memStore(t)
	defer s.Close()
	k := s.Partition(partition0).Acquire()
	must(t, k.Apply(batchAt(1, put(newTimer("a", 1, 1), timer.Absent))))
	must(t, s.Flush())
	reader, err := s.db.NewIter(nil)
	must(t, err)
	defer reader.Close()
	must(t, k.Apply(batchAt(2, put(newTimer("b", 2, 2), timer.Absent))))
	must(t, s.Flush())
	must(t, s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
	if got := gathered(t, s); got["waterclock_store_obsolete_bytes"] == 0 {
		t.Errorf("a reader holds tables, and nothing is obsolete: %v", got)
	}
}

// A table that is ingested is written once, and counts once.
func TestBytesWritten(t *testing.T) {
	s := memStore(t)
	defer s.Close()
	s.tables.leastIDs = 1
	r, err := s.Partition(partition0).Acquire().Replay(changelog, testNow)
	must(t, err)
	row := make([]byte, 100_000)
	x := newTimer("a", 1, 1)
	x.Value = row
	must(t, r.Put([]byte("a"), nil, x))
	must(t, r.Flush(1))
	if n := bytesWritten(s.db.Metrics()); n < uint64(len(row)) || n >= 2*uint64(len(row)) {
		t.Fatalf("%d bytes written of %d", n, len(row))
	}
}
