package statestore

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/waterclock/waterclock/internal/beats"
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
	compactions *compactions // lets Pebble compact

	upkeep     upkeep
	filters    filterPool
	tables     tableMaker
	roomLayers int // roomLayers of mergewait.go; tests change it before they replay

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

// tableMaker is what all tables of a store share.
type tableMaker struct {
	options  sstable.WriterOptions
	made     atomic.Uint64
	turns    chan struct{} // one for each batch that is being made into a table; taken before life and a partition's locks
	leastIDs int           // see tableIDs; tests change it
}

// upkeep is the store's background goroutine. It flushes, raises low bounds, learns filters and watches
// the disk. Others send it work through the channels.
type upkeep struct {
	s *Store

	life   context.Context // ended by stop
	stop   func()
	done   chan struct{}   // closed when run has returned
	sweeps chan *Partition // whose low bound is worth raising
	learns chan *Partition // whose filter may be worth learning
	flush  beats.Signal    // too much has changed since the last flush

	behind atomic.Int64 // changes that the disk lacks: see Handle.Behind
	dirty  atomic.Bool  // something was written since the last flush began
	busy   sync.Mutex   // held over one flush or sweep, I/O included

	full beats.Reminder // for warnings that the disk is nearly full; only run uses it
}

// changed counts changes that the disk lacks, and asks for a flush if there are too many.
func (u *upkeep) changed(n int) {
	if u.behind.Add(int64(n)) < u.s.o.FlushChanges {
		return
	}
	u.flush.Send()
}

// known returns the partitions that callers have asked for so far.
func (s *Store) known() []*Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.partitions))
}
