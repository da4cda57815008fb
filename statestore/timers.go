package statestore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// Timers says how far the fold of a partition is, Position -1 if the store holds
// nothing of it, and calls fn, if there is one, with every timer that is pending
// there, in no order. It is for tools: it reads the whole partition. Errors wrap
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
