package statestore

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// nothing is the position of a partition that holds nothing.
const nothing int64 = -1

// Meta says how far a partition's fold of its changelog is.
type Meta struct {
	// Position is the changelog offset to read next, -1 if the store holds
	// nothing of the partition.
	Position int64
	// Changelog is the UUID of the changelog topic that was folded.
	Changelog [16]byte
	// Checkpoint is the last folded checkpoint record, opaque; nil if none was.
	Checkpoint []byte
	// Pending is the number of pending timers, Parked of how many of them are
	// parked: see [Handle.Park].
	Pending, Parked int64
	// Misplaced is how many of them have IDs that belong on another partition,
	// where the request topic has so many Partitions: see [Partition.CountFor].
	// 0 partitions: nobody has counted.
	Partitions int32
	Misplaced  int64
	// InSync is a time at which the store is known to have held everything, by
	// the clock of the brokers, zero for never. For a live partition it lags by up to two flush
	// intervals; see [Handle.Live].
	InSync time.Time
}

// Format 2 is that of a partition with parked timers alone: a version that knows
// nothing of parking would never fire them, so it must refuse the partition;
// every other partition it reads. Format 3 is that of a partition of which
// misplaced timers are counted: a version that does not count must not go on
// from the number.
const (
	metaFormat       = 1
	metaSize         = 1 + 8 + 16 + 8 + 8 + refSize
	parkedMetaFormat = 2
	parkedMetaSize   = metaSize + 8

	countedMetaFormat = 3
	countedMetaSize   = parkedMetaSize + 4 + 8

	never = math.MinInt64 // in sync, as stored
)

// last is behind every Ref: the bound of a partition without timers.
var last = timer.Ref{Due: math.MaxInt64, Offset: math.MaxInt64}

// first is at or before every timer's place.
var first = timer.Ref{Due: math.MinInt64, Offset: math.MinInt64}

// meta is the meta row, with the checkpoint that lies in a row of its own.
type meta struct {
	Meta
	low timer.Ref // Invariant: no row by due time is before low
}

func emptyMeta() meta { return meta{Meta: Meta{Position: nothing}, low: last} }

// size is how many bytes put writes.
func (m *meta) size() int {
	switch {
	case m.Partitions != 0:
		return countedMetaSize
	case m.Parked != 0:
		return parkedMetaSize
	}
	return metaSize
}

func (m *meta) put(dst []byte) {
	inSync := int64(never)
	if !m.InSync.IsZero() {
		inSync = m.InSync.UnixMilli()
	}
	dst[0] = metaFormat
	binary.BigEndian.PutUint64(dst[1:], uint64(m.Position))
	copy(dst[9:], m.Changelog[:])
	binary.BigEndian.PutUint64(dst[25:], uint64(m.Pending))
	binary.BigEndian.PutUint64(dst[33:], uint64(inSync))
	putRef(dst[41:], m.low)
	if m.Parked != 0 || m.Partitions != 0 {
		dst[0] = parkedMetaFormat
		binary.BigEndian.PutUint64(dst[metaSize:], uint64(m.Parked))
	}
	if m.Partitions != 0 {
		dst[0] = countedMetaFormat
		binary.BigEndian.PutUint32(dst[parkedMetaSize:], uint32(m.Partitions))
		binary.BigEndian.PutUint64(dst[parkedMetaSize+4:], uint64(m.Misplaced))
	}
}

// decodeMeta reads a meta row. Errors wrap ErrNewerFormat or ErrCorrupt.
func decodeMeta(b []byte) (m meta, err error) {
	switch {
	case len(b) > 0 && b[0] > countedMetaFormat:
		return m, fmt.Errorf("meta row of format %d: %w", b[0], ErrNewerFormat)
	case len(b) == countedMetaSize && b[0] == countedMetaFormat:
		m.Parked = int64(binary.BigEndian.Uint64(b[metaSize:]))
		m.Partitions = int32(binary.BigEndian.Uint32(b[parkedMetaSize:]))
		m.Misplaced = int64(binary.BigEndian.Uint64(b[parkedMetaSize+4:]))
		if m.Partitions < 1 {
			return m, fmt.Errorf("meta row of %d partitions: %w", m.Partitions, ErrCorrupt)
		}
	case len(b) == parkedMetaSize && b[0] == parkedMetaFormat:
		m.Parked = int64(binary.BigEndian.Uint64(b[metaSize:]))
		if m.Parked < 1 {
			return m, fmt.Errorf("meta row with %d parked: %w", m.Parked, ErrCorrupt)
		}
	case len(b) != metaSize || b[0] != metaFormat:
		return m, fmt.Errorf("meta row of %d bytes: %w", len(b), ErrCorrupt)
	}
	m.Position = int64(binary.BigEndian.Uint64(b[1:]))
	copy(m.Changelog[:], b[9:])
	m.Pending = int64(binary.BigEndian.Uint64(b[25:]))
	if inSync := int64(binary.BigEndian.Uint64(b[33:])); inSync != never {
		m.InSync = time.UnixMilli(inSync)
	}
	m.low, err = decodeRef(b[41:metaSize])
	if err == nil && (m.Position < 0 || m.Parked < 0 || m.Pending < m.Parked || m.Misplaced < 0 || m.Pending < m.Misplaced) {
		err = fmt.Errorf("meta row with position %d, %d pending, %d parked, %d misplaced: %w", m.Position, m.Pending, m.Parked, m.Misplaced, ErrCorrupt)
	}
	return m, err
}
