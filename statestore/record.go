package statestore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

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

// sortRecords sorts by ID, then by log order. Most IDs begin alike, so it compares what comes behind that.
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
