package statestore

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

const (
	databaseDir = "db"
	tablesDir   = "tables"
	lockFile    = "LOCK"
)

// PartitionID names a request partition. A topic that is deleted and created again has another UUID.
type PartitionID struct {
	Topic     [16]byte // UUID of the request topic
	Partition int32    // never negative
}

// String is the UUID in hex, a slash and the number.
func (id PartitionID) String() string { return fmt.Sprintf("%x/%d", id.Topic, id.Partition) }

// Store is the local state of one process. All methods of the store, its partitions and their handles
// may be called concurrently.
type Store struct {
	o        Options
	readOnly bool // see OpenReadOnly
	lock     io.Closer
	events   *events

	db          *pebble.DB
	cache       *pebble.Cache
	compactions *compactions // lets Pebble compact

	upkeep     upkeep
	filters    filterPool
	tables     tableMaker
	damage     damage
	roomLayers int // see the constant; tests change it before they replay

	// life is held for reading by every call that uses db, and for writing by Close and damage.discard. No
	// goroutine takes it twice.
	life   sync.RWMutex
	closed bool
	// views counts the open views. A view may rest while it is open, so it does not hold life: a waiting writer
	// would hold up every later call. What a view reads is frozen, and Close waits for it.
	views sync.WaitGroup

	// mu guards the fields below. It is held over no I/O except that of identity.
	mu         sync.Mutex
	identity   identity
	partitions map[PartitionID]*Partition

	close func() error // closes the store once
}

// enter keeps the database open until leave.
func (s *Store) enter() error {
	s.life.RLock()
	if s.closed {
		s.life.RUnlock()
		return ErrClosed
	}
	if err := s.events.err(); err != nil {
		s.life.RUnlock()
		return err
	}
	return nil
}

// enterChange is enter for a call that changes the store.
func (s *Store) enterChange() error {
	if s.readOnly {
		return fmt.Errorf("%s: %w", s.o.Dir, ErrReadOnly)
	}
	return s.enter()
}

func (s *Store) leave() { s.life.RUnlock() }

// Flush makes durable what was applied before. It also records the in-sync time of every live partition,
// idle ones included.
func (s *Store) Flush() error {
	if err := s.enterChange(); err != nil {
		return err
	}
	defer s.leave()
	s.upkeep.busy.Lock()
	defer s.upkeep.busy.Unlock()
	for _, p := range s.known() {
		if p.deletions.Load() > 0 {
			if err := p.sweep(); err != nil {
				return fmt.Errorf("flush store: partition %s: %w", p.id, err)
			}
		}
		if err := p.refresh(); err != nil {
			return fmt.Errorf("flush store: partition %s: %w", p.id, err)
		}
	}
	if !s.upkeep.dirty.Swap(false) {
		return nil
	}
	if err := s.db.Flush(); err != nil {
		s.upkeep.dirty.Store(true)
		return fmt.Errorf("flush store: %w", err)
	}
	return nil
}

// known returns the partitions that callers have asked for so far.
func (s *Store) known() []*Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.partitions))
}

// Close waits for calls under way and for open views, flushes and closes the store. From then on every call
// returns ErrClosed. Further calls of Close return the same error and do nothing. After a fatal error, even
// one that comes meanwhile, Close returns that error and leaves the database alone: its locks may be held
// forever. The directory then stays locked until the process ends.
func (s *Store) Close() error { return s.close() }

func (s *Store) closeOnce() error {
	close(s.upkeep.stop)
	if err := s.events.err(); err != nil {
		return err
	}
	closed := make(chan error, 1)
	go func() { closed <- s.shut() }()
	select {
	case err := <-closed:
		return err
	case <-s.events.dead:
		return s.events.err()
	}
}

func (s *Store) shut() error {
	<-s.upkeep.done
	var flushErr error
	if !s.readOnly {
		flushErr = s.Flush()
	}
	s.life.Lock()
	s.closed = true
	s.life.Unlock()
	s.views.Wait()
	err := errors.Join(flushErr, s.db.Close(), s.lock.Close())
	s.cache.Unref()
	return err
}

// BindCluster binds a new directory to a cluster for good. It returns ErrForeignCluster if the directory
// belongs to another one.
func (s *Store) BindCluster(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !validCluster(id):
		return fmt.Errorf("bind store in %s: %q is no cluster ID", s.o.Dir, id)
	case s.identity.cluster == id:
		return nil
	case s.identity.cluster != "":
		return fmt.Errorf("store in %s is of cluster %s, needed is one of cluster %s "+
			"(name another directory, or delete this one: it is rebuilt from Kafka): %w",
			s.o.Dir, s.identity.cluster, id, ErrForeignCluster)
	}
	if s.readOnly {
		return fmt.Errorf("bind store in %s: %w", s.o.Dir, ErrReadOnly)
	}
	bound := s.identity
	bound.cluster = id
	if err := bound.write(s.o.fs(), s.o.Dir); err != nil {
		return fmt.Errorf("bind store in %s: %w", s.o.Dir, err)
	}
	s.identity = bound
	return nil
}

// Partition returns the partition with an ID, the same one at each call.
func (s *Store) Partition(id PartitionID) *Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partitions[id]
	if p == nil {
		p = newPartition(s, id)
		s.partitions[id] = p
	}
	return p
}

// Partitions returns every partition of which the store holds rows, ordered by topic UUID and number.
func (s *Store) Partitions() ([]PartitionID, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	var ids []PartitionID
	for from := (prefix{}); ; {
		p, ok, err := firstIn(s.db, &pebble.IterOptions{LowerBound: from[:]})
		if !ok || err != nil {
			return ids, err
		}
		ids = append(ids, p.id())
		from = p.next()
	}
}

// Drop removes everything that the store holds of a partition if nobody has acquired it and old says that it is
// too old, and reports whether it did. A caller that acquires the partition meanwhile finds all of it or
// nothing.
func (s *Store) Drop(id PartitionID, old func(Meta) bool) (bool, error) {
	if s.readOnly {
		return false, fmt.Errorf("%s: %w", s.o.Dir, ErrReadOnly)
	}
	k := s.Partition(id).acquireIdle()
	if k == nil {
		return false, nil
	}
	defer k.Release()
	m, err := k.look()
	if err == nil && (m.Position == noPosition || !old(m)) {
		return false, nil
	}
	if err == nil || IsCorrupt(err) {
		err = k.Wipe()
	}
	if errors.Is(err, ErrNotOwner) {
		return false, nil
	}
	return err == nil, err
}
