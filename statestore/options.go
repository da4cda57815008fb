package statestore

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options says where a store lies and how much memory it may use.
type Options struct {
	// Dir is the store's own directory, made if missing.
	Dir string
	// FS is the file system, nil for the machine's.
	FS vfs.FS

	// Memory of the memtables, of cached blocks and of filters of IDs together, in bytes, default
	// 32 MB. A memtable is an eighth of it, 16 MB at most. Filters of IDs take an eighth at most, 2 to 8
	// bytes for each pending timer. Filters and indices of tables take some 1.7 bytes of the rest for each: a
	// store without room for them reads a whole filter for each request. The more memory there is, the fewer
	// reads of random timers go to the disk.
	Memory uint64
	// FlushInterval is how often what changed goes to disk, and the in-sync
	// time of live partitions with it; default 30 s.
	FlushInterval time.Duration

	// FlushChanges is after how many changes that is done earlier, default 1,500,000:
	// what a restart after a kill has to replay at most, some 5 s of it. See
	// [Handle.Behind].
	FlushChanges int64

	// Home says on which of the partitions of its request topic an ID belongs; nil:
	// nothing is counted that lies elsewhere. See [Handle.CountFor].
	Home func(id []byte, partitions int32) int32

	// BeforeFlush is called before what changed goes to disk at an interval, to
	// have what waits applied; nil for nothing. It must return when ctx ends.
	BeforeFlush func(ctx context.Context)

	// Logger, default slog.Default.
	Logger *slog.Logger
	// Now is the owner's clock, default time.Now: it tells how much time passes.
	Now func() time.Time

	// OnFatal is called once, on a goroutine of its own, when the database cannot
	// go on: a full disk, a failed write of the manifest, damaged tables.
	// From then on every call gets that error, but one that is under way may
	// never return: end the process, which is safe at any moment. The default
	// logs and ends it with status 1.
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
		// Locks within one process are told apart by the path.
		if abs, err := filepath.Abs(o.Dir); err == nil {
			o.Dir = abs
		}
	}
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
	if o.FlushInterval <= 0 {
		o.FlushInterval = defaultFlushInterval
	}
	if o.FlushChanges <= 0 {
		o.FlushChanges = defaultFlushChanges
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnFatal == nil {
		logger := o.Logger
		o.OnFatal = func(err error) {
			logger.Error("store cannot go on, ending the process", "err", err)
			os.Exit(1)
		}
	}
	return o
}

// memTable is the size of one memtable, of which there may be four.
func (o *Options) memTable() uint64 { return min(o.Memory/8, maxMemTable) }

// fs is the file system to use for what is not Pebble's.
func (o *Options) fs() vfs.FS {
	if o.FS == nil {
		return vfs.Default
	}
	return o.FS
}
