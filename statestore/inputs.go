package statestore

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// inputsPart bounds what compactions take from the cache: half of it. The rest is for indexes and filters.
const inputsPart = 2

// inputs takes from the cache what a compaction holds of its inputs.
//
// A compaction reads the blocks of its inputs into buffers of its own, outside of the cache: one for each layer of
// level 0 and for each level below. A block is as large as its row. With rows of a KiB these are some hundred KiB, and
// with rows of a MiB and eleven layers at least 12 MiB beside a cache that is full, where the store's share is 32 MiB.
// So while such a compaction runs, the cache is smaller by as much. With small rows nothing changes.
type inputs struct {
	cache   *pebble.Cache
	size    int          // of the cache, in bytes
	largest atomic.Int64 // bytes of the largest row that was written since Open

	mu       sync.Mutex // guards what follows; held over calls of the cache, which takes only its own locks
	taken    map[int]reservation
	reserved int // bytes, of all that are taken
}

// reservation is what one compaction has taken.
type reservation struct {
	bytes    int
	giveBack func()
}

func newInputs(cache *pebble.Cache, size int) *inputs {
	return &inputs{cache: cache, size: size, taken: make(map[int]reservation)}
}

// wrote notes the size of a row.
func (i *inputs) wrote(bytes int) {
	for {
		if most := i.largest.Load(); int64(bytes) <= most || i.largest.CompareAndSwap(most, int64(bytes)) {
			return
		}
	}
}

// begin is called when a compaction begins. Pebble calls it with its own lock held.
func (i *inputs) begin(info pebble.CompactionInfo) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if n := i.room(info.Input); n > 0 {
		i.taken[info.JobID] = reservation{n, i.cache.Reserve(n)}
		i.reserved += n
	}
}

// end is called when a compaction that has begun is over, whatever became of it.
func (i *inputs) end(info pebble.CompactionInfo) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r, ok := i.taken[info.JobID]; ok {
		r.giveBack()
		i.reserved -= r.bytes
		delete(i.taken, info.JobID)
	}
}

// room returns how many bytes a compaction takes from the cache; 0 if rows are no larger than usual blocks. The tables
// of level 0 may overlap. Those of another level do not, so one of them is open at a time.
func (i *inputs) room(levels []pebble.LevelInfo) int {
	largest := int(i.largest.Load())
	if largest <= blockSize {
		return 0
	}
	open := 0
	for _, l := range levels {
		if l.Level == 0 {
			open += min(len(l.Tables), compactLayers)
		} else {
			open++
		}
	}
	return min(open*largest, max(0, i.size/inputsPart-i.reserved))
}
