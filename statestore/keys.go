package statestore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	prefixSize = 16 + 4
	kindAt     = prefixSize
	idAt       = prefixSize + 1
	refSize    = 8 + 8
	numberAt   = idAt // of a target's number, in the keys of parked rows and targets
	parkedAt   = numberAt + 4
	dueKeySize = prefixSize + 1 + refSize

	parkedKeySize = parkedAt + refSize
	parkedIDSize  = refSize + 4 // of the ID row of a parked timer

	// maxIDSize bounds an ID in bytes. Requests have the same bound.
	maxIDSize = 512

	kindCheckpoint = 'c'
	kindDue        = 'd'
	kindID         = 'i'
	kindMeta       = 'm'
	kindParked     = 'p'
	kindTarget     = 't'

	signBit = 1 << 63
)

var (
	errBadRef      = errors.New("row holds no due time and offset")
	errBadLocation = errors.New("row has no location of a timer")
)

// PartitionID names a request partition. A topic that is deleted and created again has another UUID.
type PartitionID struct {
	Topic     [16]byte // UUID of the request topic
	Partition int32    // never negative
}

// String is the UUID in hex, a slash and the number.
func (pid PartitionID) String() string { return fmt.Sprintf("%x/%d", pid.Topic, pid.Partition) }

// Location is where the row of a pending timer lies.
type Location struct {
	ref    timer.Ref
	target uint32 // number of the target that it is parked for; 0: it lies among the rows by due time
}

// nowhere is the location of a timer that is not pending.
var nowhere = Location{ref: timer.Absent}

// Ref is the timer's place in firing order.
func (l Location) Ref() timer.Ref { return l.ref }

// Parked reports whether the timer is parked.
func (l Location) Parked() bool { return l.target != 0 }

// rowKeySize is the size of the row's key in bytes.
func (l Location) rowKeySize() int {
	if l.target != 0 {
		return parkedKeySize
	}
	return dueKeySize
}

// prefix is the beginning of every key of a partition.
type prefix [prefixSize]byte

func (pid PartitionID) prefix() (p prefix) {
	copy(p[:], pid.Topic[:])
	binary.BigEndian.PutUint32(p[16:], uint32(pid.Partition))
	return p
}

func (p prefix) id() (id PartitionID) {
	copy(id.Topic[:], p[:16])
	id.Partition = int32(binary.BigEndian.Uint32(p[16:]))
	return id
}

// next returns the first prefix behind p. Partition numbers are not negative, so the number does not overflow
// into the UUID.
func (p prefix) next() prefix {
	binary.BigEndian.PutUint32(p[16:], binary.BigEndian.Uint32(p[16:])+1)
	return p
}

func (p prefix) compare(q prefix) int { return bytes.Compare(p[:], q[:]) }

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

func decodeRef(b []byte) (timer.Ref, error) {
	if len(b) != refSize {
		return timer.Absent, errBadRef
	}
	return timer.Ref{
		Due:    int64(binary.BigEndian.Uint64(b) ^ signBit),
		Offset: int64(binary.BigEndian.Uint64(b[8:]) ^ signBit),
	}, nil
}

func appendParkedKey(dst []byte, p prefix, number uint32, r timer.Ref) []byte {
	return appendRef(appendNumberKey(dst, p, kindParked, number), r)
}

// appendNumberKey appends the key of a target, or the prefix of its parked rows' keys, by kind.
func appendNumberKey(dst []byte, p prefix, kind byte, number uint32) []byte {
	dst = append(dst, p[:]...)
	dst = append(dst, kind)
	return binary.BigEndian.AppendUint32(dst, number)
}

// appendRowKey appends the key of a timer's row, parked or not.
func appendRowKey(dst []byte, p prefix, at Location) []byte {
	if at.target != 0 {
		return appendParkedKey(dst, p, at.target, at.ref)
	}
	return appendDueKey(dst, p, at.ref)
}

// appendLocation appends the value of an ID row.
func appendLocation(dst []byte, at Location) []byte {
	dst = appendRef(dst, at.ref)
	if at.target != 0 {
		dst = binary.BigEndian.AppendUint32(dst, at.target)
	}
	return dst
}

// decodeLocation reads the value of an ID row.
func decodeLocation(b []byte) (at Location, err error) {
	if len(b) == refSize {
		at.ref, err = decodeRef(b)
		return at, err
	}
	if len(b) != parkedIDSize {
		return nowhere, errBadLocation
	}
	at.target = binary.BigEndian.Uint32(b[refSize:])
	if at.target == 0 {
		return nowhere, errBadLocation
	}
	at.ref, err = decodeRef(b[:refSize])
	return at, err
}

// split returns how many bytes of a key go into table filters. An ID row has its whole key there. All rows by
// due time of a partition share one entry, so they cost the filters nothing. Each parked row has its own: this
// kind came later, and all tables of a comparer must be split alike.
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
	c.ImmediateSuccessor = immediateSuccessor
	return &c
}

// immediateSuccessor appends the first prefix key (one that split leaves whole) behind a. Behind the common
// prefix of the rows by due time that is the next kind, because no longer key with that prefix is a prefix
// key.
func immediateSuccessor(dst, a []byte) []byte {
	dst = append(dst, a...)
	if len(a) == idAt && a[kindAt] == kindDue {
		dst[len(dst)-1]++
		return dst
	}
	return append(dst, 0)
}

func checkID(id []byte) error {
	if len(id) == 0 || len(id) > maxIDSize {
		return fmt.Errorf("%d bytes: %w", len(id), ErrID)
	}
	return nil
}

// record is a change that is about to be stored: one for each ID. Its Before comes from the caller of Apply, or from
// Replay.resolve.
type record struct {
	Change
	target uint32 // number of the target that Before is parked for; 0: not parked
}

// was returns the location of the timer's row before the change.
func (r *record) was() Location { return Location{r.Before, r.target} }

// encoded returns the bytes of a record's timer, in scratch if the record does not have them.
func (r *record) encoded(scratch *[]byte) []byte {
	if r.Timer == nil {
		return r.Bytes
	}
	*scratch = r.Timer.AppendTo((*scratch)[:0])
	return *scratch
}

// ranked stands for a record while records are sorted. Comparing and moving the records themselves, of a
// hundred bytes each, takes three times as long.
type ranked struct {
	head uint64 // first bytes of the ID behind the prefix that all IDs have in common
	at   int32  // index of the record, which is in log order
}

// sortRecords sorts by ID, then by log order. Most IDs have the same beginning, so it compares the rest.
func sortRecords(records []record) {
	common := commonPrefix(records)
	order := make([]ranked, len(records))
	for i := range records {
		order[i] = ranked{head(records[i].ID[common:]), int32(i)}
	}
	slices.SortFunc(order, func(a, b ranked) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		if c := bytes.Compare(records[a.at].ID[common:], records[b.at].ID[common:]); c != 0 {
			return c
		}
		return cmp.Compare(a.at, b.at)
	})
	arrange(records, order)
}

// commonPrefix returns how many bytes all IDs have in common at their beginning.
func commonPrefix(records []record) int {
	if len(records) == 0 {
		return 0
	}
	first := records[0].ID
	n := len(first)
	for i := range records {
		id := records[i].ID
		n = min(n, len(id))
		for !bytes.Equal(first[:n], id[:n]) {
			n--
		}
	}
	return n
}

// head returns the first eight bytes of an ID as a number that orders as they do.
func head(id []byte) uint64 {
	if len(id) >= 8 {
		return binary.BigEndian.Uint64(id)
	}
	var b [8]byte
	copy(b[:], id)
	return binary.BigEndian.Uint64(b[:])
}

// arrange puts the records in order without a second slice: it follows each cycle of the permutation.
func arrange(records []record, order []ranked) {
	for i := range order {
		if order[i].at < 0 || int(order[i].at) == i {
			continue
		}
		moved := records[i]
		for to := i; ; {
			from := int(order[to].at)
			order[to].at = -1
			if from == i {
				records[to] = moved
				break
			}
			records[to], to = records[from], from
		}
	}
}
