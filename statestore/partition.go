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

// Partition is one request partition's share of the store.
type Partition struct {
	s      *Store
	id     PartitionID
	prefix prefix
	low    *lowBound

	deletions   atomic.Int64 // of rows by due time since the last sweep
	sweepQueued atomic.Bool

	// owner is who may change the partition, nil for nobody. It is set under
	// write, so that no batch of a former owner is under way when a new one
	// comes; Release alone clears it without.
	owner atomic.Pointer[Handle]
	// loaded says that state and low are what the store holds.
	loaded atomic.Bool
	// damaged says that what the store held is gone, until the next wipe. It is
	// set while nobody is inside the store.
	damaged atomic.Bool

	ids idFilter

	// misplaced is what state says of it, for all to see; -1: not known.
	misplaced atomic.Int64

	// write is held over every change, I/O included: see Handle. It guards what
	// follows, and the fields of the owner that say so.
	write     sync.Mutex
	state     meta
	targets   targets // those with parked timers; of state
	wipes     int     // counts them, so that a sweep notices one
	unflushed bool    // rows may lie in memory alone
}

func newPartition(s *Store, id PartitionID) *Partition {
	p := &Partition{s: s, id: id, prefix: id.prefix(), low: newLowBound()}
	p.ids.p, p.ids.pool = p, &s.filters
	p.misplaced.Store(-1)
	return p
}

// ID is the partition's name.
func (p *Partition) ID() PartitionID { return p.id }

// Handle is the right to use a partition, until somebody else acquires it.
type Handle struct {
	p *Partition

	// Guarded by p.write.
	live bool
	// brokers is what time it was at the brokers when it was local here.
	brokers, local time.Time
	confirmed      func() (ago time.Duration, err error) // see Live
	replay         *Replay

	unsaved atomic.Pointer[time.Time] // see Unsaved
}

// Acquire makes the caller the only one who may change the partition. It waits for
// the batch that is under way, if any; from then on everybody who acquired the
// partition earlier is refused with ErrNotOwner.
func (p *Partition) Acquire() *Handle {
	k := &Handle{p: p}
	p.write.Lock()
	defer p.write.Unlock()
	p.owner.Store(k)
	return k
}

// acquireIdle is Acquire where nobody has the partition, else nil.
func (p *Partition) acquireIdle() *Handle {
	p.write.Lock()
	defer p.write.Unlock()
	k := &Handle{p: p}
	if !p.owner.CompareAndSwap(nil, k) {
		return nil
	}
	return k
}

// Release gives the partition back. It takes effect at once and returns when no
// batch of the handle is under way. Releasing twice, or after the partition was
// acquired by somebody else, does nothing.
func (k *Handle) Release() {
	k.p.owner.CompareAndSwap(k, nil)
	k.p.write.Lock()
	defer k.p.write.Unlock()
}

// ID is the name of the partition.
func (k *Handle) ID() PartitionID { return k.p.id }

func (k *Handle) check() error {
	if k.p.owner.Load() != k {
		return fmt.Errorf("partition %s: %w", k.p.id, ErrNotOwner)
	}
	return nil
}

// enter opens the store and the partition for a change, until leave.
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

// loadLocked reads the partition's meta rows unless that was done. Afterwards
// they are changed through state alone.
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

// get returns a copy of one row, nil if there is none.
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

// Meta says how far the partition's fold is: Position -1 if there is nothing.
// Errors wrap ErrNotOwner, or ErrNewerFormat or ErrCorrupt if the partition must
// be wiped before it is used.
func (k *Handle) Meta() (Meta, error) {
	if err := k.enter(); err != nil {
		return Meta{Position: noPosition}, err
	}
	defer k.leave()
	m := k.p.state.Meta
	m.Checkpoint = bytes.Clone(m.Checkpoint)
	return m, nil
}

// Look returns what the store holds of the partition, whoever has it. It waits for nothing:
// not ok if there is nothing, if it cannot be read, or while it is being changed.
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

// lookLocked reads without keeping anything of it; write is held.
func (p *Partition) lookLocked() (Meta, error) {
	if err := p.intact(); err != nil || p.loaded.Load() {
		return p.state.Meta, err
	}
	m, err := readMeta(p.s.db, p.prefix)
	return m.Meta, err
}

// look is Meta for who will not use the partition: nothing of it is kept.
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

// Live says that the owner has met the end of the changelog: the store holds
// everything from now on, and the in-sync time moves with the clock, also while
// nothing is applied. Replay ends that.
//
// All in-sync times are the brokers', which also decide for how long a tombstone
// is kept: by a clock that is ahead a store would look fresh when it is not. now
// is their time, or earlier; from then on the time that passes here is added.
//
// The in-sync time must not be later than the time until which the process knew
// that it owned the partition: after a pause of a day a process wakes, without a
// network, flushes for half a minute, and only then gives up what was long another's;
// were "now" recorded, the tombstones of that day would never be missed and cancelled
// timers would fire. So the owner's lease is asked: confirmed says how long ago the
// partition is known to have been the owner's, or an error if it is not any more. It
// is called under the partition's lock and must not block.
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

// Unsaved says since when the owner has had changes that the store lacks, the zero
// time if there are none. The store was in sync at that moment at most.
func (k *Handle) Unsaved(since time.Time) {
	if since.IsZero() {
		k.unsaved.Store(nil)
	} else {
		k.unsaved.Store(&since)
	}
}

// Keeps says for how long the changelog keeps deletions now. It is stored with the next
// change, and with the next flush of a live partition.
func (k *Handle) Keeps(d time.Duration) error {
	if err := k.enter(); err != nil {
		return err
	}
	defer k.leave()
	k.p.state.Keeps = d.Truncate(time.Millisecond)
	return nil
}

// Behind says that the owner has so many more changes in the changelog that the disk
// lacks, in the store or not. If they become too many, the store has what waits applied
// and goes to disk before its time.
func (k *Handle) Behind(changes int) { k.p.s.upkeep.changed(changes) }

// confirm moves the in-sync time of a live handle; p.write is held.
//
// The clock is read first: if the process stands still between two of these lines, what
// is found behind the pause is too early, never too late. A clock that was set back
// takes the in-sync time with it.
func (k *Handle) confirm() {
	now := k.brokers.Add(k.p.s.o.Now().Sub(k.local))
	ago, err := k.confirmed()
	if err != nil {
		return
	}
	at := now.Add(-ago)
	if at.Before(k.brokers) {
		at = k.brokers // the claim is as good as an answer
	}
	if since := k.unsaved.Load(); since != nil {
		if saved := now.Add(-time.Since(*since)); saved.Before(at) {
			at = saved
		}
	}
	k.p.state.InSync = at
}

// setState changes what the partition is known to hold; p.write is held.
func (p *Partition) setState(m meta) {
	p.state = m
	p.showMisplaced()
}

// refresh writes the meta row of a live partition, for its in-sync time. If a
// batch is under way that is left to the next time.
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

// Wipe removes all that the store holds of the partition, at once and for good:
// after a crash the partition is as before or empty.
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
	p.loaded.Store(false) // should the excise fail, read what there is
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

// flushLocked makes sure that no row of the partition lies in memory alone,
// before a table or an excise passes the memtables by: see doc.go.
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
