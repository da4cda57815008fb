package statestore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
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
