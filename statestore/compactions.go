package statestore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/tasks"
)

const (
	// Once level 0 has pauseLayers layers of tables, compactions run even during a replay. It must be less than
	// replayRoom*roomLayers, at which a replay waits, by at least replaySpare. Otherwise nothing would end that wait.
	pauseLayers = 40
	// replayRest is how long compactions stay paused after a replay has written a table.
	replayRest = 5 * time.Second
	// compactionsCheck is how often paused compactions are tried again.
	compactionsCheck = 100 * time.Millisecond
)

// compactions decides when Pebble may compact (merge tables); Pebble says how many may run at a time. It pauses
// them while a replay writes tables and level 0 has fewer than pauseLayers layers: otherwise each table would
// be merged with those below again and again. The pause ends replayRest after the last table, whether the
// replay has ended or stands still.
//
// A replay that looks up its own stored rows, because many of its timers have fired, does not pause compactions. Each
// look-up probes all layers, whose filters may not fit into the cache, and compactions remove deleted rows.
//
// It implements pebble.CompactionScheduler and pebble.CompactionGrantHandle. Pebble calls TrySchedule with its
// own locks held. So mu is never held during a call to Pebble, except for GetAllowedWithoutPermission, which
// takes no locks.
type compactions struct {
	pauseLayers atomic.Int64 // see the constant; tests change it

	replayed atomic.Int64 // when a replay last wrote a table and looked up little, Unix ns
	layers   atomic.Int64 // of level 0 when one last wrote a table, or at Open, less those merged since; 0: none wrote

	db       pebble.DBForCompaction // since Register
	wake     beats.Signal           // something has ended, or may begin
	granting *tasks.Group           // calls grant

	mu      sync.Mutex // guards the fields below
	running int        // how many compactions run
	over    bool       // the database is closed: no compaction begins any more
}

var (
	_ pebble.CompactionScheduler   = (*compactions)(nil)
	_ pebble.CompactionGrantHandle = (*compactions)(nil)
)

func newCompactions() *compactions {
	c := &compactions{wake: beats.NewSignal(), granting: tasks.New(context.Background())}
	c.pauseLayers.Store(pauseLayers)
	return c
}

// replaying notes how many layers there are when a replay is about to write a table.
func (c *compactions) replaying(layers int) { c.layers.Store(int64(layers)) }

// pause pauses compactions, because a replay is about to write a table.
func (c *compactions) pause() { c.replayed.Store(time.Now().UnixNano()) }

// left returns how many layers are left of those that were there when a replay wrote last. now is how many there
// are. Layers that were merged since never count again.
func (c *compactions) left(now int) int {
	for {
		left := c.layers.Load()
		if int64(now) >= left || c.layers.CompareAndSwap(left, int64(now)) {
			return int(min(left, int64(now)))
		}
	}
}

// paused reports whether a replay pauses compactions. If the clock was set, it does not.
func (c *compactions) paused() bool {
	since := time.Duration(time.Now().UnixNano() - c.replayed.Load())
	return c.layers.Load() < c.pauseLayers.Load() && since >= 0 && since < replayRest
}

func (c *compactions) Register(_ int, db pebble.DBForCompaction) {
	c.db = db
	c.granting.Go(func(ctx context.Context) { beats.EveryOr(ctx, compactionsCheck, c.wake, c.grant) })
}

func (c *compactions) Unregister() {
	c.granting.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

// TrySchedule implements pebble.CompactionScheduler.
func (c *compactions) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.running >= c.db.GetAllowedWithoutPermission() || c.paused() {
		return false, nil
	}
	c.running++
	return true, c
}

func (c *compactions) UpdateGetAllowedWithoutPermission() {
	c.wake.Send()
}

// grant starts compactions as long as Pebble has some to do and they are allowed.
func (c *compactions) grant() {
	for {
		if ok, _ := c.TrySchedule(); !ok {
			return
		}
		if waiting, _ := c.db.GetWaitingCompaction(); !waiting || !c.db.Schedule(c) {
			c.ended()
			return
		}
	}
}

func (c *compactions) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
}

func (c *compactions) Done() {
	c.ended()
	c.UpdateGetAllowedWithoutPermission()
}

func (c *compactions) Started() {}

func (c *compactions) MeasureCPU(pebble.CompactionGoroutineKind) {}

func (c *compactions) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// inputsPart bounds the part of the cache that compactions take: half of it. The rest is for indexes and filters.
const inputsPart = 2

// inputs takes the memory for a compaction's inputs from the cache.
//
// A compaction reads the blocks of its inputs into buffers of its own, outside of the cache: one for each layer of
// level 0 and for each level below. A block is as large as its row. With rows of a KiB these are some hundred KiB. With
// rows of a MiB and eleven layers they are at least 12 MiB in addition to a full cache, while the store's share is 32
// MiB. So while such a compaction runs, the cache is smaller by as much. With small rows nothing changes.
type inputs struct {
	cache   *pebble.Cache
	size    int          // of the cache, in bytes
	largest atomic.Int64 // bytes of the largest row that was written since Open

	mu       sync.Mutex // guards the fields below; held over calls of the cache, which takes only its own locks
	taken    map[int]reservation
	reserved int // bytes, of all that are taken
}

// reservation is the memory that one compaction has taken.
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
