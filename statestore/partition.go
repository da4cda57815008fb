package statestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Partition is what the store holds of one request partition.
type Partition struct {
	s      *Store
	id     PartitionID
	prefix prefix
	low    *lowBound

	deletions   atomic.Int64 // of rows by due time since the last sweep
	sweepQueued atomic.Bool

	// owner may change the partition; nil if there is none. It is set under write, so no batch of a former
	// owner is under way when a new one comes. Only Release clears it without the lock.
	owner atomic.Pointer[Handle]
	// loaded says that state and low match the store.
	loaded atomic.Bool
	// damaged says that the store has lost rows of the partition. The next wipe clears it.
	damaged atomic.Bool

	ids idFilter

	// misplaced is a copy of state.Misplaced that can be read without a lock; -1: not known.
	misplaced atomic.Int64

	// write is held over every change, I/O included. It guards the fields below, and those of the owner
	// that say so.
	write     sync.Mutex
	state     meta
	targets   targets // that timers are parked for; read together with state
	wipes     int     // counted, so that a sweep notices one
	unflushed bool    // some rows may be in memory only
}

func newPartition(s *Store, id PartitionID) *Partition {
	p := &Partition{s: s, id: id, prefix: id.prefix(), low: newLowBound()}
	p.ids.p, p.ids.pool = p, &s.filters
	p.misplaced.Store(-1)
	return p
}

// Handle is the right to use a partition. It ends when another caller acquires the partition.
type Handle struct {
	p *Partition

	// Guarded by p.write.
	live bool
	// brokers and local are one moment, by the brokers' clock and by ours: see Live.
	brokers, local time.Time
	confirmed      func() (ago time.Duration, err error) // see Live
	replay         *Replay

	unsaved atomic.Pointer[time.Time] // see Unsaved
}

// Acquire makes the caller the only one that may change the partition. It waits for a batch under way.
// From then on all earlier handles get ErrNotOwner.
func (p *Partition) Acquire() *Handle {
	k := &Handle{p: p}
	p.write.Lock()
	defer p.write.Unlock()
	p.owner.Store(k)
	return k
}

// acquireIdle is Acquire for a partition without an owner. If there is an owner, it returns nil.
func (p *Partition) acquireIdle() *Handle {
	p.write.Lock()
	defer p.write.Unlock()
	k := &Handle{p: p}
	if !p.owner.CompareAndSwap(nil, k) {
		return nil
	}
	return k
}

// Release gives the partition back. It takes effect at once, and returns when no batch of the handle is
// under way. It does nothing if the handle was released before, or another caller has acquired the
// partition.
func (k *Handle) Release() {
	k.p.owner.CompareAndSwap(k, nil)
	k.p.write.Lock()
	defer k.p.write.Unlock()
}

func (k *Handle) check() error {
	if k.p.owner.Load() != k {
		return fmt.Errorf("partition %s: %w", k.p.id, ErrNotOwner)
	}
	return nil
}

// enter locks the store and the partition for a change, until leave.
func (k *Handle) enter() error {
	if err := k.p.s.enterChange(); err != nil {
		return err
	}
	k.p.write.Lock()
	err := errors.Join(k.check(), k.p.intact())
	if err == nil {
		err = k.p.loadLocked()
	}
	if err != nil {
		k.leave()
	}
	return err
}

func (k *Handle) leave() {
	k.p.write.Unlock()
	k.p.s.leave()
}

// loadLocked reads the partition's meta row and targets, unless they are loaded. From then on they change
// only together with state.
func (p *Partition) loadLocked() error {
	if p.loaded.Load() {
		return nil
	}
	m, err := readMeta(p.s.db, p.prefix)
	if err != nil {
		return fmt.Errorf("partition %s: %w", p.id, err)
	}
	ts, err := readTargets(p.s.db, p.prefix, &m)
	if err != nil {
		return fmt.Errorf("partition %s: %w", p.id, err)
	}
	p.setState(m)
	p.targets = ts
	p.low.reset(m.low)
	if p.ids.current.Load() == nil && m.Pending == 0 {
		p.ids.setLocked(&filter{})
	}
	p.loaded.Store(true)
	return nil
}

func readMeta(r pebble.Reader, p prefix) (meta, error) {
	row, err := get(r, p.key(kindMeta))
	if err != nil || row == nil {
		return emptyMeta(), err
	}
	m, err := decodeMeta(row)
	if err != nil {
		return m, err
	}
	m.Checkpoint, err = get(r, p.key(kindCheckpoint))
	return m, err
}

// get returns a copy of a row, or nil if there is none.
func get(r pebble.Reader, key []byte) ([]byte, error) {
	row, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	row = append([]byte{}, row...)
	return row, closer.Close()
}

// Meta returns how far the partition is; Position is -1 if the store holds nothing of it. Errors wrap
// ErrNotOwner, or ErrNewerFormat or ErrCorrupt if the partition must be wiped before it is used.
func (k *Handle) Meta() (Meta, error) {
	if err := k.enter(); err != nil {
		return Meta{Position: noPosition}, err
	}
	defer k.leave()
	m := k.p.state.Meta
	m.Checkpoint = bytes.Clone(m.Checkpoint)
	return m, nil
}

// Look is Meta without a handle. It waits for no change under way: ok is false while there is one, if the store
// holds nothing, or if it cannot be read.
func (p *Partition) Look() (m Meta, ok bool) {
	if p.s.enter() != nil {
		return Meta{}, false
	}
	defer p.s.leave()
	if !p.write.TryLock() {
		return Meta{}, false
	}
	defer p.write.Unlock()
	m, err := p.lookLocked()
	return m, err == nil && m.Position != noPosition
}

// lookLocked reads the meta row without keeping it; write is held.
func (p *Partition) lookLocked() (Meta, error) {
	if err := p.intact(); err != nil || p.loaded.Load() {
		return p.state.Meta, err
	}
	m, err := readMeta(p.s.db, p.prefix)
	return m.Meta, err
}

// look is Meta for a caller that will not use the partition: the store keeps nothing of what it reads.
func (k *Handle) look() (Meta, error) {
	if err := k.p.s.enter(); err != nil {
		return Meta{}, err
	}
	defer k.p.s.leave()
	k.p.write.Lock()
	defer k.p.write.Unlock()
	if err := k.check(); err != nil {
		return Meta{}, err
	}
	return k.p.lookLocked()
}

// Live says that the owner has read the changelog to its end. From now on the store holds everything, and
// the in-sync time moves with the clock, even if nothing is applied. A Replay ends that.
//
// In-sync times are the brokers', because their clocks decide how long a tombstone is kept. By a local
// clock that is ahead, a store would look fresh when it is not. now is the brokers' time, or earlier; the
// time that passes here is added to it.
//
// The in-sync time must not be later than the last moment at which the process knew that it owned the
// partition. Suppose that a process stands still for a day and wakes without a network. It flushes for half
// a minute, and only then gives up partitions that others took over long ago. If it recorded "now", nobody
// would notice that the tombstones of that day are missing, and cancelled timers would fire. So the owner's
// lease is asked: confirmed returns how long ago the partition is known to have been the owner's, or an
// error if it is no longer. It is called under the partition's lock and must not block.
func (k *Handle) Live(now time.Time, confirmed func() (ago time.Duration, err error)) error {
	if err := k.enter(); err != nil {
		return err
	}
	defer k.leave()
	k.brokers, k.local, k.confirmed = now, k.p.s.o.Now(), confirmed
	k.live = true
	k.p.state.InSync = now
	return nil
}

// Unsaved tells the store since when the owner has changes that the store lacks; the zero time if it has none. The store
// is in sync up to that moment at most.
func (k *Handle) Unsaved(since time.Time) {
	if since.IsZero() {
		k.unsaved.Store(nil)
	} else {
		k.unsaved.Store(&since)
	}
}

// Keeps tells the store how long the changelog keeps deletions. It is stored with the next change, or with
// the next flush of a live partition.
func (k *Handle) Keeps(d time.Duration) error {
	if err := k.enter(); err != nil {
		return err
	}
	defer k.leave()
	k.p.state.Keeps = d.Truncate(time.Millisecond)
	return nil
}

// Behind tells the store that the owner has written that many more changes to the changelog. If too many
// changes are not on disk yet, the store flushes early.
func (k *Handle) Behind(changes int) { k.p.s.upkeep.changed(changes) }

// confirm moves the in-sync time of a live handle; p.write is held.
//
// It reads the clock first: if the process stands still between two of these lines, the result is too early,
// never too late. So it is after the machine was suspended, because time.Now measures elapsed time by the
// monotonic clock. Setting the clock changes nothing.
func (k *Handle) confirm() {
	now := k.brokers.Add(k.p.s.o.Now().Sub(k.local))
	ago, err := k.confirmed()
	if err != nil {
		return
	}
	at := now.Add(-ago)
	if at.Before(k.brokers) {
		at = k.brokers // the claim had confirmed the membership
	}
	if since := k.unsaved.Load(); since != nil {
		if saved := now.Add(-time.Since(*since)); saved.Before(at) {
			at = saved
		}
	}
	k.p.state.InSync = at
}

// setState sets state and the copies of it; p.write is held.
func (p *Partition) setState(m meta) {
	p.state = m
	p.showMisplaced()
}

// refresh writes the meta row of a live partition to record its in-sync time. It does nothing if a batch is
// under way.
func (p *Partition) refresh() error {
	if !p.write.TryLock() {
		return nil
	}
	defer p.write.Unlock()
	k := p.owner.Load()
	if k == nil || !k.live || p.damaged.Load() || !p.loaded.Load() || p.state.Position == noPosition {
		return nil
	}
	k.confirm()
	b := p.newBatchLocked()
	defer b.close()
	return b.commit(p, p.state)
}

// Wipe removes everything that the store holds of the partition. After a crash the partition is as before,
// or empty.
func (k *Handle) Wipe() error {
	p := k.p
	if err := p.s.enterChange(); err != nil {
		return err
	}
	defer p.s.leave()
	p.write.Lock()
	defer p.write.Unlock()
	if err := k.check(); err != nil {
		return err
	}
	k.live, k.replay = false, nil
	p.wipes++
	p.loaded.Store(false) // if the excise fails, the state is read again
	if err := p.flushLocked(); err != nil {
		return fmt.Errorf("wipe partition %s: %w", p.id, err)
	}
	next := p.prefix.next()
	span := pebble.KeyRange{Start: p.prefix[:], End: next[:]}
	if err := p.s.db.Excise(context.Background(), span); err != nil {
		return fmt.Errorf("wipe partition %s: %w", p.id, err)
	}
	p.setState(emptyMeta())
	p.targets = newTargets()
	p.low.reset(last)
	p.ids.forgetLearningLocked()
	p.ids.setLocked(&filter{})
	p.loaded.Store(true)
	p.damaged.Store(false)
	return nil
}

// flushLocked makes sure that all rows of the partition are on disk, before a table or an excise bypasses
// the memtables: see doc.go.
func (p *Partition) flushLocked() error {
	if !p.unflushed {
		return nil
	}
	if err := p.s.db.Flush(); err != nil {
		return err
	}
	p.unflushed = false
	return nil
}
