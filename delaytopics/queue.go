package delaytopics

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/timer"
)

// itemMemory is about how much memory a queued record takes besides its bytes, and headerMemory one of its headers.
const (
	itemMemory   = 256
	headerMemory = 40
)

// item is one record on its way.
type item struct {
	rec  *kgo.Record
	due  int64 // Unix ms; never before that of the item in front; none: it need not wait
	next int64 // the position behind it
	says intake.Delayed
	// If there is a refusal the item becomes a dead letter. undelivered: the target refused it.
	refusal     *intake.Refusal
	undelivered bool
	// suspect: its target refused a batch, maybe because of this record.
	suspect bool
	bytes   int64
}

// queue holds the records of a partition that were read and not passed on, in order. It is pure: no clock, no lock.
//
// Invariant: due does not decrease from front to back, nor from the items that were dropped to those that are added.
type queue struct {
	items []item
	bytes int64
	last  int64 // due of the last item ever added
	end   int64 // every record below was added; the rest is markers and aborted records
}

// none is the due time of an item that need not wait. It is before any other.
const none = 0

func (q *queue) size() timer.Size { return timer.Size{Entries: len(q.items), Bytes: q.bytes} }

// add adds an item that is due at the given time, or when the item before it is, if that is later.
func (q *queue) add(it item, due int64) {
	q.last = max(q.last, due)
	it.due = q.last
	it.bytes = recordBytes(it.rec)
	if n := len(it.says.Headers); n < len(it.rec.Headers) { // a list of its own: some headers are not passed on
		it.bytes += headerMemory * int64(n)
	}
	q.bytes += it.bytes
	q.items = append(q.items, it)
}

// pass notes that nothing but markers and aborted records lies between the last item and a position. A step that passes
// the item on passes them too.
func (q *queue) pass(position int64) {
	if q.end = max(q.end, position); len(q.items) > 0 {
		it := &q.items[len(q.items)-1]
		it.next = max(it.next, position)
	}
}

// drop drops n items from the front.
func (q *queue) drop(n int) {
	for i := range q.items[:n] {
		q.bytes -= q.items[i].bytes
		q.items[i] = item{} // its memory
	}
	if q.items = q.items[n:]; len(q.items) == 0 {
		q.items = nil
	}
}

// front is when the item at the front is due; ok: there is one.
func (q *queue) front() (due int64, ok bool) {
	if len(q.items) == 0 {
		return 0, false
	}
	return q.items[0].due, true
}

// recordBytes is about how much memory a record takes.
func recordBytes(r *kgo.Record) int64 {
	n := itemMemory + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += headerMemory + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}
