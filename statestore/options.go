package statestore

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options says where a store lies and how much memory it may use.
type Options struct {
	// Dir is the store's own directory. Open creates it.
	Dir string
	// FS is the file system; nil means the machine's.
	FS vfs.FS

	// Memory bounds memtables, cached blocks and filters of IDs together, in bytes; default 32 MB. A memtable
	// takes an eighth of it, 16 MB at most. Filters of IDs take an eighth at most, 2 to 8 bytes for each
	// pending timer. Filters and indices of tables take some 1.7 bytes of the rest for each timer. If they do
	// not fit, each request reads a whole filter. The more memory, the fewer random reads go to the disk.
	Memory uint64
	// FlushInterval is how often changes, and the in-sync times of live partitions, go to disk; 0 means 30 s.
	FlushInterval time.Duration

	// The store flushes early after FlushChanges changes; default 1,500,000. So a restart after a kill has at
	// most some 5 s of changes to replay. See [Handle.Behind].
	FlushChanges int64

	// Home returns the partition of its request topic on which an ID belongs. If it is nil, misplaced timers are not
	// counted. See [Handle.CountFor].
	Home func(id []byte, partitions int32) int32

	// BeforeFlush is called before the store flushes by itself, so that owners apply waiting changes; may be nil.
	// It must return when ctx ends.
	BeforeFlush func(ctx context.Context)

	// Logger defaults to slog.Default.
	Logger *slog.Logger
	// Now is the owner's clock, by default time.Now. Only differences of it count.
	Now func() time.Time

	// OnFatal is called once, on a goroutine of its own, when the database cannot go on: the disk is full, a
	// write of the manifest failed, tables are damaged. From then on every call returns that error, but a call
	// under way may never return. So end the process, which is safe at any moment. By default it logs and exits
	// with status 1.
	OnFatal func(error)
}

const (
	defaultMemory        = 32 << 20 // bytes
	maxMemTable          = 16 << 20
	defaultFlushInterval = 30 * time.Second
	defaultFlushChanges  = 1_500_000
)

func (o Options) withDefaults() Options {
	if o.FS == nil {
		// Within one process the path tells locks apart.
		if abs, err := filepath.Abs(o.Dir); err == nil {
			o.Dir = abs
		}
	}
	o.Memory = cmp.Or(o.Memory, defaultMemory)
	o.FlushInterval = cmp.Or(max(o.FlushInterval, 0), defaultFlushInterval)
	o.FlushChanges = cmp.Or(max(o.FlushChanges, 0), defaultFlushChanges)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnFatal == nil {
		logger := o.Logger
		o.OnFatal = func(err error) {
			logger.Error("store cannot continue, ending the process", "err", err)
			os.Exit(1)
		}
	}
	return o
}

// memTable returns the size of one memtable. There may be four.
func (o *Options) memTable() uint64 { return min(o.Memory/8, maxMemTable) }

// fs returns the file system for files that are not Pebble's.
func (o *Options) fs() vfs.FS {
	if o.FS == nil {
		return vfs.Default
	}
	return o.FS
}

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
