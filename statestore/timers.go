package statestore

import (
	"bytes"
	"fmt"

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
		err := eachRow(s.db, p.prefix.key(kind), p.prefix.key(kind+1), func(_, row []byte) error {
			t, err := decodeTimer(bytes.Clone(row))
			if err != nil {
				return err
			}
			return fn(t)
		})
		if err != nil {
			return m.Meta, fmt.Errorf("read partition %s: %w", id, corrupt(err))
		}
	}
	return m.Meta, nil
}
