package statestore

import "errors"

// Drop wipes a partition that nobody has acquired if old says that it is too old, or if its meta row is corrupt. It
// reports whether it did. A caller that acquires the partition meanwhile finds all of it or nothing.
func (s *Store) Drop(id PartitionID, old func(Meta) bool) (bool, error) {
	k := s.Partition(id).acquireIdle()
	if k == nil {
		return false, nil
	}
	defer k.Release()
	m, err := k.Meta()
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
