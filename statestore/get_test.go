package statestore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/waterclock/waterclock/internal/timer"
)

// Get returns the timer that is pending under id, nil for none.
func (h *Handle) Get(id []byte) (*timer.Timer, error) {
	if err := h.enterRead(); err != nil {
		return nil, err
	}
	defer h.p.s.leave()
	it, err := newIDIterator(h.p.s.db)
	if err != nil {
		return nil, fmt.Errorf("get timer of partition %s: %w", h.p.id, err)
	}
	t, err := getTimer(it, h.p.prefix, id)
	if err = errors.Join(err, it.Close(), h.p.intact()); err != nil {
		return nil, fmt.Errorf("get timer of partition %s: %w", h.p.id, err)
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
		return nil, errors.Join(
			it.Error(), fmt.Errorf("no row at due %d, offset %d: %w", at.ref.Due, at.ref.Offset, ErrCorrupt))
	}
	row, err := it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	return decodeTimer(bytes.Clone(row))
}

// Lookup is LookupAll of one ID, for tests.
func (h *Handle) Lookup(id []byte) (timer.Ref, error) {
	refs := []timer.Ref{timer.Absent}
	err := h.LookupAll([][]byte{id}, refs)
	return refs[0], err
}
