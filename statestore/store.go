package statestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

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
	o      Options
	db     *pebble.DB
	table  sstable.WriterOptions // of tables to ingest
	lock   io.Closer
	events *events

	readOnly bool // see OpenReadOnly

	stop chan struct{}
	done chan struct{}
	// sweeps names partitions whose low bound is worth raising.
	sweeps chan *Partition

	// maintain is held over one flush or sweep at a time, I/O included.
	maintain sync.Mutex
	dirty    atomic.Bool   // something was written since the last flush began
	tables   atomic.Uint64 // built so far
	// See the constants of these names; tests change them before they replay.
	tableIDs, roomLayers int

	// life is held for reading by everything that uses db, for writing by
	// Close. It is never taken twice by one goroutine.
	life   sync.RWMutex
	closed bool

	discarded sync.Map // paths of damaged tables

	// mu guards what follows, never over I/O but that of identity.
	mu         sync.Mutex
	identity   identity
	partitions map[PartitionID]*Partition

	closing  sync.Once
	closeErr error
}

// Open opens the store in o.Dir, or makes an empty one. Errors wrap ErrInUse,
// ErrNewerFormat or ErrForeignFolder where these are the reason.
func Open(o Options) (_ *Store, err error) {
	s := newStore(o)
	o = s.o
	if err := o.fs().MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if s.lock, err = lockFolder(o.fs(), o.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.lock.Close()
		}
	}()
	if err := s.openIdentity(); err != nil {
		return nil, fmt.Errorf("open store in %s: %w", o.Dir, err)
	}
	if err := s.openTables(); err != nil {
		return nil, fmt.Errorf("open store in %s: %w", o.Dir, err)
	}
	if err := s.openDatabase(); err != nil {
		return nil, fmt.Errorf("open store in %s: %w", o.Dir, err)
	}
	go s.run()
	return s, nil
}

func newStore(o Options) *Store {
	o = o.withDefaults()
	s := &Store{
		o:          o,
		events:     &events{log: o.Logger, onFatal: o.OnFatal},
		stop:       make(chan struct{}),
		done:       make(chan struct{}),
		sweeps:     make(chan *Partition, maxSweepsWaiting),
		partitions: make(map[PartitionID]*Partition),
		tableIDs:   tableIDs,
		roomLayers: roomLayers,
	}
	s.events.onDamage = s.damaged
	return s
}

// OpenReadOnly opens the store in o.Dir to be looked at: nothing of what it
// holds changes. It needs the folder for itself, as Open does. Changes of the
// store, Meta and everything else that a Take has but Lookup, LookupAll, Get and
// Scan are refused with ErrReadOnly. Damage that is met is returned and no
// matter for o.OnFatal.
//
// Errors wrap ErrInUse, ErrNewerFormat, ErrCorrupt, or ErrForeignFolder also if
// there is nothing at all.
func OpenReadOnly(o Options) (_ *Store, err error) {
	s := newStore(o)
	o = s.o
	s.readOnly, s.events.readOnly = true, true
	close(s.done) // nothing runs
	id, err := readIdentity(o.fs(), o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open store in %s: %w", o.Dir, err)
	}
	if id == nil {
		return nil, fmt.Errorf("open store in %s: no %s: %w", o.Dir, identityFile, ErrForeignFolder)
	}
	s.identity = *id
	if _, err := o.fs().Stat(o.fs().PathJoin(o.Dir, databaseDir)); err != nil {
		return nil, fmt.Errorf("open store: %w", err) // Open did not come so far
	}
	if s.lock, err = lockFolder(o.fs(), o.Dir); err != nil {
		return nil, err
	}
	if err := s.openDatabase(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store in %s: %w", o.Dir, corrupt(err)), s.lock.Close())
	}
	return s, nil
}

func lockFolder(fsys vfs.FS, dir string) (io.Closer, error) {
	lock, err := fsys.Lock(fsys.PathJoin(dir, lockFile))
	if err == nil {
		return lock, nil
	}
	// A path error is about the file, everything else about the lock.
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return nil, fmt.Errorf("open store: %s: %w", dir, ErrInUse)
}

// openIdentity reads the STORE file, or writes it first of all files, so that a
// folder with a database and without STORE is not ours.
func (s *Store) openIdentity() error {
	id, err := readIdentity(s.o.fs(), s.o.Dir)
	if err != nil {
		return err
	}
	if id != nil {
		s.identity = *id
		return nil
	}
	if _, err := s.o.fs().Stat(s.o.fs().PathJoin(s.o.Dir, databaseDir)); err == nil {
		return fmt.Errorf("%s without %s: %w", databaseDir, identityFile, ErrForeignFolder)
	}
	s.identity = newIdentity()
	return s.identity.write(s.o.fs(), s.o.Dir)
}

// openTables makes the folder for tables and clears what a crash left there.
func (s *Store) openTables() error {
	fsys := s.o.fs()
	dir := fsys.PathJoin(s.o.Dir, tablesDir)
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	names, err := fsys.List(dir)
	for _, name := range names {
		err = errors.Join(err, fsys.Remove(fsys.PathJoin(dir, name)))
	}
	return err
}

func (s *Store) openDatabase() (err error) {
	defer func() {
		if r := recover(); r != nil {
			fatal, ok := r.(*fatalError)
			if !ok {
				panic(r)
			}
			err = fatal
		}
		s.events.opening.Store(false)
	}()
	s.events.opening.Store(true)
	p := pebbleOptions(&s.o)
	p.FS = s.o.FS // nil: Pebble adds its watch for slow disks
	p.Logger = s.events
	p.EventListener = s.events.listener()
	p.ReadOnly = s.readOnly
	s.db, err = pebble.Open(s.o.fs().PathJoin(s.o.Dir, databaseDir), p)
	if err != nil || s.readOnly {
		return err
	}
	t := pebbleOptions(&s.o)
	t.FS = s.o.fs()
	t.EnsureDefaults() // MakeWriterOptions needs them
	s.table = t.MakeWriterOptions(0, s.db.TableFormat())
	s.table.DisableValueBlocks = true // as pebbleOptions has it for Pebble's own
	return s.syncFolder()
}

// syncFolder makes the names of what Open made durable. Where the folder above
// may not be read its sync is done without: a folder that is gone after a power
// failure is rebuilt.
func (s *Store) syncFolder() error {
	fsys := s.o.fs()
	if err := syncDir(fsys, fsys.PathDir(s.o.Dir)); err != nil {
		s.o.Logger.Debug("sync of the folder above the store failed", "err", err)
	}
	return syncDir(fsys, s.o.Dir)
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

// run flushes and sweeps until stop. The timer starts anew after each flush, so
// that two flushes are never closer together than FlushInterval, also when the
// process was paused between them.
func (s *Store) run() {
	defer close(s.done)
	timer := time.NewTimer(s.o.FlushInterval)
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case p := <-s.sweeps:
			p.sweepQueued.Store(false)
			if err := s.sweep(p); err != nil {
				s.o.Logger.Error("sweep of the store failed", "partition", p.id.String(), "err", err)
			}
		case <-timer.C:
			if err := s.Flush(); err != nil {
				s.o.Logger.Error("flush of the store failed", "err", err)
			}
			timer.Reset(s.o.FlushInterval)
		}
	}
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
// the same error. After a fatal error it returns that and leaves the database,
// whose locks may be held for ever, and the folder's lock to the end of the
// process.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.stop)
		if s.closeErr = s.events.err(); s.closeErr != nil {
			return
		}
		<-s.done
		var flushErr error
		if !s.readOnly {
			flushErr = s.Flush()
		}
		s.life.Lock()
		defer s.life.Unlock()
		s.closed = true
		s.closeErr = errors.Join(flushErr, s.db.Close(), s.lock.Close())
	})
	return s.closeErr
}

// ClusterID is the Kafka cluster the folder is bound to, empty if to none yet.
func (s *Store) ClusterID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.cluster
}

// BindCluster ties a new folder to the cluster id for good. A folder of another
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
			"(name another folder, or delete this one: it is rebuilt from Kafka): %w",
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

// Drop removes all that is held of a partition, like a Take and a Wipe: whoever
// had taken it gets ErrNotOwner from then on.
func (s *Store) Drop(id PartitionID) error {
	k := s.Partition(id).Take()
	defer k.Release()
	return k.Wipe()
}
