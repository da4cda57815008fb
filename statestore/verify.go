package statestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

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

func (v *verifier) row(key, row []byte) (bool, error) {
	kind := byte(0)
	if len(key) > kindAt {
		kind = key[kindAt]
	}
	switch {
	case kind == kindDue, kind == kindParked:
		return true, v.timer(key, row)
	case kind == kindID && checkID(key[idAt:]) == nil:
		v.ids++
		v.misplaced.add(key[idAt:], timer.Absent, timer.Ref{})
	case kind == kindMeta, kind == kindCheckpoint, kind == kindTarget: // read before
	default:
		return false, fmt.Errorf("key %x: %w", key, ErrCorrupt)
	}
	return true, nil
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
