package partition

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/transaction"
)

// buffers hold the records of one sub-partition's part of a share: some 900 bytes for each entry, once a fifth of all
// allocations in a timer's life. They are used again once the step is committed. Then every record is acknowledged, kgo
// has forgotten it, and nothing else holds it. After any other outcome kgo may still use a record, so the buffers are
// left to the garbage collector.
type buffers struct {
	records   []kgo.Record // emissions; headers and text are theirs
	headers   []kgo.RecordHeader
	text      []byte
	changes   []kgo.Record // changes; keys are theirs
	keys      []byte
	list      []*kgo.Record
	emissions []transaction.Emission
	emitted   []*planner.Entry
}

// bufferPool has the buffers of committed steps.
var bufferPool = sync.Pool{New: func() any { return new(buffers) }}

// minBuffer is the number of records that buffers in the pool may always have room for.
const minBuffer = 32

// ownHeaders is how many headers the service adds to an emission.
const ownHeaders = 5

// free empties the buffers and puts them into the pool, unless they are much larger than they had to be. So buffers in
// the pool are about as large as the last steps.
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

// room returns an empty list with room for n elements: the old one if it is large enough.
func room[T any](old []T, n int) []T {
	if cap(old) < n {
		return make([]T, 0, n)
	}
	return old[:0]
}
