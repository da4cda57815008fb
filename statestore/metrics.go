package statestore

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics is how the store fares. Counts and times are since Open.
type Metrics struct {
	DiskBytes      uint64 // of the database, files not yet removed included
	FreeBytes      int64  // free for this process on the store's disk; -1: not known
	ObsoleteBytes  uint64 // of them: tables no longer in use, or held by a reader alone
	MemTableBytes  uint64 // of memtables
	Level0Layers   int    // sublevels of level 0: what a read passes through before the rest
	ReadAmp        int    // layers a read passes through at most
	CompactionDebt uint64 // bytes that compactions are behind, estimated
	Flushes        int64
	Compactions    int64
	Ingests        uint64
	BytesWritten   uint64 // to disk by flushes, ingests and compactions
	Tombstones     uint64 // approximate number of deletions not yet compacted away

	CacheBytes               int64 // of cached blocks
	CacheHits, CacheMisses   int64 // of the block cache
	FilterHits, FilterMisses int64 // probes that a table filter answered, and did not

	Stalls           int64         // times writers had to wait for flushes
	Stalled          time.Duration // how long they did
	ReplayWaits      int64         // flushes of replays, and large checkpoints, that waited for compactions
	ReplayWaited     time.Duration // how long they did
	SlowDisk         int64         // operations of the disk that took over 5 s
	BackgroundErrors int64         // failed flushes and compactions
	DamagedTables    int64         // found and thrown away
}

// Metrics reads the counters; zero after Close.
func (s *Store) Metrics() Metrics {
	if err := s.enter(); err != nil {
		return Metrics{}
	}
	defer s.leave()
	m := s.db.Metrics()
	total := m.Total()
	return Metrics{
		DiskBytes:        m.DiskSpaceUsage(),
		FreeBytes:        s.freeBytes(),
		ObsoleteBytes:    m.Table.ObsoleteSize + m.Table.ZombieSize,
		MemTableBytes:    m.MemTable.Size,
		Level0Layers:     int(m.Levels[0].Sublevels),
		ReadAmp:          m.ReadAmp(),
		CompactionDebt:   m.Compact.EstimatedDebt,
		Flushes:          m.Flush.Count,
		Compactions:      m.Compact.Count,
		Ingests:          m.Ingest.Count,
		BytesWritten:     total.TableBytesFlushed + total.TableBytesCompacted, // in Pebble's total what is flushed has the ingests in it
		Tombstones:       m.Keys.TombstoneCount,
		CacheBytes:       m.BlockCache.Size,
		CacheHits:        m.BlockCache.Hits,
		CacheMisses:      m.BlockCache.Misses,
		FilterHits:       m.Filter.Hits,
		FilterMisses:     m.Filter.Misses,
		Stalls:           s.events.stalls.Load(),
		Stalled:          s.events.stalled(),
		ReplayWaits:      s.events.replayWaits.Load(),
		ReplayWaited:     time.Duration(s.events.replayNanos.Load()),
		SlowDisk:         s.events.slowDisk.Load(),
		BackgroundErrors: s.events.background.Load(),
		DamagedTables:    s.events.damagedTables.Load(),
	}
}

// metric is one exported value of Metrics.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*Metrics) float64
}

// Collector exports Metrics to Prometheus.
type Collector struct {
	s       *Store
	metrics []metric
}

// Collector returns a new collector for the store, to be registered once.
func (s *Store) Collector() *Collector {
	c := &Collector{s: s}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	add := func(name, help string, kind prometheus.ValueType, value func(*Metrics) float64) {
		desc := prometheus.NewDesc("waterclock_store_"+name, help, nil, nil)
		c.metrics = append(c.metrics, metric{desc, kind, value})
	}
	add("disk_bytes", "Bytes the local store takes on disk.",
		gauge, func(m *Metrics) float64 { return float64(m.DiskBytes) })
	add("free_bytes", "Bytes that the disk of the data directory has free for this process; -1: not known.",
		gauge, func(m *Metrics) float64 { return float64(m.FreeBytes) })
	add("obsolete_bytes", "Bytes on disk that are no longer in use and about to be removed.",
		gauge, func(m *Metrics) float64 { return float64(m.ObsoleteBytes) })
	add("memtable_bytes", "Bytes of memory that hold what is not on disk yet.",
		gauge, func(m *Metrics) float64 { return float64(m.MemTableBytes) })
	add("level0_layers", "Layers of tables that wait to be compacted into the rest.",
		gauge, func(m *Metrics) float64 { return float64(m.Level0Layers) })
	add("read_amplification", "Layers of tables that a read passes through at most.",
		gauge, func(m *Metrics) float64 { return float64(m.ReadAmp) })
	add("compaction_debt_bytes", "Bytes that compactions are behind, estimated.",
		gauge, func(m *Metrics) float64 { return float64(m.CompactionDebt) })
	add("tombstones", "Deletions that have not been compacted away, approximately.",
		gauge, func(m *Metrics) float64 { return float64(m.Tombstones) })
	add("flushes_total", "Flushes of memory to disk.",
		counter, func(m *Metrics) float64 { return float64(m.Flushes) })
	add("compactions_total", "Compactions of tables.",
		counter, func(m *Metrics) float64 { return float64(m.Compactions) })
	add("ingests_total", "Tables that replays wrote, and wipes.",
		counter, func(m *Metrics) float64 { return float64(m.Ingests) })
	add("written_bytes_total", "Bytes written to disk by flushes, ingests and compactions.",
		counter, func(m *Metrics) float64 { return float64(m.BytesWritten) })
	add("cache_bytes", "Bytes of memory that hold blocks of tables that were read.",
		gauge, func(m *Metrics) float64 { return float64(m.CacheBytes) })
	add("cache_hits_total", "Reads of blocks that the cache answered.",
		counter, func(m *Metrics) float64 { return float64(m.CacheHits) })
	add("cache_misses_total", "Reads of blocks that went to the disk.",
		counter, func(m *Metrics) float64 { return float64(m.CacheMisses) })
	add("filter_hits_total", "Probes for a timer ID that a table filter answered with no.",
		counter, func(m *Metrics) float64 { return float64(m.FilterHits) })
	add("filter_misses_total", "Probes for a timer ID that had to read a block.",
		counter, func(m *Metrics) float64 { return float64(m.FilterMisses) })
	add("stalls_total", "Times that writers had to wait for the disk.",
		counter, func(m *Metrics) float64 { return float64(m.Stalls) })
	add("stalled_seconds_total", "Time that writers had to wait for the disk.",
		counter, func(m *Metrics) float64 { return m.Stalled.Seconds() })
	add("replay_waits_total", "Times that a replay, or a large checkpoint, had to wait for compactions.",
		counter, func(m *Metrics) float64 { return float64(m.ReplayWaits) })
	add("replay_waited_seconds_total", "Time that replays had to wait for compactions.",
		counter, func(m *Metrics) float64 { return m.ReplayWaited.Seconds() })
	add("slow_disk_total", "Operations of the disk that took longer than five seconds.",
		counter, func(m *Metrics) float64 { return float64(m.SlowDisk) })
	add("background_errors_total", "Flushes and compactions that failed.",
		counter, func(m *Metrics) float64 { return float64(m.BackgroundErrors) })
	add("damaged_tables_total", "Tables found damaged and thrown away; their partitions are replayed.",
		counter, func(m *Metrics) float64 { return float64(m.DamagedTables) })
	return c
}

// Describe is for Prometheus.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for i := range c.metrics {
		ch <- c.metrics[i].desc
	}
}

// Collect is for Prometheus.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	m := c.s.Metrics()
	for _, x := range c.metrics {
		ch <- prometheus.MustNewConstMetric(x.desc, x.kind, x.value(&m))
	}
}
