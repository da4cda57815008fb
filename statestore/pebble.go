package statestore

import (
	"runtime"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// databaseFormat is pinned, not FormatNewest: a new Pebble must not turn the
// directory's format over unasked. Whoever raises it raises identityFormat too.
const databaseFormat = pebble.FormatValueSeparation

const (
	filterBits = 10 // per ID row: 1 % of the probes for an absent ID read a block

	// blockSize is small because re-schedules and cancels read single ID rows.
	blockSize      = 8 << 10
	indexBlockSize = 32 << 10

	// tableSize is that of the tables that compactions write, in bytes.
	tableSize = 8 << 20

	// compactLayers is Pebble's threshold for level 0; it begins to merge at half as many layers. The more
	// there may be, the more short-lived rows are gone before, and the less often the rest is merged. But each
	// layer costs a probe when an ID is looked up. It must be less than roomLayers.
	compactLayers = 16
)

// pebbleOptions are those that measured best; doc.go says why no log is
// written. The file system is left to the caller.
func pebbleOptions(o *Options) *pebble.Options {
	p := &pebble.Options{
		Comparer:                    comparer(),
		FormatMajorVersion:          databaseFormat,
		DisableWAL:                  true,
		MemTableSize:                o.memTable(),
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       compactLayers,
		L0CompactionFileThreshold:   500,
		L0StopWritesThreshold:       1000,
		LBaseMaxBytes:               128 << 20,
		FlushSplitBytes:             2 << 20,
		MaxOpenFiles:                4096,
	}
	// Tables of one size on all levels: where those below are larger, as is Pebble's
	// default, each merge takes in more of them at its edges than it needs.
	for i := range p.TargetFileSizes {
		p.TargetFileSizes[i] = tableSize
	}
	p.CompactionConcurrencyRange = func() (lower, upper int) {
		return 1, max(1, runtime.GOMAXPROCS(0)/2)
	}
	p.Experimental.ReadSamplingMultiplier = -1
	// An ingest that overlaps a memtable never happens, see doc.go.
	p.Experimental.DisableIngestAsFlushable = func() bool { return true }
	// Rows by due time share a prefix and are no versions of one another, as
	// Pebble takes them to be: their values stay beside the keys.
	p.Experimental.SpanPolicyFunc = func([]byte) (pebble.SpanPolicy, []byte, error) {
		return pebble.SpanPolicy{DisableValueSeparationBySuffix: true}, nil, nil
	}
	for i := range p.Levels {
		p.Levels[i].BlockSize = blockSize
		p.Levels[i].IndexBlockSize = indexBlockSize
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(filterBits)
	}
	// What is new is short-lived, mostly: what stays is compressed when it is merged.
	p.Levels[0].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	return p
}
