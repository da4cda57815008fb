package statestore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// Verify reads the whole partition and checks what always holds of its rows:
// every row by due time is a timer that its ID row points to and the other way
// round, their number is the one recorded, and none lies before the low bound.
// It takes seconds per million timers and is for tests and tools. Errors wrap
// ErrCorrupt.
func (p *Partition) Verify() (Meta, error) {
	if err := p.s.enter(); err != nil {
		return Meta{}, err
	}
	defer p.s.leave()
	snap := p.s.db.NewSnapshot()
	m, err := p.verify(snap)
	if err = errors.Join(err, snap.Close()); err != nil {
		return m.Meta, fmt.Errorf("verify partition %s: %w", p.id, err)
	}
	return m.Meta, nil
}

func (p *Partition) verify(snap *pebble.Snapshot) (meta, error) {
	m, err := p.readMeta(snap)
	if err != nil {
		return m, err
	}
	next := p.prefix.next()
	it, err := snap.NewIter(&pebble.IterOptions{LowerBound: p.prefix[:], UpperBound: next[:]})
	if err != nil {
		return m, err
	}
	var dues, ids int64
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		switch key := it.Key(); key[kindAt] {
		case kindDue:
			dues++
			err = verifyDue(snap, p.prefix, m.low, key, it.Value())
		case kindID:
			ids++
		case kindMeta, kindCheckpoint:
		default:
			err = fmt.Errorf("key %x: %w", key, ErrCorrupt)
		}
	}
	if err = errors.Join(err, it.Close()); err != nil {
		return m, err
	}
	// Each row by due time has an ID row of its own, so equal numbers mean that
	// there is no ID row without one.
	if dues != ids || dues != m.Pending {
		return m, fmt.Errorf("%d rows by due time, %d by ID, %d pending: %w", dues, ids, m.Pending, ErrCorrupt)
	}
	return m, nil
}

func verifyDue(snap *pebble.Snapshot, p prefix, low timer.Ref, key, row []byte) error {
	ref, err := decodeRef(key[idAt:])
	if err != nil {
		return fmt.Errorf("key %x: %w: %w", key, err, ErrCorrupt)
	}
	t, err := timer.Decode(bytes.Clone(row))
	if err != nil {
		return fmt.Errorf("row at %v: %w: %w", ref, err, ErrCorrupt)
	}
	if t.Ref() != ref || ref.Compare(low) < 0 {
		return fmt.Errorf("row at %v holds a timer of %v, low bound %v: %w", ref, t.Ref(), low, ErrCorrupt)
	}
	idRow, err := get(snap, appendIDKey(nil, p, t.ID))
	if err != nil {
		return err
	}
	if back, err := decodeRef(idRow); err != nil || back != ref {
		return fmt.Errorf("row at %v, ID row points to %v: %w", ref, back, ErrCorrupt)
	}
	return nil
}
