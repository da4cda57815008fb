package statestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// A scan of rows calls eachRow or walk. Scans of one partition as it is now are in this file, scans of a View in
// view.go, and scans of the whole store in partitions.go, verify.go and dump.go. Only a View, which merges rows of
// several targets, and Park and Unpark, which change the rows that they meet, move their iterators themselves.

// reader makes iterators: a database, a snapshot, or frozen rows of a View.
type reader interface {
	NewIter(*pebble.IterOptions) (*pebble.Iterator, error)
}

// eachRow calls fn with the rows from a key up to another, in order, until fn returns false or an error. fn must keep
// neither key nor row.
func eachRow(r reader, from, to []byte, fn func(key, row []byte) (more bool, err error)) error {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	return walk(it, fn)
}

// walk is eachRow for all rows of an iterator, which it closes.
func walk(it *pebble.Iterator, fn func(key, row []byte) (more bool, err error)) (err error) {
	more := true
	for ok := it.First(); ok && more && err == nil; ok = more && it.Next() {
		var row []byte
		if row, err = it.ValueAndErr(); err == nil {
			more, err = fn(it.Key(), row)
		}
	}
	return errors.Join(err, it.Close())
}

// Scan returns the pending timers with from <= Ref < to that are not parked, in order. It stops after max timers
// or maxBytes of their rows, whichever comes first, but not before the first timer. It also returns the Ref to go
// on from, and whether [from, to) is exhausted. The timers are as they are at one moment, and are not shared with
// the store.
func (h *Handle) Scan(
	from, to timer.Ref, max int, maxBytes int64) (timers []*timer.Timer, next timer.Ref, done bool, err error) {
	defer func() {
		if err != nil {
			timers, next, done, err = nil, from, false, h.p.during("scan", err)
		}
	}()
	defer h.p.s.scanInTurn()()
	if err := h.enterRead(); err != nil {
		return nil, from, false, err
	}
	defer h.p.s.leave()
	var it *pebble.Iterator
	h.p.low.with(func(low timer.Ref) { it, err = dueIter(h.p.s.db, h.p.prefix, later(from, low), to) })
	if err != nil {
		return nil, from, false, err
	}
	next, done = to, true
	copies := arena{block: slabSize}
	err = walk(it, func(key, row []byte) (bool, error) {
		if len(timers) > 0 && (len(timers) >= max || maxBytes <= 0) {
			next, done = behind(timers[len(timers)-1].Ref()), false
			return false, nil
		}
		t, err := decodeTimer(copies.copy(row))
		if err != nil {
			return false, fmt.Errorf("row %x: %w", key[idAt:], err)
		}
		timers = append(timers, t)
		maxBytes -= int64(len(row))
		return true, nil
	})
	return timers, next, done, errors.Join(err, h.p.intact())
}

// dueIter makes an iterator over the rows by due time of a partition from one Ref up to another.
func dueIter(r reader, p prefix, from, to timer.Ref) (*pebble.Iterator, error) {
	if from.Compare(to) > 0 {
		from = to
	}
	return r.NewIter(&pebble.IterOptions{LowerBound: appendDueKey(nil, p, from), UpperBound: appendDueKey(nil, p, to)})
}

// later returns the later of two Refs.
func later(a, b timer.Ref) timer.Ref {
	if a.Compare(b) < 0 {
		return b
	}
	return a
}

// scansPart: scans of large rows may hold one part in scansPart of the cache at a time.
const scansPart = 2

// scanInTurn waits until a scan may begin, and returns the function that ends it.
//
// An iterator holds a block of each layer from its first seek on, even if it finds nothing there, and a block is as
// large as its row. Blocks that it holds count in memory when the cache has dropped them. All partitions of an instance
// scan for due timers at about the same time: with rows of a MiB, ten layers and 128 partitions, twenty scans were seen
// to hold 100 MiB together. So scans of large rows take turns. A scan waits for nothing but the disk, so each of them
// ends.
func (s *Store) scanInTurn() (end func()) {
	largest := s.inputs.largest.Load()
	if largest <= blockSize {
		return func() {}
	}
	n := min(largest*compactLayers, int64(s.inputs.size/scansPart))
	_ = s.scans.Acquire(context.Background(), n) // fails only if the context ends
	return func() { s.scans.Release(n) }
}

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
		err := eachRow(s.db, p.prefix.key(kind), p.prefix.key(kind+1), func(_, row []byte) (bool, error) {
			t, err := decodeTimer(bytes.Clone(row))
			if err == nil {
				err = fn(t)
			}
			return true, err
		})
		if err != nil {
			return m.Meta, fmt.Errorf("read partition %s: %w", id, corrupt(err))
		}
	}
	return m.Meta, nil
}

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
