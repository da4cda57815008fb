package statestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// beforeFlushWait is how long a flush waits for what is applied before it.
const beforeFlushWait = 10 * time.Second

const (
	databaseDir = "db"
	tablesDir   = "tables"
	lockFile    = "LOCK"
)

// PartitionID names a request partition. The UUID makes a deleted and
// re-created topic another one.
type PartitionID struct {
	Topic     [16]byte // UUID of the request topic
	Partition int32    // never negative
}

// String is the UUID in hex, a slash and the number.
func (id PartitionID) String() string { return fmt.Sprintf("%x/%d", id.Topic, id.Partition) }

// Store is the local state of one process. Its methods, and those of what it
// hands out, may be called at the same time from several goroutines.
type Store struct {
	o           Options
	db          *pebble.DB
	cache       *pebble.Cache
	table       sstable.WriterOptions // of tables to ingest
	lock        io.Closer
	events      *events
	compactions *compactions // lets Pebble merge

	readOnly bool // see OpenReadOnly

	stop chan struct{}
	done chan struct{}
	// sweeps names partitions whose low bound is worth raising.
	sweeps  chan *Partition
	filters filterPool

	// maintain is held over one flush or sweep at a time, I/O included.
	maintain   sync.Mutex
	dirty      atomic.Bool   // something was written since the last flush began
	behind     atomic.Int64  // changes that the disk lacks: see Handle.Behind
	flush      chan struct{} // they are too many
	spaceSaid  time.Time     // when the disk was last said to be nearly full; run's own
	tables     atomic.Uint64 // built so far
	tableTurns chan struct{} // a turn each to make a table of a batch; taken before life and a partition's locks
	// See the constants of these names; tests change them before they replay.
	tableIDs, roomLayers int

	// life is held for reading by everything that uses db, for writing by
	// Close. It is never taken twice by one goroutine.
	life   sync.RWMutex
	closed bool

	discarded sync.Map      // damaged tables, by tablePart
	opened    chan struct{} // closed when Open is through

	// mu guards what follows, never over I/O but that of identity.
	mu         sync.Mutex
	identity   identity
	partitions map[PartitionID]*Partition

	closing  sync.Once
	closeErr error
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

// enterChange is enter for what changes the store.
func (s *Store) enterChange() error {
	if s.readOnly {
		return fmt.Errorf("%s: %w", s.o.Dir, ErrReadOnly)
	}
	return s.enter()
}

func (s *Store) leave() { s.life.RUnlock() }

// run flushes, sweeps and learns until stop: at an interval, and when so much has changed that
// a restart after a kill would have long to replay. The timer starts again after each
// flush, also when the process was paused between them.
func (s *Store) run() {
	defer close(s.done)
	timer := time.NewTimer(s.o.FlushInterval)
	defer timer.Stop()
	s.lookAtSpace()
	for {
		select {
		case <-s.stop:
			return
		case p := <-s.sweeps:
			p.sweepQueued.Store(false)
			if err := s.sweep(p); err != nil {
				s.o.Logger.Error("sweep of the store failed", "partition", p.id.String(), "err", err)
			}
			continue
		case ids := <-s.filters.learns:
			more, err := ids.learn()
			if more {
				ids.askToLearn()
			}
			if err != nil && !errors.Is(err, ErrEnded) {
				s.o.Logger.Warn("filter of timer IDs was not learned", "partition", ids.p.id.String(), "err", err)
			}
			continue
		case <-timer.C:
		case <-s.flush:
			if s.behind.Load() < s.o.FlushChanges {
				continue // a flush came before
			}
		}
		s.behind.Store(0)
		s.lookAtSpace()
		s.beforeFlush()
		if err := s.Flush(); err != nil && !errors.Is(err, ErrEnded) {
			s.o.Logger.Error("flush of the store failed", "err", err)
		}
		timer.Reset(s.o.FlushInterval)
	}
}

// beforeFlush has what waits applied, for beforeFlushWait at most.
func (s *Store) beforeFlush() {
	if s.o.BeforeFlush == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), beforeFlushWait)
	defer cancel()
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		select {
		case <-s.stop:
			cancel()
		case <-stopped:
		}
	}()
	s.o.BeforeFlush(ctx)
}

// Flush makes everything durable that was applied before. It records the
// in-sync time of every live partition, idle ones too.
func (s *Store) Flush() error {
	if err := s.enterChange(); err != nil {
		return err
	}
	defer s.leave()
	s.maintain.Lock()
	defer s.maintain.Unlock()
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
	if !s.dirty.Swap(false) {
		return nil
	}
	if err := s.db.Flush(); err != nil {
		s.dirty.Store(true)
		return fmt.Errorf("flush store: %w", err)
	}
	return nil
}

func (s *Store) sweep(p *Partition) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	s.maintain.Lock()
	defer s.maintain.Unlock()
	return p.sweep()
}

// known returns the partitions that were asked for so far.
func (s *Store) known() []*Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	ps := make([]*Partition, 0, len(s.partitions))
	for _, p := range s.partitions {
		ps = append(ps, p)
	}
	return ps
}

// Close flushes and closes the store; everything after it gets ErrClosed. It
// waits for what is under way. Only the first call does something, all return
// the same error. After a fatal error, also one that comes meanwhile, it returns
// that and leaves the database, whose locks may be held forever, and the
// directory's lock to the end of the process.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.stop)
		if s.closeErr = s.events.err(); s.closeErr != nil {
			return
		}
		closed := make(chan error, 1)
		go func() { closed <- s.shut() }()
		select {
		case s.closeErr = <-closed:
		case <-s.events.dead:
			s.closeErr = s.events.err()
		}
	})
	return s.closeErr
}

func (s *Store) shut() error {
	<-s.done
	var flushErr error
	if !s.readOnly {
		flushErr = s.Flush()
	}
	s.life.Lock()
	defer s.life.Unlock()
	s.closed = true
	err := errors.Join(flushErr, s.db.Close(), s.lock.Close())
	s.cache.Unref()
	return err
}

// ClusterID is the Kafka cluster the directory is bound to, empty if to none yet.
func (s *Store) ClusterID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.cluster
}

// BindCluster ties a new directory to the cluster id for good. A directory of another
// cluster is refused with ErrForeignCluster.
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

// Partition returns the partition id, the same one for the same id.
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

// Partitions returns every partition of which the store holds something, in the
// order of topic UUID and number.
func (s *Store) Partitions() ([]PartitionID, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	it, err := s.db.NewIter(nil)
	if err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	var ids []PartitionID
	for ok := it.First(); ok; {
		var p prefix
		if copy(p[:], it.Key()) < prefixSize {
			return nil, errors.Join(fmt.Errorf("list partitions: key %x: %w", it.Key(), ErrCorrupt), it.Close())
		}
		ids = append(ids, p.id())
		next := p.next()
		ok = it.SeekGE(next[:])
	}
	if err := it.Close(); err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	return ids, nil
}

// Drop removes all that is held of a partition that nobody has acquired, if it is
// old, and reports whether it did. Who acquires the partition meanwhile comes before it,
// or finds nothing.
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
