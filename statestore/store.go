package statestore

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/semaphore"
)

const (
	databaseDir = "db"
	tablesDir   = "tables"
	lockFile    = "LOCK"
)

// Store is the local state of one process. All methods of the store, its partitions and their handles
// may be called concurrently.
type Store struct {
	o        Options
	readOnly bool // see OpenReadOnly
	lock     io.Closer
	events   *events

	db          *pebble.DB
	cache       *pebble.Cache
	inputs      *inputs             // of compactions
	scans       *semaphore.Weighted // bytes of the blocks that scans of large rows hold
	compactions *compactions        // lets Pebble compact

	upkeep     upkeep
	filters    filterPool
	tables     tableMaker
	roomLayers int // roomLayers of upkeep.go; tests change it before they replay

	opened chan struct{} // closed when Open has returned

	// life is held for reading by every call that uses db, and for writing by Close and damage.discard. No
	// goroutine takes it twice.
	life   sync.RWMutex
	closed bool
	// views counts the open views. A view may sit idle while it is open, so it does not hold life: a waiting writer
	// would hold up every later call. What a view reads is frozen, and Close waits for it.
	views sync.WaitGroup

	// mu guards the fields below. No I/O happens under it, except that identity is written.
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

// Partition returns the partition with an ID: every call returns the same one.
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

// known returns the partitions that callers have asked for so far.
func (s *Store) known() []*Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.partitions))
}
