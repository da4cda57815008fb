package statestore

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/timer"
)

// gathered are the values that the store shows.
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

// What the store shows of troubles that no test makes a real disk have: writers
// that wait for it, operations of seconds, failed flushes, replays that outrun
// compactions. Pebble's part is played by calling what it calls.
func TestCollectorShowsTroubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := full(t)
		defer s.Close()
		troubles := []string{
			"waterclock_store_stalls_total", "waterclock_store_stalled_seconds_total", "waterclock_store_slow_disk_total",
			"waterclock_store_background_errors_total", "waterclock_store_replay_waits_total", "waterclock_store_replay_waited_seconds_total",
		}
		for _, name := range troubles {
			if v, there := gathered(t, s)[name]; v != 0 || !there {
				t.Errorf("%s is %v before anything happened, there %v", name, v, there)
			}
		}
		l := s.events.listener()
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

// Every field of Metrics is shown, under a name of its own: also those that are
// other than 0 for moments only, such as what compactions are about to remove.
func TestCollectorShowsEveryField(t *testing.T) {
	s := memStore(t)
	defer s.Close()
	planted := Metrics{
		DiskBytes: 1, ObsoleteBytes: 2, MemTableBytes: 3, Level0Layers: 4, ReadAmp: 5, CompactionDebt: 6, Flushes: 7, Compactions: 8, Ingests: 9,
		BytesWritten: 10, Tombstones: 11, CacheHits: 12, CacheMisses: 13, FilterHits: 14, FilterMisses: 15, Stalls: 16, Stalled: 17 * time.Second,
		ReplayWaits: 18, ReplayWaited: 19 * time.Second, SlowDisk: 20, BackgroundErrors: 21, DamagedTables: 22, CacheBytes: 23, FreeBytes: 24,
	}
	const fields = 24
	seen := make(map[float64]bool)
	for _, m := range s.Collector().metrics {
		v := m.value(&planted)
		if v < 1 || v > fields || seen[v] {
			t.Errorf("%s shows %v: nothing, or what another one shows", m.desc, v)
		}
		seen[v] = true
	}
	if len(seen) != fields {
		t.Errorf("%d of %d fields are shown", len(seen), fields)
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
	s.tableIDs = 1
	r, err := s.Partition(partition0).Acquire().Replay(changelog, testNow)
	must(t, err)
	row := make([]byte, 100_000)
	x := newTimer("a", 1, 1)
	x.Value = row
	must(t, r.Put([]byte("a"), nil, x))
	must(t, r.Flush(1))
	if n := s.Metrics().BytesWritten; n < uint64(len(row)) || n >= 2*uint64(len(row)) {
		t.Fatalf("%d bytes written of %d", n, len(row))
	}
}
