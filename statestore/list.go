package statestore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// Partitions returns every partition with rows in the store, ordered by topic UUID and number.
func (s *Store) Partitions() (ids []PartitionID, err error) {
	err = eachPartition(context.Background(), s, func(id PartitionID, met error) error {
		ids = append(ids, id)
		return met
	})
	return ids, err
}

// eachPartition calls fn for each partition, with an error if something between it and the one before could not be
// read. It returns all errors of fn.
func eachPartition(ctx context.Context, s *Store, fn func(id PartitionID, met error) error) (errs error) {
	for from := (prefix{}); ; {
		if err := ctx.Err(); err != nil {
			return errors.Join(errs, err)
		}
		p, ok, err := partitionFrom(s, from)
		if !ok {
			return errors.Join(errs, err)
		}
		errs = errors.Join(errs, fn(p.id(), err))
		from = p.next()
	}
}

// partitionFrom returns the first partition that is not before from. If it cannot read that partition, it returns the
// error and its best guess: a partition that it could read, else the next one with which a table begins or ends.
func partitionFrom(s *Store, from prefix) (p prefix, ok bool, err error) {
	if err := s.enter(); err != nil {
		return p, false, err
	}
	defer s.leave()
	p, ok, err = firstIn(s.db, &pebble.IterOptions{LowerBound: from[:]})
	if ok || err == nil {
		return p, ok, err
	}
	tables, boundsErr := tableBounds(s.db)
	var ends []prefix
	for _, t := range tables {
		ends = append(ends, t.first, t.last)
	}
	ends = slices.DeleteFunc(ends, func(p prefix) bool { return p.compare(from) < 0 })
	if len(ends) == 0 {
		return p, false, errors.Join(err, boundsErr)
	}
	// The seek has read a table of each level, some of which may begin behind the bound.
	bound := slices.MinFunc(ends, prefix.compare)
	if p, ok, err = firstIn(s.db, &pebble.IterOptions{LowerBound: from[:], UpperBound: bound[:]}); !ok {
		p = bound
	}
	return p, true, errors.Join(err, boundsErr)
}

// firstIn returns the first partition within bounds.
func firstIn(db *pebble.DB, o *pebble.IterOptions) (p prefix, ok bool, err error) {
	it, err := db.NewIter(o)
	if err != nil {
		return p, false, fmt.Errorf("list partitions: %w", corrupt(err))
	}
	if it.First() {
		if ok = copy(p[:], it.Key()) == prefixSize; !ok {
			err = fmt.Errorf("list partitions: key %x: %w", it.Key(), ErrCorrupt)
		}
		return p, ok, errors.Join(err, it.Close())
	}
	if err = it.Close(); err != nil {
		err = fmt.Errorf("list partitions from %x: %w", o.LowerBound, corrupt(err))
	}
	return p, false, err
}

// bounds are the first and the last partition of a table.
type bounds struct{ first, last prefix }

// tableBounds returns the bounds of all tables. It reads no table.
func tableBounds(db *pebble.DB) (all []bounds, err error) {
	levels, err := db.SSTables()
	for _, tables := range levels {
		for _, t := range tables {
			var b bounds
			copy(b.first[:], t.Smallest.UserKey)
			copy(b.last[:], t.Largest.UserKey)
			all = append(all, b)
		}
	}
	return all, err
}

// Drop wipes a partition without an owner if old reports that it is too old, or if its meta row is corrupt. It reports
// whether it did. A caller that acquires the partition at the same time finds all of it or nothing.
func (s *Store) Drop(id PartitionID, old func(Meta) bool) (bool, error) {
	if s.readOnly {
		return false, fmt.Errorf("%s: %w", s.o.Dir, ErrReadOnly)
	}
	k := s.Partition(id).acquireIdle()
	if k == nil {
		return false, nil
	}
	defer k.Release()
	m, err := look(k)
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

// look is Meta for a caller that will not use the partition: nothing that it reads is kept in memory.
func look(k *Handle) (Meta, error) {
	if err := k.p.s.enter(); err != nil {
		return Meta{}, err
	}
	defer k.p.s.leave()
	k.p.write.Lock()
	defer k.p.write.Unlock()
	if err := k.check(); err != nil {
		return Meta{}, err
	}
	return metaLocked(k.p)
}

// Verify reads the whole partition and checks that its rows agree: the ID row of every row by due time, and of every
// parked row, points to it, and vice versa; there are as many as recorded; and none lies before its low bound. It takes
// seconds for a million timers and is for tests and tools. Errors wrap ErrCorrupt if rows are wrong, and ErrNewerFormat
// if this version cannot read them.
func (p *Partition) Verify() (Meta, error) {
	if err := p.s.enter(); err != nil {
		return Meta{}, err
	}
	defer p.s.leave()
	snap := p.s.db.NewSnapshot()
	m, err := verify(p, snap)
	if err = errors.Join(err, snap.Close()); err != nil {
		return m.Meta, fmt.Errorf("verify partition %s: %w", p.id, corrupt(err))
	}
	return m.Meta, nil
}

// VerifyAll verifies every partition in the store, one after the other. It calls fn, which may be nil, with the
// result of each, and returns all errors. If damage hides which partitions there are, it goes by the bounds of
// the tables.
func (s *Store) VerifyAll(ctx context.Context, fn func(PartitionID, Meta, error)) error {
	return eachPartition(ctx, s, func(id PartitionID, met error) error {
		m, err := s.Partition(id).Verify()
		if err == nil && met != nil {
			err = fmt.Errorf("verify partition %s: %w", id, met)
		}
		if fn != nil {
			fn(id, m, err)
		}
		return err
	})
}

// verify checks all rows as they are in the snapshot.
func verify(p *Partition, snap *pebble.Snapshot) (meta, error) {
	m, err := readMeta(snap, p.prefix)
	if err != nil {
		return m, err
	}
	v := verifier{snap: snap, p: p.prefix, low: m.low, parked: map[uint32]int64{}}
	v.misplaced = p.tallyFor(m.Partitions)
	if v.targets, err = readTargets(snap, p.prefix, &m); err != nil {
		return m, err
	}
	next := p.prefix.next()
	if err := eachRow(snap, p.prefix[:], next[:], v.row); err != nil {
		return m, err
	}
	return m, v.count(&m)
}

// verifier checks the rows of one partition.
type verifier struct {
	snap    *pebble.Snapshot
	p       prefix
	low     timer.Ref
	targets targets

	dues, ids int64
	misplaced tally
	parked    map[uint32]int64 // rows by number of the target
}

func (v *verifier) row(key, row []byte) error {
	if len(key) <= kindAt {
		return fmt.Errorf("key %x: %w", key, ErrCorrupt)
	}
	switch key[kindAt] {
	case kindDue, kindParked:
		return v.timer(key, row)
	case kindID:
		v.ids++
		id := key[idAt:]
		if checkID(id) != nil {
			return fmt.Errorf("key %x: %w", key, ErrCorrupt)
		}
		v.misplaced.add(id, timer.Absent, timer.Ref{})
		return nil
	case kindMeta, kindCheckpoint, kindTarget: // read before
		return nil
	}
	return fmt.Errorf("key %x: %w", key, ErrCorrupt)
}

// timer counts a timer's row, and checks that it has the right key and that its ID row points to it.
func (v *verifier) timer(key, row []byte) error {
	t, at, err := rowTimer(key, row)
	if err != nil {
		return fmt.Errorf("key %x: %w", key, err)
	}
	low := v.low
	if at.target == 0 {
		v.dues++
	} else {
		v.parked[at.target]++
		low = v.targets.byNumber[at.target].low
	}
	if at.ref.Compare(low) < 0 {
		return fmt.Errorf("key %x holds the timer %q of %v, low bound %v: %w", key, t.ID, at.ref, low, ErrCorrupt)
	}
	idRow, err := get(v.snap, appendIDKey(nil, v.p, t.ID))
	if err != nil {
		return err
	}
	if back, err := decodeLocation(idRow); err != nil || back != at {
		return fmt.Errorf("key %x holds the timer %q, whose ID row points to %+v: %w", key, t.ID, back, ErrCorrupt)
	}
	return nil
}

// count compares the numbers of rows. Each timer's row has its own ID row, so if the numbers are equal, no ID row is
// without a timer.
func (v *verifier) count(m *meta) error {
	if v.dues+m.Parked != v.ids || v.ids != m.Pending {
		return fmt.Errorf("%d rows by due time, %d parked, %d by ID, %d pending: %w",
			v.dues, m.Parked, v.ids, m.Pending, ErrCorrupt)
	}
	if v.misplaced.partitions != 0 && v.misplaced.change != m.Misplaced {
		return fmt.Errorf("%d IDs belong on another of %d partitions, %d recorded: %w", v.misplaced.change,
			m.Partitions, m.Misplaced, ErrCorrupt)
	}
	for number, t := range v.targets.byNumber {
		if v.parked[number] != t.count {
			return fmt.Errorf("%d parked rows for %s, %d recorded: %w", v.parked[number], t.name, t.count, ErrCorrupt)
		}
		delete(v.parked, number)
	}
	for number, n := range v.parked {
		return fmt.Errorf("%d parked rows for unknown target %d: %w", n, number, ErrCorrupt)
	}
	return nil
}
