package statestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// get returns a copy of a row, or nil if there is none.
func get(r pebble.Reader, key []byte) ([]byte, error) {
	row, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	row = append([]byte{}, row...)
	return row, closer.Close()
}

// reader makes iterators: a database, a snapshot, or frozen rows of a View.
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
	return errors.Join(err, it.Close())
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

// rowTimer reads the timer of a row by due time, or of a parked row, and where the row lies. Errors are those of
// decodeTimer, or wrap ErrCorrupt if the row has the key of another timer.
func rowTimer(key, row []byte) (t *timer.Timer, at Location, err error) {
	if t, err = decodeTimer(bytes.Clone(row)); err != nil {
		return nil, at, err
	}
	at.ref = t.Ref()
	if key[kindAt] == kindParked && len(key) == parkedKeySize {
		at.target = binary.BigEndian.Uint32(key[numberAt:])
	}
	if !bytes.Equal(key, appendRowKey(nil, prefix(key[:prefixSize]), at)) {
		return nil, at, fmt.Errorf("the timer is of due %d, offset %d: %w", t.Due, t.Offset, ErrCorrupt)
	}
	return t, at, nil
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
