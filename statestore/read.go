package statestore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// slabSize is how many bytes of rows share one allocation. They stay in memory as long as one of their
// timers does.
const slabSize = 16 << 10

// enterRead enters the store to read the partition. Once that is loaded, readers do not wait for batches.
func (k *Handle) enterRead() error {
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

// LookupAll looks up many IDs. It sets refs[i] to what is pending under ids[i], timer.Absent for nothing,
// each as of some moment during the call. An absent ID costs a tenth of a microsecond if the partition has
// a filter of all its IDs. Otherwise it costs one or two, for the filters of the tables, and no I/O.
// Several goroutines may call it at the same time.
func (k *Handle) LookupAll(ids [][]byte, refs []timer.Ref) error {
	if err := k.enterRead(); err != nil {
		return err
	}
	defer k.p.s.leave()
	if err := errors.Join(k.lookUp(ids, refs), k.p.intact()); err != nil {
		return fmt.Errorf("look up timers in partition %s: %w", k.p.id, err)
	}
	return nil
}

func (k *Handle) lookUp(ids [][]byte, refs []timer.Ref) (err error) {
	f := k.p.ids.current.Load()
	if f == nil {
		k.p.ids.unansweredBy(len(ids))
	}
	var it *idIterator // nil until it is needed
	for i := 0; i < len(ids) && err == nil; i++ {
		if err := checkID(ids[i]); err != nil {
			return err
		}
		if refs[i] = timer.Absent; k.p.s.filters.denies(f, ids[i]) {
			continue
		}
		if it == nil {
			if it, err = newIDIterator(k.p.s.db); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, it.Close()) }()
		}
		var at Location
		at, err = it.seek(k.p.prefix, ids[i])
		refs[i] = at.ref
	}
	return err
}

// GetAll returns the timers that are pending under many IDs at one moment, nil for an ID under which none
// is, and which of them are parked. The timers are not shared with the store.
func (k *Handle) GetAll(ids [][]byte) (timers []*timer.Timer, parked []bool, err error) {
	if err := k.enterRead(); err != nil {
		return nil, nil, err
	}
	defer k.p.s.leave()
	it, err := newIDIterator(k.p.s.db)
	if err != nil {
		return nil, nil, fmt.Errorf("get timers of partition %s: %w", k.p.id, err)
	}
	timers, parked = make([]*timer.Timer, len(ids)), make([]bool, len(ids))
	for i := 0; i < len(ids) && err == nil; i++ {
		var at Location
		timers[i], at, err = it.timer(k.p.prefix, ids[i])
		parked[i] = at.target != 0
	}
	if err = errors.Join(err, it.Close(), k.p.intact()); err != nil {
		return nil, nil, fmt.Errorf("get timers of partition %s: %w", k.p.id, err)
	}
	return timers, parked, nil
}

// timer reads the ID row and the row that it names. One iterator sees both as they are at one
// moment.
func (it *idIterator) timer(p prefix, id []byte) (*timer.Timer, Location, error) {
	at, err := it.seek(p, id)
	if err != nil || at.ref.IsAbsent() {
		return nil, nowhere, err
	}
	key := appendRowKey(nil, p, at)
	if !it.SeekPrefixGE(key) || !bytes.Equal(it.Key(), key) {
		return nil, at, errors.Join(it.Error(), fmt.Errorf("timer %q has no row at %v: %w", id, at.ref, ErrCorrupt))
	}
	row, err := it.ValueAndErr()
	if err != nil {
		return nil, at, err
	}
	t, err := decodeTimer(bytes.Clone(row))
	return t, at, err
}

// idIterator looks IDs up, one after another.
type idIterator struct {
	*pebble.Iterator
	key []byte // reused: Pebble copies it
}

// newIDIterator makes an iterator that asks the filters of all tables: Pebble's Get
// never asks those of the lowest level, where nearly everything is.
func newIDIterator(db *pebble.DB) (*idIterator, error) {
	it, err := db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	return &idIterator{Iterator: it}, err
}

func (it *idIterator) seek(p prefix, id []byte) (Location, error) {
	if err := checkID(id); err != nil {
		return nowhere, err
	}
	it.key = appendIDKey(it.key[:0], p, id)
	if !it.SeekPrefixGE(it.key) {
		return nowhere, it.Error()
	}
	row, err := it.ValueAndErr()
	if err != nil {
		return nowhere, err
	}
	at, err := decodeLocation(row)
	if err != nil {
		return nowhere, fmt.Errorf("ID row: %w: %w", err, ErrCorrupt)
	}
	return at, nil
}

// decodeTimer reads the timer of a row. Errors wrap ErrNewerFormat or ErrCorrupt; in both cases the
// partition may be wiped.
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

// reader makes iterators: a database, a snapshot or a view.
type reader interface {
	NewIter(*pebble.IterOptions) (*pebble.Iterator, error)
}

// eachRow calls fn with the rows from a key up to another, in order, until fn returns an error. fn must keep neither
// key nor row.
func eachRow(r reader, from, to []byte, fn func(key, row []byte) error) error {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var row []byte
		if row, err = it.ValueAndErr(); err == nil {
			err = fn(it.Key(), row)
		}
	}
	return errors.Join(err, it.Error(), it.Close())
}

// dueIter makes an iterator over the rows by due time that come before the key end.
func (p *Partition) dueIter(end []byte) (*pebble.Iterator, error) {
	return p.s.db.NewIter(&pebble.IterOptions{LowerBound: p.prefix.key(kindDue), UpperBound: end})
}

// Scan returns the pending timers with from <= Ref < to that are not parked, in order. It stops after max timers
// or maxBytes of their rows, whichever comes first, but not before the first timer. It also returns the Ref to go
// on from, and whether [from, to) is exhausted. The timers are as they are at one moment, and are not shared with
// the store.
func (k *Handle) Scan(from, to timer.Ref, max int, maxBytes int64) (timers []*timer.Timer, next timer.Ref, done bool, err error) {
	defer func() {
		if err != nil {
			timers, next, done, err = nil, from, false, fmt.Errorf("scan partition %s: %w", k.p.id, err)
		}
	}()
	if err := k.enterRead(); err != nil {
		return nil, from, false, err
	}
	defer k.p.s.leave()
	var it *pebble.Iterator
	low := k.p.low.with(func() { it, err = k.p.dueIter(appendDueKey(nil, k.p.prefix, to)) })
	if err != nil {
		return nil, from, false, err
	}
	start := from
	if low.Compare(start) > 0 {
		start = low
	}
	next, done = to, true
	copies := arena{block: slabSize}
	for ok := it.SeekGE(appendDueKey(nil, k.p.prefix, start)); ok; ok = it.Next() {
		if len(timers) == max || maxBytes <= 0 {
			next, done = behind(timers[len(timers)-1]), false
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
		timers = append(timers, t)
		maxBytes -= int64(len(row))
	}
	return timers, next, done, errors.Join(it.Close(), k.p.intact())
}

// behind returns the first Ref after that of t.
func behind(t *timer.Timer) timer.Ref {
	at := t.Ref()
	at.Offset++
	return at
}
