package history

import (
	"bytes"
	"cmp"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/waterclock/waterclock"
)

// Timers describes the timers of a book. The ID of a timer is the prefix and its number, from 0.
type Timers struct {
	Prefix string
	// Salted IDs have a suffix after their number, which begins with a dot.
	Salted bool
	// Value appends the payload of timer n to b. Without it payloads are not compared.
	Value func(b []byte, n int) []byte
}

// AnyDue stands for an unknown due time: the book trusts the emission's header.
const AnyDue = math.MinInt64

// unseen stands in place of the lateness, for timers that have not come.
const unseen = -1

// Book judges timers by the million, each of which fires once. A history of all of them would not fit in memory, so the
// book keeps 16 bytes of each: its due time and its lateness. The rest can be generated again from its number.
//
// The first emission of a timer breaks no rule if it is on time and exactly as requested. The book decides only that.
// [Check] judges every other emission, together with everything known of its timer. Timers missing at the end are lost.
//
// It may be used by several goroutines.
type Book struct {
	of Timers

	mu sync.Mutex // guards the fields below
	// due is in Unix ms, by number. byReceipt is the lateness in µs by the consumer's clock, or unseen; byStamp
	// is that in ms by the emission's timestamp.
	due       []int64
	byReceipt []int32
	byStamp   []int32
	counts    Counts
	closed    bool // no further timer is scheduled
	first     time.Time
	last      time.Time
	full      chan struct{} // closed once the book is closed and every expected emission has come
	value     []byte        // scratch of Receive
}

// NewBook returns a book with room for n timers.
func NewBook(timers Timers, n int) *Book {
	return &Book{of: timers, due: make([]int64, 0, n), byReceipt: make([]int32, 0, n), byStamp: make([]int32, 0, n),
		full: make(chan struct{})}
}

// Again returns a closed book of the same timers, none of which has come.
func (b *Book) Again() *Book {
	n := NewBook(b.of, len(b.due))
	for _, due := range b.due {
		n.Schedule(due)
	}
	n.Close()
	return n
}

// Schedule notes the next timer.
func (b *Book) Schedule(due int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due, b.byReceipt, b.byStamp = append(b.due, due), append(b.byReceipt, unseen), append(b.byStamp, 0)
	b.counts.Scheduled++
}

// Close says that no further timer is scheduled.
func (b *Book) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.check()
}

// Full is closed once the book is closed and every expected emission has come.
func (b *Book) Full() <-chan struct{} { return b.full }

func (b *Book) check() {
	if b.closed && b.counts.Received >= b.counts.Scheduled {
		select {
		case <-b.full:
		default:
			close(b.full)
		}
	}
}

// Receive books one record. It reports whether the record belongs to the book: other programs may write to the target
// too.
func (b *Book) Receive(r Received) bool {
	id := r.Header(waterclock.HeaderID)
	if id == "" {
		id = string(r.Key) // of a bare loop
	}
	number, ok := strings.CutPrefix(id, b.of.Prefix)
	if !ok {
		return false
	}
	if b.of.Salted {
		number, _, _ = strings.Cut(number, ".")
	}
	n, err := strconv.Atoi(number)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil || n < 0 || n >= len(b.due) {
		b.judge(len(b.due), 0, id, r) // it was never scheduled
		return true
	}
	due, err := r.Due()
	want := b.due[n]
	if want == AnyDue && err == nil {
		want = due
	}
	first := b.byReceipt[n] == unseen
	if !first || err != nil || due != want || r.early(want) || occurrence(r) != "1" || string(r.Key) != id ||
		!bytes.Equal(r.Value, b.payload(n, r)) {
		b.judge(n, want, id, r)
	}
	if !first {
		return true
	}
	b.byReceipt[n] = int32(min(max(r.At.Sub(time.UnixMilli(want)).Microseconds(), 0), math.MaxInt32))
	b.byStamp[n] = int32(min(max(r.Timestamp.UnixMilli()-want, 0), math.MaxInt32))
	b.counts.Received++
	if b.first.IsZero() {
		b.first = r.At
	}
	b.last = r.At
	b.check()
	return true
}

// occurrence returns the occurrence in the header. Emissions of bare loops have none.
func occurrence(r Received) string { return cmp.Or(r.Header(waterclock.HeaderOccurrence), "1") }

// payload returns the payload that timer n must have: without Timers.Value, the received one.
func (b *Book) payload(n int, r Received) []byte {
	if b.of.Value == nil {
		return r.Value
	}
	b.value = b.of.Value(b.value[:0], n)
	return b.value
}

// judge counts the violations of the emission of timer n, due at want. The timer's number stands for the offset of its
// request.
func (b *Book) judge(n int, want int64, id string, r Received) {
	request := Request{Record: Record{Place: Place{Offset: int64(n)}}, ID: id, Action: Schedules, Due: want}
	came := Emission{Record: Record{Place: Place{Offset: 1}, Timestamp: r.Timestamp.UnixMilli(), Seen: r.At}, ID: id,
		Source: request.Place}
	came.Due, _ = r.Due() // 0 matches no due time
	came.Occurrence, _ = strconv.ParseInt(occurrence(r), 10, 64)
	came.Carries = Payload{Key: string(r.Key), Value: string(r.Value)}
	h := History{Emissions: []Emission{came}, Scope: Scope{To: map[Log]int64{{}: math.MaxInt64}}}
	if n < len(b.due) {
		request.Emits = Payload{Key: id, Value: string(b.payload(n, r))}
		h.Requests = []Request{request}
		if b.byReceipt[n] != unseen {
			first := Emission{Record: Record{Timestamp: want + int64(b.byStamp[n])}, ID: id, Due: want, Occurrence: 1,
				Source: request.Place, Carries: request.Emits}
			h.Emissions = append(h.Emissions, first)
		}
	}
	for _, v := range Check(h) {
		switch v.Rule {
		case "duplicate":
			b.counts.Duplicated++
		case "early":
			b.counts.Early++
		default:
			b.counts.Altered++
		}
	}
}

// Counts returns the verdict. Missing timers count as lost.
func (b *Book) Counts() Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.counts
	for _, late := range b.byReceipt {
		if late == unseen {
			c.Lost++
		}
	}
	return c
}

// Received is how many timers have come so far.
func (b *Book) Received() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts.Received
}

// Span returns when the first and the last emission were received.
func (b *Book) Span() (first, last time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.first, b.last
}

// Missing returns the numbers of the timers that have not come.
func (b *Book) Missing() (numbers []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, late := range b.byReceipt {
		if late == unseen {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// Each calls do for each timer that came: when it was due, in Unix ms, and how late it was, by its receipt in
// µs and by its timestamp in ms.
func (b *Book) Each(do func(due int64, byReceipt, byStamp int32)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, due := range b.due {
		if b.byReceipt[n] >= 0 {
			do(due, b.byReceipt[n], b.byStamp[n])
		}
	}
}
