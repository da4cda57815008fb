package statestore

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// target is a target with parked timers. The keys of its rows have its number instead of its name. The number
// is free again when nothing is parked for the target.
type target struct {
	number uint32 // from 1
	name   string
	count  int64     // of parked timers
	low    timer.Ref // Invariant: no parked row of the target is before low
}

const (
	targetHead    = 8 + refSize // bytes of a target row before the name
	maxTargetName = 1024        // bytes
)

func (t *target) encode() []byte {
	row := binary.BigEndian.AppendUint64(nil, uint64(t.count))
	row = appendRef(row, t.low)
	return append(row, t.name...)
}

// decodeTarget reads a target row and the number in its key. Errors wrap ErrCorrupt.
func decodeTarget(number, row []byte) (t target, err error) {
	if len(number) != 4 || len(row) <= targetHead || len(row) > targetHead+maxTargetName {
		return t, fmt.Errorf("target row %x of %d bytes: %w", number, len(row), ErrCorrupt)
	}
	t.number = binary.BigEndian.Uint32(number)
	t.count = int64(binary.BigEndian.Uint64(row))
	t.low, _ = decodeRef(row[8:targetHead])
	t.name = string(row[targetHead:])
	if t.number == 0 || t.count < 1 {
		return t, fmt.Errorf("target row %d of %q with %d parked: %w", t.number, t.name, t.count, ErrCorrupt)
	}
	return t, nil
}

// targets has the targets of a partition that have parked timers.
type targets struct {
	byNumber map[uint32]target
	byName   map[string]uint32
	highest  uint32 // highest number that was given so far
}

func newTargets() targets {
	return targets{byNumber: map[uint32]target{}, byName: map[string]uint32{}}
}

// readTargets reads the targets that belong to the meta row m. A partition without parked timers has none.
func readTargets(r pebble.Reader, p prefix, m *meta) (targets, error) {
	ts := newTargets()
	if m.Parked == 0 {
		return ts, nil
	}
	var parked int64
	err := eachTarget(r, p, func(t target) {
		ts.set(t)
		parked += t.count
	})
	if err == nil && (parked != m.Parked || len(ts.byName) != len(ts.byNumber)) {
		err = fmt.Errorf("%d parked for %d targets of %d names, meta row says %d: %w",
			parked, len(ts.byNumber), len(ts.byName), m.Parked, ErrCorrupt)
	}
	return ts, err
}

// eachTarget calls fn with the targets of a partition that have parked timers.
func eachTarget(r reader, p prefix, fn func(target)) error {
	return eachRow(r, p.key(kindTarget), p.key(kindTarget+1), func(key, row []byte) (bool, error) {
		t, err := decodeTarget(key[numberAt:], row)
		if err == nil {
			fn(t)
		}
		return true, err
	})
}

func (ts *targets) set(t target) {
	ts.byNumber[t.number] = t
	ts.byName[t.name] = t.number
	ts.highest = max(ts.highest, t.number)
}

// free returns an unused number. Numbers wrap around. It skips 0, which means no target, and the highest
// number, because the key behind its rows needs the next one.
func (ts *targets) free() uint32 {
	n := ts.highest + 1
	for ; n == 0 || n == math.MaxUint32 || ts.byNumber[n].number != 0; n++ {
	}
	return n
}

// check returns an error if a timer is parked for an unknown target.
func (ts *targets) check(at Location) error {
	if _, ok := ts.byNumber[at.target]; at.target != 0 && !ok {
		return fmt.Errorf("parked for unknown target %d: %w", at.target, ErrCorrupt)
	}
	return nil
}

// targetChanges are the changes of one batch, or one table, to a partition's targets.
type targetChanges struct {
	of     *targets
	next   map[uint32]*target // new state of the targets that change
	parked int64              // by how much the number of parked timers changes
}

// number returns the number of the target with that name, a new one if it has none.
func (tc *targetChanges) number(name string) uint32 {
	if n := tc.of.byName[name]; n != 0 {
		return n
	}
	t := &target{number: tc.of.free(), name: name, low: last}
	tc.next = map[uint32]*target{t.number: t}
	return t.number
}

// at returns the new state of a target, for the caller to change.
func (tc *targetChanges) at(number uint32) *target {
	t := tc.next[number]
	if t == nil {
		t = new(tc.of.byNumber[number])
		if tc.next == nil {
			tc.next = map[uint32]*target{}
		}
		tc.next[number] = t
	}
	return t
}

func (tc *targetChanges) put(at Location) {
	tc.parked++
	t := tc.at(at.target)
	t.count++
	if at.ref.Compare(t.low) < 0 {
		t.low = at.ref
	}
}

func (tc *targetChanges) remove(at Location) {
	tc.parked--
	tc.at(at.target).count--
}

// sorted returns the changed targets in the order of their rows.
func (tc *targetChanges) sorted() []*target {
	return slices.SortedFunc(maps.Values(tc.next), func(a, b *target) int { return cmp.Compare(a.number, b.number) })
}

// install applies the changes to the partition's targets in memory. They must be stored already.
func (tc *targetChanges) install() {
	for _, t := range tc.next {
		if t.count != 0 {
			tc.of.set(*t)
			continue
		}
		delete(tc.of.byNumber, t.number)
		delete(tc.of.byName, t.name)
	}
}
