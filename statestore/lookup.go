package statestore

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// enterRead enters the store to read the partition. Once that is loaded, readers do not wait for batches.
func (h *Handle) enterRead() error {
	if err := h.p.s.enter(); err != nil {
		return err
	}
	err := errors.Join(h.check(), h.p.intact())
	if err == nil && !h.p.loaded.Load() {
		h.p.write.Lock()
		err = h.p.loadLocked()
		h.p.write.Unlock()
	}
	if err != nil {
		h.p.s.leave()
	}
	return err
}

// LookupAll looks up many IDs. It sets refs[i] to the pending timer of ids[i], timer.Absent if there is none, each as
// of some moment during the call. An absent ID costs a tenth of a microsecond if the partition has a filter of all its
// IDs. Otherwise it costs one or two, for the filters of the tables, and no I/O. Several goroutines may call it at the
// same time.
func (h *Handle) LookupAll(ids [][]byte, refs []timer.Ref) error {
	if err := h.enterRead(); err != nil {
		return err
	}
	defer h.p.s.leave()
	return h.p.during("look up timers in", errors.Join(lookUp(h.p, ids, refs), h.p.intact()))
}

func lookUp(p *Partition, ids [][]byte, refs []timer.Ref) (err error) {
	f := p.ids.current.Load()
	if f == nil {
		p.ids.unansweredBy(len(ids))
	}
	var it *idIterator // nil until it is needed
	for i := 0; i < len(ids) && err == nil; i++ {
		if err := checkID(ids[i]); err != nil {
			return err
		}
		if refs[i] = timer.Absent; p.s.filters.denies(f, ids[i]) {
			continue
		}
		if it == nil {
			if it, err = newIDIterator(p.s.db); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, it.Close()) }()
		}
		var at Location
		at, err = it.seek(p.prefix, ids[i])
		refs[i] = at.ref
	}
	return err
}

// GetAll returns the timers that are pending under many IDs at one moment, nil for an ID under which none
// is, and which of them are parked. The timers are not shared with the store.
func (h *Handle) GetAll(ids [][]byte) (timers []*timer.Timer, parked []bool, err error) {
	timers, parked = make([]*timer.Timer, len(ids)), make([]bool, len(ids))
	err = h.eachID(ids, "get timers of", func(it *idIterator, i int) (err error) {
		var at Location
		timers[i], at, err = it.timer(h.p.prefix, ids[i])
		parked[i] = at.Parked()
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return timers, parked, nil
}

// eachID calls fn with an iterator and the number of each ID, all as they are at one moment.
func (h *Handle) eachID(ids [][]byte, what string, fn func(it *idIterator, i int) error) error {
	if err := h.enterRead(); err != nil {
		return err
	}
	defer h.p.s.leave()
	it, err := newIDIterator(h.p.s.db)
	if err != nil {
		return h.p.during(what, err)
	}
	for i := 0; i < len(ids) && err == nil; i++ {
		err = fn(it, i)
	}
	return h.p.during(what, errors.Join(err, it.Close(), h.p.intact()))
}

// LabelsOf returns the labels of the timers that are pending under IDs, by ID; those without labels are left out.
func (h *Handle) LabelsOf(ids [][]byte) (all map[string]timer.Labels, err error) {
	err = h.eachID(ids, "get labels of", func(it *idIterator, i int) error {
		row, _, err := it.row(h.p.prefix, ids[i])
		if err != nil || row == nil {
			return err
		}
		t, err := decodeTimer(row)
		if err == nil && t.Labels != "" {
			if all == nil {
				all = make(map[string]timer.Labels)
			}
			all[string(ids[i])] = timer.Labels(strings.Clone(string(t.Labels)))
		}
		return err
	})
	return all, err
}

// Find returns the timer that is pending under an ID, nil for none, and the name of the target for which it is parked,
// empty for none. If it returns no error, no other caller had acquired the partition before the timer was read.
func (h *Handle) Find(id []byte) (t *timer.Timer, parkedFor string, err error) {
	err = h.eachID([][]byte{id}, "find a timer of", func(it *idIterator, _ int) (err error) {
		var at Location
		if t, at, err = it.timer(h.p.prefix, id); err == nil && at.Parked() {
			parkedFor, err = it.targetName(h.p.prefix, at.target)
		}
		return err
	})
	if err = errors.Join(err, h.check()); err != nil {
		return nil, "", err
	}
	return t, parkedFor, nil
}

// idIterator looks IDs up, one after another.
type idIterator struct {
	*pebble.Iterator
	key []byte // reused: Pebble copies it
}

// newIDIterator makes an iterator that asks the filters of all tables: Pebble's Get never asks those of the lowest
// level, where nearly everything is.
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

// timer reads the timer that is pending under an ID.
func (it *idIterator) timer(p prefix, id []byte) (*timer.Timer, Location, error) {
	row, at, err := it.row(p, id)
	if err != nil || row == nil {
		return nil, at, err
	}
	t, err := decodeTimer(bytes.Clone(row))
	return t, at, err
}

// row reads the ID row and the row that it names, which is valid until the next call; nil if there is none. One
// iterator sees both as they are at one moment.
func (it *idIterator) row(p prefix, id []byte) ([]byte, Location, error) {
	at, err := it.seek(p, id)
	if err != nil || at.ref.IsAbsent() {
		return nil, nowhere, err
	}
	key := appendRowKey(nil, p, at)
	if !it.SeekPrefixGE(key) || !bytes.Equal(it.Key(), key) {
		return nil, at, errors.Join(it.Error(), fmt.Errorf("timer %q has no row at %v: %w", id, at.ref, ErrCorrupt))
	}
	row, err := it.ValueAndErr()
	return row, at, err
}

// targetName reads the name of a target.
func (it *idIterator) targetName(p prefix, number uint32) (string, error) {
	key := appendNumberKey(nil, p, kindTarget, number)
	if !it.SeekPrefixGE(key) || !bytes.Equal(it.Key(), key) {
		return "", errors.Join(it.Error(), fmt.Errorf("no row of target %d: %w", number, ErrCorrupt))
	}
	row, err := it.ValueAndErr()
	if err != nil {
		return "", err
	}
	t, err := decodeTarget(key[numberAt:], row)
	return t.name, err
}
