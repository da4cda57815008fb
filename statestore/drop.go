package statestore

import (
	"errors"
	"fmt"
)

// Drop wipes a partition that nobody has acquired if old says that it is too old, or if its meta row is corrupt. It
// reports whether it did. A caller that acquires the partition meanwhile finds all of it or nothing.
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
