package statestore

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/semaphore"
)

// Open opens the store in o.Dir, or creates an empty one. Errors may wrap ErrInUse, ErrNewerFormat or
// ErrForeignDirectory.
func Open(o Options) (_ *Store, err error) {
	s := newStore(o)
	o = s.o
	if err := o.fs().MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if s.lock, err = lockDirectory(o.fs(), o.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.closed = true
			s.lock.Close()
		}
		close(s.opened)
	}()
	for _, open := range []func() error{s.openIdentity, s.openTables, s.openDatabase} {
		if err := open(); err != nil {
			return nil, fmt.Errorf("open store in %s: %w", o.Dir, err)
		}
	}
	s.upkeep.tasks.Go(s.upkeep.run)
	return s, nil
}

func newStore(o Options) *Store {
	o = o.withDefaults()
	s := &Store{
		o:           o,
		events:      &events{log: o.Logger, onFatal: o.OnFatal, dead: make(chan struct{})},
		partitions:  make(map[PartitionID]*Partition),
		compactions: newCompactions(),
		roomLayers:  roomLayers,
		opened:      make(chan struct{}),
	}
	s.upkeep.init(s)
	s.close = sync.OnceValue(s.closeOnce)
	f := &s.filters
	f.seed, f.share, f.learnRows = maphash.MakeSeed(), int64(o.Memory/filterPart), learnRows
	s.tables.leastIDs, s.tables.turns = tableIDs, make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
	s.events.onDamage = (&damage{s: s}).met
	return s
}

// OpenReadOnly opens the store in o.Dir without changing anything in it. Like Open it needs the directory for
// itself. Calls that would change the store return ErrReadOnly, as do methods of a Handle that lock the partition,
// even Meta. Damage is returned to the reader, without a call of o.OnFatal.
//
// Errors may wrap ErrInUse, ErrNewerFormat, ErrCorrupt or ErrForeignDirectory, the last one also if the
// directory is empty.
func OpenReadOnly(o Options) (_ *Store, err error) {
	s := newStore(o)
	o = s.o
	s.readOnly = true
	s.events.onDamage = func(pebble.DataCorruptionInfo) {} // the reader gets the error, and nothing is thrown away
	id, err := readIdentity(o.fs(), o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open store in %s: %w", o.Dir, err)
	}
	if id == nil {
		return nil, fmt.Errorf("open store in %s: no %s: %w", o.Dir, identityFile, ErrForeignDirectory)
	}
	s.identity = *id
	if _, err := o.fs().Stat(o.fs().PathJoin(o.Dir, databaseDir)); err != nil {
		return nil, fmt.Errorf("open store: %w", err) // Open was interrupted before it created the database
	}
	if s.lock, err = lockDirectory(o.fs(), o.Dir); err != nil {
		return nil, err
	}
	if err := s.openDatabase(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store in %s: %w", o.Dir, corrupt(err)), s.lock.Close())
	}
	return s, nil
}

func lockDirectory(fsys vfs.FS, dir string) (io.Closer, error) {
	lock, err := fsys.Lock(fsys.PathJoin(dir, lockFile))
	if err == nil {
		return lock, nil
	}
	// A path error is about the file, any other error about the lock.
	if _, file := errors.AsType[*fs.PathError](err); file {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return nil, fmt.Errorf("open store: %s: %w", dir, ErrInUse)
}

// openIdentity reads the STORE file. In a new directory it writes it before any other file, so a directory with a
// database and without STORE is not ours.
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
		return fmt.Errorf("%s without %s: %w", databaseDir, identityFile, ErrForeignDirectory)
	}
	s.identity = newIdentity()
	return s.identity.write(s.o.fs(), s.o.Dir)
}

// openTables creates the directory for tables and empties it after a crash.
func (s *Store) openTables() error {
	fsys := s.o.fs()
	dir := fsys.PathJoin(s.o.Dir, tablesDir)
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	names, err := fsys.List(dir)
	for _, name := range names {
		err = errors.Join(err, fsys.Remove(fsys.PathJoin(dir, name)))
	}
	return err
}

func (s *Store) openDatabase() (err error) {
	room := int64(s.o.Memory - s.o.Memory/filterPart)
	s.cache = pebble.NewCache(room)
	s.inputs = newInputs(s.cache, int(room))
	s.scans = semaphore.NewWeighted(room / scansPart)
	defer func() {
		if r := recover(); r != nil {
			fatal, ok := r.(*fatalError)
			if !ok {
				panic(r)
			}
			err = fatal
		}
		if err != nil {
			s.cache.Unref()
		}
		s.events.opening.Store(false)
	}()
	s.events.opening.Store(true)
	p := pebbleOptions(&s.o)
	p.Cache = s.cache
	p.FS = s.o.FS // if nil, Pebble uses its own, and watches for slow disks
	p.Logger = s.events
	p.EventListener = s.events.listener(s.inputs)
	p.ReadOnly = s.readOnly
	p.Experimental.CompactionScheduler = s.compactions
	s.db, err = pebble.Open(s.o.fs().PathJoin(s.o.Dir, databaseDir), p)
	if err != nil || s.readOnly {
		return err
	}
	s.compactions.replaying(s.level0Layers()) // as the last process left them
	t := pebbleOptions(&s.o)
	t.FS = s.o.fs()
	t.EnsureDefaults() // MakeWriterOptions needs them
	s.tables.options = t.MakeWriterOptions(0, s.db.TableFormat())
	s.tables.options.DisableValueBlocks = true // as pebbleOptions has it for Pebble's own
	return s.syncDirectory()
}

// syncDirectory makes the names of new files durable. If the parent directory cannot be read, its sync is left
// out: a directory that a power failure removes is rebuilt.
func (s *Store) syncDirectory() error {
	fsys := s.o.fs()
	if err := syncDir(fsys, fsys.PathDir(s.o.Dir)); err != nil {
		s.o.Logger.Debug("sync of the directory above the store failed", "err", err)
	}
	return syncDir(fsys, s.o.Dir)
}

// Close flushes, waits for calls in progress and for open views, and closes the store. Changes that are applied while
// it runs may not reach the disk. Once it has returned, every call returns ErrClosed. Further calls of Close return the
// same error and do nothing. After a fatal error, even one during the call, Close returns that error and leaves the
// database alone, because its locks may be held forever. The directory then stays locked until the process ends.
func (s *Store) Close() error { return s.close() }

func (s *Store) closeOnce() error {
	s.upkeep.tasks.Cancel()
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
	s.upkeep.tasks.Wait()
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

// BindCluster binds a new directory to a cluster permanently. It returns ErrForeignCluster if the directory
// belongs to another one.
func (s *Store) BindCluster(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !validCluster(id):
		return fmt.Errorf("bind store in %s: %q is not a valid cluster ID", s.o.Dir, id)
	case s.identity.cluster == id:
		return nil
	case s.identity.cluster != "":
		return fmt.Errorf("store in %s belongs to cluster %s, not to %s "+
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
	// would hold up every later call. A view is frozen, and Close waits for it.
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
