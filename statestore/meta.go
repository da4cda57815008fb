package statestore

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// noPosition is the position of an empty partition.
const noPosition int64 = -1

// Meta is how far the store has folded a partition's changelog.
type Meta struct {
	// Position is the changelog offset to read next, -1 if the store holds nothing of the partition.
	Position int64
	// Changelog is the UUID of the changelog topic that was folded.
	Changelog [16]byte
	// Checkpoint is the last checkpoint record that was folded, opaque to the store; nil if there was none.
	Checkpoint []byte
	// Pending is the number of pending timers, and Parked how many of them are parked: see [Handle.Park].
	Pending, Parked int64
	// Misplaced is how many of them have IDs that belong on another partition if the request topic has that
	// many Partitions: see [Handle.CountFor]. If Partitions is 0, they are not counted.
	Partitions int32
	Misplaced  int64
	// InSync is a time, by the brokers' clock, at which the store is known to have held everything; zero for
	// never. For a live partition it lags by up to two flush intervals; see [Handle.Live].
	InSync time.Time
	// Mark identifies the changelog at Position.
	Mark
	// Keeps is how long the changelog kept deletions when its setting was last read, no earlier than
	// InSync; 0: not known. See [Handle.Keeps].
	Keeps time.Duration
}

// Mark distinguishes a changelog from one that was cut and has grown again. The store only keeps it; package ownership
// decides about it.
type Mark struct {
	// Named says that Checkpoint is the changelog record directly before the position.
	Named bool
	// Epoch is one more than the leader epoch of the last record that was read from the changelog, not counting the
	// owner's own writes; 0: not known. Read is the offset behind that record.
	Epoch int32
	Read  int64
}

// A meta row is written in format 4. Earlier formats lack the last fields. They can be read, but their
// position has no name.
const (
	metaFormat = 4
	metaSize   = inSyncSize + 8 + 4 + 8 + 1 + 4 + 8 + 8

	inSyncSize = 1 + 8 + 16 + 8 + 8 + refSize

	never = math.MinInt64 // stored as the in-sync time of a partition that has none
)

// metaSizes are the sizes of formats 1 to metaFormat, in bytes.
var metaSizes = [metaFormat]int{inSyncSize, inSyncSize + 8, inSyncSize + 8 + 4 + 8, metaSize}

// last is behind every Ref. It is the low bound of a partition without timers.
var last = timer.Ref{Due: math.MaxInt64, Offset: math.MaxInt64}

// first is at or before every Ref.
var first = timer.Ref{Due: math.MinInt64, Offset: math.MinInt64}

// behind returns the first Ref after r.
func behind(r timer.Ref) timer.Ref { return timer.Ref{Due: r.Due, Offset: r.Offset + 1} }

// meta is the meta row together with the checkpoint, which has a row of its own.
type meta struct {
	Meta
	low timer.Ref // Invariant: no row by due time is before low
}

func emptyMeta() meta { return meta{Meta: Meta{Position: noPosition}, low: last} }

// append appends metaSize bytes.
func (m *meta) append(dst []byte) []byte {
	inSync, named := int64(never), byte(0)
	if !m.InSync.IsZero() {
		inSync = m.InSync.UnixMilli()
	}
	if m.Named {
		named = 1
	}
	u32, u64 := binary.BigEndian.AppendUint32, binary.BigEndian.AppendUint64
	dst = append(dst, metaFormat)
	dst = u64(dst, uint64(m.Position))
	dst = append(dst, m.Changelog[:]...)
	dst = u64(dst, uint64(m.Pending))
	dst = u64(dst, uint64(inSync))
	dst = appendRef(dst, m.low)
	dst = u64(dst, uint64(m.Parked))
	dst = u32(dst, uint32(m.Partitions))
	dst = u64(dst, uint64(m.Misplaced))
	dst = append(dst, named)
	dst = u32(dst, uint32(m.Epoch))
	dst = u64(dst, uint64(m.Read))
	return u64(dst, uint64(m.Keeps.Milliseconds()))
}

// decodeMeta reads a meta row. Errors wrap ErrNewerFormat or ErrCorrupt.
func decodeMeta(b []byte) (m meta, err error) {
	switch {
	case len(b) > 0 && b[0] > metaFormat:
		return m, fmt.Errorf("meta row of format %d: %w", b[0], ErrNewerFormat)
	case len(b) == 0 || b[0] == 0 || len(b) != metaSizes[b[0]-1]:
		return m, fmt.Errorf("meta row of %d bytes: %w", len(b), ErrCorrupt)
	}
	var all [metaSize]byte
	copy(all[:], b)
	rest := all[inSyncSize:]
	m.Position = int64(binary.BigEndian.Uint64(b[1:]))
	copy(m.Changelog[:], b[9:])
	m.Pending = int64(binary.BigEndian.Uint64(b[25:]))
	if inSync := int64(binary.BigEndian.Uint64(b[33:])); inSync != never {
		m.InSync = time.UnixMilli(inSync)
	}
	m.low, err = decodeRef(b[41:inSyncSize])
	m.Parked = int64(binary.BigEndian.Uint64(rest))
	m.Partitions = int32(binary.BigEndian.Uint32(rest[8:]))
	m.Misplaced = int64(binary.BigEndian.Uint64(rest[12:]))
	m.Named = rest[20] == 1
	m.Epoch = int32(binary.BigEndian.Uint32(rest[21:]))
	m.Read = int64(binary.BigEndian.Uint64(rest[25:]))
	keeps := int64(binary.BigEndian.Uint64(rest[33:]))
	m.Keeps = time.Duration(keeps) * time.Millisecond
	if err == nil && m.impossible() || rest[20] > 1 || keeps < 0 || keeps > math.MaxInt64/int64(time.Millisecond) {
		err = fmt.Errorf("meta row with position %d, %d pending, %d parked, %d misplaced of %d partitions, named "+
			"%d, read to %d at %d, keeps %d: %w",
			m.Position, m.Pending, m.Parked, m.Misplaced, m.Partitions, rest[20], m.Read, m.Epoch, keeps, ErrCorrupt)
	}
	return m, err
}

// impossible reports whether the row has values that no store would write.
func (m *meta) impossible() bool {
	return m.Position < 0 || m.Parked < 0 || m.Pending < m.Parked || m.Misplaced < 0 || m.Pending < m.Misplaced ||
		m.Partitions < 0 ||
		m.Epoch < 0 || m.Read < 0 || m.Read > m.Position
}

func readMeta(r pebble.Reader, p prefix) (meta, error) {
	row, err := get(r, p.key(kindMeta))
	if err != nil || row == nil {
		return emptyMeta(), err
	}
	m, err := decodeMeta(row)
	if err != nil {
		return m, err
	}
	m.Checkpoint, err = get(r, p.key(kindCheckpoint))
	return m, err
}

// The meta row counts the pending timers, and the misplaced ones, whose IDs belong on another partition. Every
// batch updates the latter, which costs a hash of the ID when a timer is added or removed. The count holds
// for one number of partitions, which is stored with it. It cannot be converted to another one: the owner wipes the
// partition and replays its changelog.

// tally is by how much one batch changes the number of misplaced timers.
type tally struct {
	home       func(id []byte, partitions int32) int32
	partitions int32 // 0: nothing is counted
	here       int32
	change     int64
}

// add notes the change of an ID. A timer that stays pending does not change the count.
func (t *tally) add(id []byte, before, after timer.Ref) {
	if t.partitions == 0 || before.IsAbsent() == after.IsAbsent() || t.home(id, t.partitions) == t.here {
		return
	}
	if after.IsAbsent() {
		t.change--
	} else {
		t.change++
	}
}

// addTo adds the change to the state after the batch. If the store does not count, it removes an old count.
func (t *tally) addTo(next *meta) {
	next.Partitions, next.Misplaced = t.partitions, next.Misplaced+t.change
	if t.partitions == 0 {
		next.Misplaced = 0
	}
}

func (p *Partition) tallyFor(partitions int32) tally {
	if p.s.o.Home == nil {
		partitions = 0
	}
	return tally{home: p.s.o.Home, partitions: partitions, here: p.id.Partition}
}

// CountFor makes the store count misplaced timers for a request topic with that many partitions. It
// returns false if the store holds timers that were not counted for that number: the caller must
// wipe the partition first. A store without Options.Home counts nothing and returns true.
func (h *Handle) CountFor(partitions int32) (bool, error) {
	if h.p.s.o.Home == nil {
		return true, nil
	}
	if err := h.enter(); err != nil {
		return false, err
	}
	defer h.leave()
	if next := h.p.state; next.Pending == 0 {
		next.Partitions, next.Misplaced = partitions, 0
		h.p.setState(next)
	}
	return h.p.state.Partitions == partitions, nil
}

// Misplaced returns how many pending timers have IDs that belong on another partition, as of the last
// batch. It returns false if the store does not count them. It never waits.
func (p *Partition) Misplaced() (n int64, known bool) {
	n = p.misplaced.Load()
	return max(n, 0), n >= 0
}
