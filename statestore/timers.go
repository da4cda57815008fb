package statestore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// Timers returns how far a partition is; Position is -1 if the store holds nothing of it. It calls fn, which may be
// nil, with every pending timer, in no order. It reads the whole partition and is for tools. Errors wrap
// ErrCorrupt or ErrNewerFormat, or are those of fn.
func (s *Store) Timers(id PartitionID, fn func(*timer.Timer) error) (Meta, error) {
	if err := s.enter(); err != nil {
		return Meta{Position: noPosition}, err
	}
	defer s.leave()
	p := s.Partition(id)
	m, err := readMeta(s.db, p.prefix)
	if err != nil || fn == nil {
		return m.Meta, err
	}
	for _, kind := range []byte{kindDue, kindParked} {
		if err := timersOf(s.db, p.prefix, kind, fn); err != nil {
			return m.Meta, fmt.Errorf("read partition %s: %w", id, corrupt(err))
		}
	}
	return m.Meta, nil
}

func timersOf(db *pebble.DB, p prefix, kind byte, fn func(*timer.Timer) error) error {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: p.key(kind), UpperBound: p.key(kind + 1)})
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var row []byte
		var t *timer.Timer
		if row, err = it.ValueAndErr(); err == nil {
			t, err = decodeTimer(bytes.Clone(row))
		}
		if err == nil {
			err = fn(t)
		}
	}
	return errors.Join(err, it.Error(), it.Close())
}
