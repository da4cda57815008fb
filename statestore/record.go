package statestore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/waterclock/waterclock/internal/timer"
)

// record is a change of one ID. What is stored has one for each ID.
type record struct {
	target uint32 // number of the target that before is parked for; 0: not parked
	id     []byte
	row    []byte       // bytes of the timer, nothing for a deletion
	timer  *timer.Timer // instead of row, if that is nil
	before timer.Ref    // place in the store: looked up by Replay.resolve, or the caller's Change.Before
	after  timer.Ref    // Absent for a deletion
}

// encoded returns the bytes of a record's timer, in scratch if the record does not have them.
func (c *record) encoded(scratch *[]byte) []byte {
	if c.row != nil || c.timer == nil {
		return c.row
	}
	*scratch = c.timer.AppendTo((*scratch)[:0])
	return *scratch
}

// gain returns by how much a record changes the number of pending timers.
func (c *record) gain() (n int64) {
	if !c.before.IsAbsent() {
		n--
	}
	if !c.after.IsAbsent() {
		n++
	}
	return n
}

// ranked stands for a record while records are sorted. Comparing and moving the records themselves, of a
// hundred bytes each, takes three times as long.
type ranked struct {
	head uint64 // first bytes of the ID behind the prefix that all IDs have in common
	at   int32  // index of the record, which is in log order
}

// sortRecords sorts by ID, then by log order. Most IDs begin alike, so it compares what comes behind that.
func sortRecords(records []record) {
	common := commonPrefix(records)
	order := make([]ranked, len(records))
	for i := range records {
		order[i] = ranked{head(records[i].id[common:]), int32(i)}
	}
	slices.SortFunc(order, func(a, b ranked) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		if c := bytes.Compare(records[a.at].id[common:], records[b.at].id[common:]); c != 0 {
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
	first := records[0].id
	n := len(first)
	for i := range records {
		id := records[i].id
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
