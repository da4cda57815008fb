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

// Partition is one request partition in the store.
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
	// loaded says that state, targets and low were read. Since then a change may have set fields of state that the next
	// commit stores.
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
	targets   targets // with parked timers; loaded together with state
	wipes     int     // counted, so that a sweep notices one
	unflushed bool    // some rows may be in memory only
}

func newPartition(s *Store, id PartitionID) *Partition {
	p := &Partition{s: s, id: id, prefix: id.prefix(), low: newLowBound()}
	p.ids.p, p.ids.pool = p, &s.filters
	p.misplaced.Store(-1)
	return p
}

// Handle is the right to use a partition. It ends with Release, or when another caller acquires the partition.
type Handle struct {
	p *Partition

	// Guarded by p.write.
	live      *lease // nil until Live, and again from the next replay or wipe on
	replays   int    // begun so far
	replaying bool   // the last of them is under way

	unsaved atomic.Pointer[time.Time] // see Unsaved
}

// Acquire makes the caller the only one that may change the partition. It waits for a running batch. From then on all
// earlier handles get ErrNotOwner.
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

// Release gives the partition back. It takes effect immediately, and returns when no batch of the handle is running. It
// does nothing if the handle was released before, or another caller has acquired the partition.
func (h *Handle) Release() {
	h.p.owner.CompareAndSwap(h, nil)
	h.p.write.Lock()
	defer h.p.write.Unlock()
}

func (h *Handle) check() error {
	if h.p.owner.Load() != h {
		return fmt.Errorf("partition %s: %w", h.p.id, ErrNotOwner)
	}
	return nil
}

// enter locks the store and the partition for a change, until leave.
func (h *Handle) enter() error {
	if err := h.p.s.enterChange(); err != nil {
		return err
	}
	h.p.write.Lock()
	err := errors.Join(h.check(), h.p.intact())
	if err == nil {
		err = h.p.loadLocked()
	}
	if err != nil {
		h.leave()
	}
	return err
}

func (h *Handle) leave() {
	h.p.write.Unlock()
	h.p.s.leave()
}

// loadLocked reads the partition's meta row and targets, unless they are loaded.
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

// Meta returns how far the partition is; Position is -1 if the store holds nothing of it. Errors wrap
// ErrNotOwner, or ErrNewerFormat or ErrCorrupt if the partition must be wiped before it is used.
func (h *Handle) Meta() (Meta, error) {
	if err := h.enter(); err != nil {
		return Meta{Position: noPosition}, err
	}
	defer h.leave()
	m := h.p.state.Meta
	m.Checkpoint = bytes.Clone(m.Checkpoint)
	return m, nil
}

// Look is Meta without a handle. It caches nothing, and does not wait for a running change: ok is false during one, if
// the store has nothing, or if it cannot be read.
func (p *Partition) Look() (m Meta, ok bool) {
	if p.s.enter() != nil {
		return Meta{}, false
	}
	defer p.s.leave()
	if !p.write.TryLock() {
		return Meta{}, false
	}
	defer p.write.Unlock()
	m, err := metaLocked(p)
	return m, err == nil && m.Position != noPosition
}

// metaLocked returns the state of p, and caches nothing; p.write is held.
func metaLocked(p *Partition) (Meta, error) {
	read, err := p.state, p.intact()
	if err == nil && !p.loaded.Load() {
		read, err = readMeta(p.s.db, p.prefix)
	}
	return read.Meta, err
}

// setState sets state and the copies of it; p.write is held.
func (p *Partition) setState(m meta) {
	p.state = m
	if p.s.o.Home == nil || m.Partitions == 0 {
		p.misplaced.Store(-1)
	} else {
		p.misplaced.Store(m.Misplaced)
	}
}

// Wipe removes everything that the store holds of the partition. After a crash the partition is as before,
// or empty.
func (h *Handle) Wipe() error {
	p := h.p
	if err := p.s.enterChange(); err != nil {
		return err
	}
	defer p.s.leave()
	p.write.Lock()
	defer p.write.Unlock()
	if err := h.check(); err != nil {
		return err
	}
	h.live, h.replaying = nil, false
	p.wipes++
	p.loaded.Store(false) // if the excise fails, the state is read again
	if err := p.flushLocked(); err != nil {
		return p.during("wipe", err)
	}
	next := p.prefix.next()
	span := pebble.KeyRange{Start: p.prefix[:], End: next[:]}
	if err := p.s.db.Excise(context.Background(), span); err != nil {
		return p.during("wipe", err)
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

// intact returns an error if the partition has lost a table and has not been wiped since.
func (p *Partition) intact() error {
	if p.damaged.Load() {
		return fmt.Errorf("partition %s was in a damaged table: %w", p.id, ErrCorrupt)
	}
	return nil
}

// during adds the action on the partition to an error; nil stays nil.
func (p *Partition) during(action string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s partition %s: %w", action, p.id, err)
}
