package statestore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// ParkedTarget is a target with parked timers.
type ParkedTarget struct {
	Target string
	Count  int64 // of parked timers, at least 1
	Oldest int64 // due time of the earliest one, Unix milliseconds
}

// Park moves pending timers, in one batch, to the parked rows of a target. The target is an opaque name of 1
// to 1,024 bytes. A Scan then skips them; look-ups, Apply, a replay and the number of pending timers treat
// them as before. Park skips timers that are no longer pending, or are parked already. It looks only at ID
// and Ref of a timer, so the timer may come from Scan, from GetAll or from an applied change.
//
// Parking is local. It moves no position and leaves no trace in the changelog: a store that is replayed has
// no parked timers. After a crash a timer is either parked or not.
//
// A partition may have parked timers for any number of targets. Each takes some 150 bytes of memory and its
// name.
//
// Errors wrap ErrNotOwner or ErrTarget; then nothing has changed.
func (h *Handle) Park(target string, timers []*timer.Timer) error {
	if len(target) == 0 || len(target) > maxTargetName {
		return fmt.Errorf("park timers in partition %s: %d bytes: %w", h.p.id, len(target), ErrTarget)
	}
	if err := h.enter(); err != nil {
		return err
	}
	defer h.leave()
	if err := h.p.parkLocked(target, timers); err != nil {
		return fmt.Errorf("park timers in partition %s for %s: %w", h.p.id, target, err)
	}
	return nil
}

// parkLocked goes through the timers in the order of their rows. A timer that has a row by due time is
// pending and not parked.
func (p *Partition) parkLocked(name string, timers []*timer.Timer) error {
	timers = inOrder(timers)
	w := p.newBatchLocked()
	defer w.close()
	number := w.targets.number(name)
	it, err := dueIter(p.s.db, p.prefix, first, last)
	if err != nil {
		return err
	}
	for _, t := range timers {
		var row []byte
		if row, err = seekRow(it, p.prefix, t.Ref()); err != nil {
			break
		}
		if row == nil {
			continue
		}
		at := Location{t.Ref(), number}
		w.putRow(at, row)
		w.deleteRow(Location{ref: at.ref})
		w.putID(t.ID, at)
	}
	if err = errors.Join(err, it.Close()); err != nil || w.b.Empty() {
		return err
	}
	return w.commit(p.state)
}

// inOrder returns the timers in the order of their rows, without duplicates.
func inOrder(timers []*timer.Timer) []*timer.Timer {
	sorted := slices.Clone(timers)
	slices.SortFunc(sorted, func(a, b *timer.Timer) int { return a.Ref().Compare(b.Ref()) })
	return slices.CompactFunc(sorted, func(a, b *timer.Timer) bool { return a.Ref() == b.Ref() })
}

// seekRow moves it forward to the row by due time at ref, and returns the row, nil if there is none. Usually
// that is the next row, which needs no seek. It never goes beyond ref, because many tombstones may stand
// before the next row.
func seekRow(it *pebble.Iterator, p prefix, ref timer.Ref) ([]byte, error) {
	var buf, limitBuf [dueKeySize + 1]byte
	key := appendDueKey(buf[:0], p, ref)
	limit := append(append(limitBuf[:0], key...), 0)
	found := it.Valid() && it.NextWithLimit(limit) == pebble.IterValid && bytes.Equal(it.Key(), key)
	if !found && it.SeekGEWithLimit(key, limit) != pebble.IterValid {
		return nil, it.Error()
	}
	return it.ValueAndErr()
}

// Unpark moves parked timers of the target back to the rows by due time, in order. It stops after max timers
// or maxBytes of their rows, whichever comes first, but not before the first timer. It returns the timers, none if
// nothing is parked for the target.
func (h *Handle) Unpark(target string, max int, maxBytes int64) ([]*timer.Timer, error) {
	timers, _, err := h.UnparkIf(target, first, max, maxBytes, nil)
	return timers, err
}

// UnparkIf is Unpark for the timers that match. It checks parked timers of the target, beginning at from, until it has
// seen max of them or maxBytes, whichever comes first. It returns the timers that it has moved and where to continue:
// the lowest Ref of all if it has reached the end. match must not keep the timer.
func (h *Handle) UnparkIf(target string, from timer.Ref, max int, maxBytes int64,
	match func(*timer.Timer) bool) (timers []*timer.Timer, next timer.Ref, err error) {
	if err := h.enter(); err != nil {
		return nil, first, err
	}
	defer h.leave()
	number := h.p.targets.byName[target]
	if number == 0 {
		return nil, first, nil
	}
	timers, next, err = h.p.unparkLocked(number, from, max, maxBytes, match)
	if err != nil {
		return nil, first, fmt.Errorf("unpark timers in partition %s for %s: %w", h.p.id, target, err)
	}
	return timers, next, nil
}

// unparkLocked moves the timers that match, or all if match is nil.
func (p *Partition) unparkLocked(number uint32, from timer.Ref, max int, maxBytes int64,
	match func(*timer.Timer) bool) (timers []*timer.Timer, next timer.Ref, err error) {
	t := p.targets.byNumber[number]
	fromLow, low := from.Compare(t.low) <= 0, last
	if !fromLow {
		t.low = from
	}
	it, err := p.parkedIter(&t)
	if err != nil {
		return nil, first, err
	}
	w := p.newBatchLocked()
	defer w.close()
	copies := arena{block: slabSize}
	ok := it.First()
	for seen := 0; ok && (seen == 0 || max > 0 && maxBytes > 0); ok, seen = it.Next(), seen+1 {
		var x *timer.Timer
		var row []byte
		if row, err = it.ValueAndErr(); err == nil && match != nil {
			x, err = decodeTimer(row)
		}
		max, maxBytes = max-1, maxBytes-int64(len(row))
		if err == nil && (match == nil || match(x)) {
			x, err = decodeTimer(copies.copy(row))
		} else if err == nil {
			if low == last {
				low = x.Ref()
			}
			continue
		}
		if err != nil {
			err = fmt.Errorf("parked row %x: %w", it.Key()[parkedAt:], err)
			break
		}
		w.deleteRow(Location{x.Ref(), number})
		w.putRow(Location{ref: x.Ref()}, row)
		w.putID(x.ID, Location{ref: x.Ref()})
		timers = append(timers, x)
	}
	next = first
	if err == nil && ok {
		next, err = decodeRef(it.Key()[parkedAt:])
	}
	if err = errors.Join(err, it.Close()); err == nil && match == nil && len(timers) == 0 {
		err = fmt.Errorf("no row of %d parked timers: %w", t.count, ErrCorrupt)
	}
	if err != nil || len(timers) == 0 {
		return nil, next, err
	}
	if low == last {
		low = behind(timers[len(timers)-1].Ref())
	}
	if fromLow { // nothing is left before low
		w.targets.at(number).low = low
	}
	return timers, next, w.commit(p.state)
}

// parkedIter makes an iterator over the parked rows of a target.
func (p *Partition) parkedIter(t *target) (*pebble.Iterator, error) {
	return p.s.db.NewIter(&pebble.IterOptions{
		LowerBound: appendParkedKey(nil, p.prefix, t.number, t.low),
		UpperBound: appendNumberKey(nil, p.prefix, kindParked, t.number+1),
	})
}

// Parked lists the targets with parked timers, ordered by name. It costs some microseconds for each.
func (h *Handle) Parked() ([]ParkedTarget, error) {
	if err := h.enter(); err != nil {
		return nil, err
	}
	defer h.leave()
	p := h.p
	list := make([]ParkedTarget, 0, len(p.targets.byNumber))
	for _, t := range p.targets.byNumber {
		oldest, err := oldestParked(p, &t)
		if err != nil {
			return nil, fmt.Errorf("list parked timers of partition %s for %s: %w", p.id, t.name, err)
		}
		list = append(list, ParkedTarget{t.name, t.count, oldest.Due})
	}
	slices.SortFunc(list, func(a, b ParkedTarget) int { return strings.Compare(a.Target, b.Target) })
	return list, nil
}

// ParkedFor returns how many timers are parked for a target.
func (h *Handle) ParkedFor(target string) (int64, error) {
	if err := h.enter(); err != nil {
		return 0, err
	}
	defer h.leave()
	ts := &h.p.targets
	return ts.byNumber[ts.byName[target]].count, nil
}

// FirstParked returns how many timers are parked for a target, and the place of the first one.
func (h *Handle) FirstParked(target string) (n int64, ref timer.Ref, err error) {
	if err := h.enter(); err != nil {
		return 0, ref, err
	}
	defer h.leave()
	t, ok := h.p.targets.byNumber[h.p.targets.byName[target]]
	if !ok {
		return 0, ref, nil
	}
	if ref, err = oldestParked(h.p, &t); err != nil {
		return 0, ref, fmt.Errorf("look for the first parked timer of partition %s for %s: %w", h.p.id, target, err)
	}
	return t.count, ref, nil
}

// oldestParked returns the place of the first timer that is parked for a target. The next call begins behind the
// tombstones that this one has passed.
func oldestParked(p *Partition, t *target) (ref timer.Ref, err error) {
	it, err := p.parkedIter(t)
	if err != nil {
		return ref, err
	}
	if it.First() {
		ref, err = decodeRef(it.Key()[parkedAt:])
	} else {
		err = errors.Join(it.Error(), fmt.Errorf("no row of %d parked timers: %w", t.count, ErrCorrupt))
	}
	if err = errors.Join(err, it.Close()); err == nil {
		t.low = ref
		p.targets.byNumber[t.number] = *t
	}
	return ref, err
}
