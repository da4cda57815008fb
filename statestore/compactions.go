package statestore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// pauseLayers of tables in level 0 are merged also while a replay goes on. It must be
	// less than the replayRoom*roomLayers that a replay waits at: nothing would end that.
	pauseLayers = 40
	// replayRest is for how long no replay must have written a table for compactions to go on.
	replayRest = 5 * time.Second
	// compactionsCheck is how often compactions that had to wait are tried again.
	compactionsCheck = 100 * time.Millisecond
)

// compactions lets Pebble compact, that is merge tables, as many at a time as Pebble says, but
// not while a replay writes tables and level 0 has fewer than pauseLayers: each would be
// merged with what is below again and again. What has come in one go is merged in one go.
// A replay that ends, or stands still, holds nothing up for longer than replayRest; one
// that looks up what it has stored, as where timers have fired, holds up nothing: each
// look-up asks all layers, whose filters need not fit the cache, and compactions get rid of
// what is gone.
//
// It implements pebble.CompactionScheduler and pebble.CompactionGrantHandle. Pebble calls
// TrySchedule with its own locks held, so mu is never held while Pebble is called, but for
// GetAllowedWithoutPermission, which takes none.
type compactions struct {
	pauseLayers atomic.Int64 // see the constant; tests change it

	replayed atomic.Int64 // when a replay last wrote a table and looked up little, Unix ns
	layers   atomic.Int64 // of level 0 when one last wrote a table, or of Open, less what was merged since; 0: none did

	db         pebble.DBForCompaction // since Register
	wake       chan struct{}          // something has ended, or may begin
	stop, done chan struct{}          // of run

	mu      sync.Mutex // guards what follows
	running int        // compactions
	over    bool       // the database is closed: none begins any more
}

func newCompactions() *compactions {
	c := &compactions{wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	c.pauseLayers.Store(pauseLayers)
	return c
}

// replaying notes that a replay is about to write a table, and how many layers there are.
func (c *compactions) replaying(layers int) { c.layers.Store(int64(layers)) }

// hold has compactions wait for what the replay writes next.
func (c *compactions) hold() { c.replayed.Store(time.Now().UnixNano()) }

// left returns how many layers are left of those that were there when a replay wrote last;
// now is how many there are. What was merged since never counts again.
func (c *compactions) left(now int) int {
	for {
		left := c.layers.Load()
		if int64(now) >= left || c.layers.CompareAndSwap(left, int64(now)) {
			return int(min(left, int64(now)))
		}
	}
}

// held reports whether compactions wait for a replay. A clock that was set ends that too.
func (c *compactions) held() bool {
	since := time.Duration(time.Now().UnixNano() - c.replayed.Load())
	return c.layers.Load() < c.pauseLayers.Load() && since >= 0 && since < replayRest
}

// Register implements pebble.CompactionScheduler.
func (c *compactions) Register(_ int, db pebble.DBForCompaction) {
	c.db = db
	go c.run()
}

// Unregister implements pebble.CompactionScheduler.
func (c *compactions) Unregister() {
	close(c.stop)
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

// TrySchedule implements pebble.CompactionScheduler.
func (c *compactions) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.running >= c.db.GetAllowedWithoutPermission() || c.held() {
		return false, nil
	}
	c.running++
	return true, c
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler.
func (c *compactions) UpdateGetAllowedWithoutPermission() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run begins what TrySchedule has refused.
func (c *compactions) run() {
	defer close(c.done)
	ticker := time.NewTicker(compactionsCheck)
	defer ticker.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-ticker.C:
		case <-c.wake:
		}
		c.grant()
	}
}

// grant begins compactions as long as Pebble has some to do and they may.
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

// Done implements pebble.CompactionGrantHandle.
func (c *compactions) Done() {
	c.ended()
	c.UpdateGetAllowedWithoutPermission()
}

// Started implements pebble.CompactionGrantHandle.
func (c *compactions) Started() {}

// MeasureCPU implements pebble.CompactionGrantHandle.
func (c *compactions) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats implements pebble.CompactionGrantHandle.
func (c *compactions) CumulativeStats(pebble.CompactionGrantHandleStats) {}
