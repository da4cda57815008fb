package statestore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/waterclock/waterclock/internal/timer"
)

// Get returns the timer that is pending under id, nil for none.
func (k *Handle) Get(id []byte) (*timer.Timer, error) {
	if err := k.enterRead(); err != nil {
		return nil, err
	}
	defer k.p.s.leave()
	it, err := newIDIterator(k.p.s.db)
	if err != nil {
		return nil, fmt.Errorf("get timer of partition %s: %w", k.p.id, err)
	}
	t, err := getTimer(it, k.p.prefix, id)
	if err = errors.Join(err, it.Close(), k.p.intact()); err != nil {
		return nil, fmt.Errorf("get timer of partition %s: %w", k.p.id, err)
	}
	return t, nil
}

func getTimer(it *idIterator, p prefix, id []byte) (*timer.Timer, error) {
	at, err := it.seek(p, id)
	if err != nil || at.ref.IsAbsent() {
		return nil, err
	}
	key := appendRowKey(nil, p, at)
	if !it.SeekGE(key) || !bytes.Equal(it.Key(), key) {
		return nil, errors.Join(it.Error(), fmt.Errorf("no row at due %d, offset %d: %w", at.ref.Due, at.ref.Offset, ErrCorrupt))
	}
	row, err := it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	return decodeTimer(bytes.Clone(row))
}

// Lookup is LookupAll of one ID, for tests.
func (k *Handle) Lookup(id []byte) (timer.Ref, error) {
	refs := []timer.Ref{timer.Absent}
	err := k.LookupAll([][]byte{id}, refs)
	return refs[0], err
}
