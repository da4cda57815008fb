package partition

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/transaction"
)

// buffers hold the records of one share and what belongs to them, some 900 bytes for each
// entry, which were a fifth of all that a timer's life allocates. They are used again
// when the step is committed: then every record is acknowledged, kgo has forgotten it,
// and nobody else holds it. After any other outcome kgo may still be at it, so they are
// left to the garbage.
type buffers struct {
	records   []kgo.Record // of emissions, with headers and the text of those
	headers   []kgo.RecordHeader
	text      []byte
	changes   []kgo.Record // of changes, with keys
	keys      []byte
	list      []*kgo.Record
	emissions []transaction.Emission
	emitted   []*planner.Entry
}

// bufferPool are those of committed steps. They survive while steps follow each other.
var bufferPool = sync.Pool{New: func() any { return new(buffers) }}

// minBuffer is how many records buffers may always have room for, with headers.
const minBuffer = 32

// free has the buffers used again, empty; unless they are much larger than they had to be,
// so that all that are spare are about as large as the last steps.
func (s *buffers) free() {
	if wide(s.records, minBuffer) || wide(s.changes, minBuffer) || wide(s.headers, minBuffer*ownHeaders) {
		return
	}
	clear(s.records)
	clear(s.headers)
	clear(s.changes)
	clear(s.list)
	clear(s.emissions)
	clear(s.emitted)
	bufferPool.Put(s)
}

func wide[T any](s []T, least int) bool { return cap(s) > max(least, 2*len(s)) }

// room is an empty list with room for n, the old one if that has it.
func room[T any](old []T, n int) []T {
	if cap(old) < n {
		return make([]T, 0, n)
	}
	return old[:0]
}
