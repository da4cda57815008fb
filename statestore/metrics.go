package statestore

import (
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// metric is one exported value. It is read from Pebble's metrics, unless the store counts it itself.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*pebble.Metrics) float64
}

// Collector exports the store's metrics to Prometheus. Counts and times are since Open. After Close, or a fatal error,
// every value is 0.
func (s *Store) Collector() prometheus.Collector {
	all := s.metrics()
	return prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) {
		value := func(metric) float64 { return 0 }
		if s.enter() == nil {
			defer s.leave()
			m := s.db.Metrics()
			value = func(x metric) float64 { return x.value(m) }
		}
		for _, x := range all {
			ch <- prometheus.MustNewConstMetric(x.desc, x.kind, value(x))
		}
	})
}

func (s *Store) metrics() (all []metric) {
	e, gauge, counter := s.events, prometheus.GaugeValue, prometheus.CounterValue
	add := func(name, help string, kind prometheus.ValueType, value func(*pebble.Metrics) float64) {
		desc := prometheus.NewDesc("waterclock_store_"+name, help, nil, nil)
		all = append(all, metric{desc, kind, value})
	}
	add("disk_bytes", "Bytes the local store takes on disk.",
		gauge, func(m *pebble.Metrics) float64 { return float64(m.DiskSpaceUsage()) })
	add("free_bytes", "Bytes that the disk of the data directory has free for this process; -1: not known.",
		gauge, func(_ *pebble.Metrics) float64 { return float64(s.o.freeBytes()) })
	add("obsolete_bytes", "Bytes on disk that are no longer in use and about to be removed.",
		gauge, func(m *pebble.Metrics) float64 { return float64(m.Table.ObsoleteSize + m.Table.ZombieSize) })
	add("memtable_bytes", "Bytes of memory that hold what is not on disk yet.",
		gauge, func(m *pebble.Metrics) float64 { return float64(m.MemTable.Size) })
	add("level0_layers", "Layers of tables that wait to be compacted into the rest.",
		gauge, func(m *pebble.Metrics) float64 { return float64(m.Levels[0].Sublevels) })
	add("read_amplification", "Layers of tables that a read passes through at most.",
		gauge, func(m *pebble.Metrics) float64 { return float64(m.ReadAmp()) })
	add("compaction_debt_bytes", "Bytes that compactions are behind, estimated.",
		gauge, func(m *pebble.Metrics) float64 { return float64(m.Compact.EstimatedDebt) })
	add("tombstones", "Deletions that have not been compacted away, approximately.",
		gauge, func(m *pebble.Metrics) float64 { return float64(m.Keys.TombstoneCount) })
	add("flushes_total", "Flushes of memory to disk.",
		counter, func(m *pebble.Metrics) float64 { return float64(m.Flush.Count) })
	add("compactions_total", "Compactions of tables.",
		counter, func(m *pebble.Metrics) float64 { return float64(m.Compact.Count) })
	add("ingests_total", "Tables that replays wrote, and wipes.",
		counter, func(m *pebble.Metrics) float64 { return float64(m.Ingest.Count) })
	add("written_bytes_total", "Bytes written to disk by flushes, ingests and compactions.",
		counter, func(m *pebble.Metrics) float64 { return float64(bytesWritten(m)) })
	add("cache_bytes", "Bytes of memory that hold blocks of tables that were read.",
		gauge, func(m *pebble.Metrics) float64 { return float64(m.BlockCache.Size) })
	add("cache_hits_total", "Reads of blocks that the cache answered.",
		counter, func(m *pebble.Metrics) float64 { return float64(m.BlockCache.Hits) })
	add("cache_misses_total", "Reads of blocks that went to the disk.",
		counter, func(m *pebble.Metrics) float64 { return float64(m.BlockCache.Misses) })
	add("filter_hits_total", "Probes for a timer ID that a table filter answered with no.",
		counter, func(m *pebble.Metrics) float64 { return float64(m.Filter.Hits) })
	add("filter_misses_total", "Probes for a timer ID that had to read a block.",
		counter, func(m *pebble.Metrics) float64 { return float64(m.Filter.Misses) })
	add("stalls_total", "Times that writers had to wait for the disk.",
		counter, func(_ *pebble.Metrics) float64 { return float64(e.stalls.Load()) })
	add("stalled_seconds_total", "Time that writers had to wait for the disk.",
		counter, func(_ *pebble.Metrics) float64 { return e.stalled().Seconds() })
	add("replay_waits_total", "Times that a replay, or a large checkpoint, had to wait for compactions.",
		counter, func(_ *pebble.Metrics) float64 { return float64(e.replayWaits.Load()) })
	add("replay_waited_seconds_total", "Time that replays, and large checkpoints, had to wait for compactions.",
		counter, func(_ *pebble.Metrics) float64 { return time.Duration(e.replayNanos.Load()).Seconds() })
	add("slow_disk_total", "Operations of the disk that took longer than five seconds.",
		counter, func(_ *pebble.Metrics) float64 { return float64(e.slowDisk.Load()) })
	add("background_errors_total", "Flushes and compactions that failed.",
		counter, func(_ *pebble.Metrics) float64 { return float64(e.background.Load()) })
	add("damaged_tables_total", "Tables found damaged and thrown away; their partitions are replayed.",
		counter, func(_ *pebble.Metrics) float64 { return float64(e.damagedTables.Load()) })
	return all
}

// bytesWritten is the size of all flushes, compactions and ingests. Pebble's total counts ingested tables as flushed.
func bytesWritten(m *pebble.Metrics) uint64 {
	total := m.Total()
	return total.TableBytesFlushed + total.TableBytesCompacted
}
