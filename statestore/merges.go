package statestore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// holdLayers of tables in level 0 are merged also while a replay goes on. It must be
	// less than the replayRoom*roomLayers that a replay waits at: nothing would end that.
	holdLayers = 40
	// replayRest is for how long no replay must have written a table for merges to go on.
	replayRest = 5 * time.Second
	// mergesCheck is how often merges that had to wait are tried again.
	mergesCheck = 100 * time.Millisecond
)

// merges lets Pebble merge tables (its compactions), as many at a time as Pebble says, but
// not while a replay writes tables and level 0 has fewer than holdLayers: each would be
// merged with what is below again and again. What has come in one go is merged in one go.
// A replay that ends, or stands still, holds nothing up for longer than replayRest; one
// that looks up what it has stored, as where timers have fired, holds up nothing: each
// look-up asks all layers, whose filters need not fit the cache, and merges get rid of
// what is gone.
//
// It implements pebble.CompactionScheduler and pebble.CompactionGrantHandle. Pebble calls
// TrySchedule with its own locks held, so mu is never held while Pebble is called, but for
// GetAllowedWithoutPermission, which takes none.
type merges struct {
	holdLayers atomic.Int64 // see the constant; tests change it

	replayed atomic.Int64 // when a replay last wrote a table and looked up little, Unix ns
	layers   atomic.Int64 // of level 0 when one last wrote a table, or of Open, less what was merged since; 0: none did

	db         pebble.DBForCompaction // since Register
	wake       chan struct{}          // something has ended, or may begin
	stop, done chan struct{}          // of run

	mu      sync.Mutex // guards what follows
	running int        // merges
	over    bool       // the database is closed: none begins any more
}

func newMerges() *merges {
	m := &merges{wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	m.holdLayers.Store(holdLayers)
	return m
}

// replaying notes that a replay is about to write a table, and how many layers there are.
func (m *merges) replaying(layers int) { m.layers.Store(int64(layers)) }

// hold has merges wait for what the replay writes next.
func (m *merges) hold() { m.replayed.Store(time.Now().UnixNano()) }

// left returns how many layers are left of those that were there when a replay wrote last;
// now is how many there are. What was merged since never counts again.
func (m *merges) left(now int) int {
	for {
		left := m.layers.Load()
		if int64(now) >= left || m.layers.CompareAndSwap(left, int64(now)) {
			return int(min(left, int64(now)))
		}
	}
}

// held reports whether merges wait for a replay. A clock that was set ends that too.
func (m *merges) held() bool {
	since := time.Duration(time.Now().UnixNano() - m.replayed.Load())
	return m.layers.Load() < m.holdLayers.Load() && since >= 0 && since < replayRest
}

// Register implements pebble.CompactionScheduler.
func (m *merges) Register(_ int, db pebble.DBForCompaction) {
	m.db = db
	go m.run()
}

// Unregister implements pebble.CompactionScheduler.
func (m *merges) Unregister() {
	close(m.stop)
	<-m.done
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
}

// TrySchedule implements pebble.CompactionScheduler.
func (m *merges) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over || m.running >= m.db.GetAllowedWithoutPermission() || m.held() {
		return false, nil
	}
	m.running++
	return true, m
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler.
func (m *merges) UpdateGetAllowedWithoutPermission() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// run begins what TrySchedule has refused.
func (m *merges) run() {
	defer close(m.done)
	ticker := time.NewTicker(mergesCheck)
	defer ticker.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-ticker.C:
		case <-m.wake:
		}
		m.grant()
	}
}

// grant begins merges as long as Pebble has some to do and they may.
func (m *merges) grant() {
	for {
		if ok, _ := m.TrySchedule(); !ok {
			return
		}
		if waiting, _ := m.db.GetWaitingCompaction(); !waiting || !m.db.Schedule(m) {
			m.ended()
			return
		}
	}
}

func (m *merges) ended() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running--
}

// Done implements pebble.CompactionGrantHandle.
func (m *merges) Done() {
	m.ended()
	m.UpdateGetAllowedWithoutPermission()
}

// Started implements pebble.CompactionGrantHandle.
func (m *merges) Started() {}

// MeasureCPU implements pebble.CompactionGrantHandle.
func (m *merges) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats implements pebble.CompactionGrantHandle.
func (m *merges) CumulativeStats(pebble.CompactionGrantHandleStats) {}
