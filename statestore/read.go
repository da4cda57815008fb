package statestore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// The bounds of one Scan where the caller gives none.
const (
	defaultScanRows  = 10_000
	defaultScanBytes = 8 << 20

	// slabSize is how many bytes of rows share one allocation, and hence are
	// in memory as long as one timer of them is.
	slabSize = 16 << 10
)

// enterRead opens the store and the partition for reading. Readers do not wait
// for batches.
func (k *Take) enterRead() error {
	if err := k.p.s.enter(); err != nil {
		return err
	}
	err := errors.Join(k.check(), k.p.intact())
	if err == nil && !k.p.loaded.Load() {
		k.p.write.Lock()
		err = k.p.loadLocked()
		k.p.write.Unlock()
	}
	if err != nil {
		k.p.s.leave()
	}
	return err
}

// Lookup returns what is pending under id, timer.Absent for nothing. An ID that
// is not there costs a probe of the table filters, about a microsecond, and no
// I/O. It may be called at the same time by several goroutines.
func (k *Take) Lookup(id []byte) (timer.Ref, error) {
	if err := k.enterRead(); err != nil {
		return timer.Absent, err
	}
	defer k.p.s.leave()
	it, err := k.p.s.idIter()
	if err != nil {
		return timer.Absent, fmt.Errorf("look up timer in partition %s: %w", k.p.id, err)
	}
	at, err := seekID(it, k.p.prefix, id)
	if err = errors.Join(err, it.Close(), k.p.intact()); err != nil {
		return timer.Absent, fmt.Errorf("look up timer in partition %s: %w", k.p.id, err)
	}
	return at.ref, nil
}

// LookupAll looks up many IDs at one moment: refs[i] becomes what is pending
// under ids[i]. It costs half of as many Lookups, and less if ids are sorted.
func (k *Take) LookupAll(ids [][]byte, refs []timer.Ref) error {
	if err := k.enterRead(); err != nil {
		return err
	}
	defer k.p.s.leave()
	it, err := k.p.s.idIter()
	if err != nil {
		return fmt.Errorf("look up timers in partition %s: %w", k.p.id, err)
	}
	for i := 0; i < len(ids) && err == nil; i++ {
		var at place
		at, err = seekID(it, k.p.prefix, ids[i])
		refs[i] = at.ref
	}
	if err = errors.Join(err, it.Close(), k.p.intact()); err != nil {
		return fmt.Errorf("look up timers in partition %s: %w", k.p.id, err)
	}
	return nil
}

// Get returns the timer that is pending under id, nil for none.
func (k *Take) Get(id []byte) (*timer.Timer, error) {
	if err := k.enterRead(); err != nil {
		return nil, err
	}
	defer k.p.s.leave()
	it, err := k.p.s.idIter()
	if err != nil {
		return nil, fmt.Errorf("get timer of partition %s: %w", k.p.id, err)
	}
	t, err := getTimer(it, k.p.prefix, id)
	if err = errors.Join(err, it.Close(), k.p.intact()); err != nil {
		return nil, fmt.Errorf("get timer of partition %s: %w", k.p.id, err)
	}
	return t, nil
}

// idIter makes an iterator that asks the filters of all tables: Pebble's Get
// never asks those of the lowest level, where nearly everything is.
func (s *Store) idIter() (*pebble.Iterator, error) {
	return s.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
}

func seekID(it *pebble.Iterator, p prefix, id []byte) (place, error) {
	if err := checkID(id); err != nil {
		return nowhere, err
	}
	var buf [idAt + 64]byte // longer IDs allocate
	key := appendIDKey(buf[:0], p, id)
	if !it.SeekPrefixGE(key) {
		return nowhere, it.Error()
	}
	row, err := it.ValueAndErr()
	if err != nil {
		return nowhere, err
	}
	at, err := decodePlace(row)
	if err != nil {
		return nowhere, fmt.Errorf("ID row: %w: %w", err, ErrCorrupt)
	}
	return at, nil
}

func getTimer(it *pebble.Iterator, p prefix, id []byte) (*timer.Timer, error) {
	at, err := seekID(it, p, id)
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

// decodeTimer reads the timer of a row. Errors wrap ErrNewerFormat or ErrCorrupt:
// the partition may be wiped.
func decodeTimer(row []byte) (*timer.Timer, error) {
	t, err := timer.Decode(row)
	switch {
	case errors.Is(err, timer.ErrNewerFormat):
		return nil, fmt.Errorf("%w: %w", err, ErrNewerFormat)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	return t, nil
}

// dueIter makes an iterator over the rows by due time before the key end.
func (p *Partition) dueIter(end []byte) (*pebble.Iterator, error) {
	return p.s.db.NewIter(&pebble.IterOptions{LowerBound: p.prefix.key(kindDue), UpperBound: end})
}

// Scan calls fn for the pending timers with from <= Ref < to, in order, until it
// has had max of them or maxBytes of their rows, whichever is first; at least
// one if there is any; zero or less stands for 10,000 and 8 MB. It returns the
// Ref to go on from, and whether [from, to) is exhausted. If fn fails, Scan
// returns its error and the Ref of the timer that fn had.
//
// What fn sees is the state at one moment. fn may use the take, also to apply:
// nothing is held while it runs. Timers are not shared with the store.
func (k *Take) Scan(from, to timer.Ref, max int, maxBytes int64, fn func(*timer.Timer) error) (next timer.Ref, done bool, err error) {
	rows, next, done, err := k.scan(from, to, max, maxBytes)
	if err != nil {
		return from, false, fmt.Errorf("scan partition %s: %w", k.p.id, err)
	}
	for _, t := range rows {
		if err := fn(t); err != nil {
			return t.Ref(), false, err
		}
	}
	return next, done, nil
}

func (k *Take) scan(from, to timer.Ref, max int, maxBytes int64) (rows []*timer.Timer, next timer.Ref, done bool, err error) {
	if max <= 0 {
		max = defaultScanRows
	}
	if maxBytes <= 0 {
		maxBytes = defaultScanBytes
	}
	if err := k.enterRead(); err != nil {
		return nil, from, false, err
	}
	defer k.p.s.leave()
	it, err := k.p.dueIter(appendDueKey(nil, k.p.prefix, to))
	if err != nil {
		return nil, from, false, err
	}
	// The bound is read after the snapshot was taken: it lies before all rows
	// of it but those deleted since.
	start := from
	if low := k.p.low.get(); low.Compare(start) > 0 {
		start = low
	}
	next, done = to, true
	var copies slab
	for ok := it.SeekGE(appendDueKey(nil, k.p.prefix, start)); ok; ok = it.Next() {
		if len(rows) == max || maxBytes <= 0 {
			next, done = behind(rows[len(rows)-1]), false
			break
		}
		row, err := it.ValueAndErr()
		if err != nil {
			return nil, from, false, errors.Join(err, it.Close())
		}
		t, err := decodeTimer(copies.copy(row))
		if err != nil {
			return nil, from, false, errors.Join(fmt.Errorf("row %x: %w", it.Key()[idAt:], err), it.Close())
		}
		rows = append(rows, t)
		maxBytes -= int64(len(row))
	}
	return rows, next, done, errors.Join(it.Close(), k.p.intact())
}

// behind is the first Ref after t's.
func behind(t *timer.Timer) timer.Ref { return timer.Ref{Due: t.Due, Offset: t.Offset + 1} }

// slab copies byte slices into few allocations.
type slab struct{ free []byte }

func (s *slab) copy(b []byte) []byte {
	if len(b) > slabSize/4 {
		return bytes.Clone(b)
	}
	if len(b) > cap(s.free)-len(s.free) {
		s.free = make([]byte, 0, slabSize)
	}
	n := len(s.free)
	s.free = append(s.free, b...)
	return s.free[n:len(s.free):len(s.free)]
}
