package statestore

import (
	"runtime"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// databaseFormat is pinned, not FormatNewest, so that a new version of Pebble does not change the format of
// directories. Raise identityFormat together with it.
const databaseFormat = pebble.FormatValueSeparation

const (
	filterBits = 10 // per ID row: 1 % of the probes for an absent ID read a block

	// blockSize is small because replacing or cancelling a timer reads a single ID row.
	blockSize      = 8 << 10
	indexBlockSize = 32 << 10

	// tableSize is the size of the tables that compactions write, in bytes.
	tableSize = 8 << 20

	// compactLayers is Pebble's threshold for level 0, which begins to compact at half as many layers. The more
	// layers, the more short-lived rows are gone before they are merged, and the less often the rest is merged.
	// But each layer costs a probe when an ID is looked up. It must be less than roomLayers.
	compactLayers = 16
)

// pebbleOptions returns the options that measured best. doc.go says why there is no write-ahead log. The caller sets
// the file system.
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
	// Tables have one size on all levels. By Pebble's default those below are larger, and each merge reads more
	// of them at its edges than it needs.
	for i := range p.TargetFileSizes {
		p.TargetFileSizes[i] = tableSize
	}
	p.CompactionConcurrencyRange = func() (lower, upper int) {
		return 1, max(1, runtime.GOMAXPROCS(0)/2)
	}
	p.Experimental.ReadSamplingMultiplier = -1
	// An ingest that overlaps a memtable never happens, see doc.go.
	p.Experimental.DisableIngestAsFlushable = func() bool { return true }
	// Rows by due time share a prefix, so Pebble would treat them as versions of one another and store their
	// values elsewhere. They stay next to the keys.
	p.Experimental.SpanPolicyFunc = func([]byte) (pebble.SpanPolicy, []byte, error) {
		return pebble.SpanPolicy{DisableValueSeparationBySuffix: true}, nil, nil
	}
	for i := range p.Levels {
		p.Levels[i].BlockSize = blockSize
		p.Levels[i].IndexBlockSize = indexBlockSize
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(filterBits)
	}
	// Most new rows are short-lived. The others are compressed when they are merged.
	p.Levels[0].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	return p
}
