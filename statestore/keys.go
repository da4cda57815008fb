package statestore

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	prefixSize = 16 + 4
	kindAt     = prefixSize
	idAt       = prefixSize + 1
	refSize    = 8 + 8
	dueKeySize = prefixSize + 1 + refSize

	// maxIDSize bounds an ID in bytes: what a request may carry.
	maxIDSize = 512

	kindCheckpoint = 'c'
	kindDue        = 'd'
	kindID         = 'i'
	kindMeta       = 'm'

	signBit = 1 << 63
)

var errBadRef = errors.New("row holds no due time and offset")

// prefix is the first bytes of every key of a partition.
type prefix [prefixSize]byte

func (id PartitionID) prefix() (p prefix) {
	copy(p[:], id.Topic[:])
	binary.BigEndian.PutUint32(p[16:], uint32(id.Partition))
	return p
}

func (p prefix) id() (id PartitionID) {
	copy(id.Topic[:], p[:16])
	id.Partition = int32(binary.BigEndian.Uint32(p[16:]))
	return id
}

// next is the first prefix behind p. Partitions are not negative, so that the
// number never overflows into the UUID.
func (p prefix) next() prefix {
	binary.BigEndian.PutUint32(p[16:], binary.BigEndian.Uint32(p[16:])+1)
	return p
}

func (p prefix) key(kind byte) []byte { return append(p[:], kind) }

func appendIDKey(dst []byte, p prefix, id []byte) []byte {
	dst = append(dst, p[:]...)
	dst = append(dst, kindID)
	return append(dst, id...)
}

func appendDueKey(dst []byte, p prefix, r timer.Ref) []byte {
	dst = append(dst, p[:]...)
	dst = append(dst, kindDue)
	return appendRef(dst, r)
}

func appendRef(dst []byte, r timer.Ref) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.Due)^signBit)
	return binary.BigEndian.AppendUint64(dst, uint64(r.Offset)^signBit)
}

func putRef(dst []byte, r timer.Ref) {
	binary.BigEndian.PutUint64(dst, uint64(r.Due)^signBit)
	binary.BigEndian.PutUint64(dst[8:], uint64(r.Offset)^signBit)
}

func decodeRef(b []byte) (timer.Ref, error) {
	if len(b) != refSize {
		return timer.Absent, errBadRef
	}
	return timer.Ref{
		Due:    int64(binary.BigEndian.Uint64(b) ^ signBit),
		Offset: int64(binary.BigEndian.Uint64(b[8:]) ^ signBit),
	}, nil
}

// split is what table filters know of a key: an ID row is known by its whole
// key, all rows by due time of a partition count as one, so that they cost the
// filters nothing. Keys sort as their bytes do.
func split(key []byte) int {
	if len(key) > idAt && key[kindAt] == kindDue {
		return idAt
	}
	return len(key)
}

func comparer() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = "waterclock.v1"
	c.Split = split
	c.Compare = bytes.Compare
	c.Equal = bytes.Equal
	c.ComparePointSuffixes = bytes.Compare
	c.CompareRangeSuffixes = bytes.Compare
	c.ImmediateSuccessor = immediateSuccessor
	return &c
}

// immediateSuccessor appends the first prefix key (one that split leaves whole)
// behind a. Behind the common prefix of the rows by due time that is the next
// kind, since nothing longer that begins so is a prefix key.
func immediateSuccessor(dst, a []byte) []byte {
	dst = append(dst, a...)
	if len(a) == idAt && a[kindAt] == kindDue {
		dst[len(dst)-1]++
		return dst
	}
	return append(dst, 0)
}
