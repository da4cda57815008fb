package statestore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// ranked stands for a record while records are sorted: comparing and moving the records
// themselves, of a hundred bytes each, takes three times as long.
type ranked struct {
	head uint64 // first bytes of the ID behind what all have in common
	at   int32  // place of the record, which is that in the log
}

// sortRecords sorts by ID, then by place in the log. IDs mostly begin alike, so they are
// told apart by what comes behind that.
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

// commonPrefix is how many bytes all IDs begin with alike.
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

// head orders as IDs do, as far as eight bytes can tell.
func head(id []byte) uint64 {
	if len(id) >= 8 {
		return binary.BigEndian.Uint64(id)
	}
	var b [8]byte
	copy(b[:], id)
	return binary.BigEndian.Uint64(b[:])
}

// arrange puts the records in order, in place: each cycle of those that take each other's
// places moves by one.
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
