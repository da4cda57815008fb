package history

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/waterclock/waterclock"
)

// Timers say what belongs to a book. The ID of a timer is the prefix and its number, from 0.
type Timers struct {
	Prefix string
	// Salted IDs have a suffix after their number, which begins with a dot.
	Salted bool
	// Value appends the payload of timer n to b. Without it payloads are not compared.
	Value func(b []byte, n int) []byte
}

// AnyDue in place of a due time has a book believe what the emission's header says.
const AnyDue = math.MinInt64

// What stands in place of the lateness of a timer that has not come.
const (
	unseen    = -1
	cancelled = -2
	doomed    = -3 // its cancel was sent, and may come too late
)

// Book judges timers by the million: it notes what was scheduled and books what arrives.
// It may be used by several goroutines.
type Book struct {
	of Timers

	mu sync.Mutex // guards what follows
	// due is in Unix ms, by number. byReceipt is the lateness in µs by the consumer's
	// clock, or one of the constants above; byStamp is that in ms by the emission's timestamp.
	due       []int64
	byReceipt []int32
	byStamp   []int32
	counts    Counts
	stopped   int  // doomed timers that were cancelled in time, as the instance says
	closed    bool // nothing more is scheduled
	first     time.Time
	last      time.Time
	full      chan struct{} // closed once the book is closed and all that must come has come
	value     []byte        // scratch of Receive
}

// NewBook returns a book with room for n timers.
func NewBook(of Timers, n int) *Book {
	return &Book{of: of, due: make([]int64, 0, n), byReceipt: make([]int32, 0, n), byStamp: make([]int32, 0, n), full: make(chan struct{})}
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

// Cancel notes that timer n must not come, and reports whether it did. It does not if the
// timer has come, or is due before a moment.
func (b *Book) Cancel(n int, before time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byReceipt[n] != unseen || b.due[n] < before.UnixMilli() {
		return false
	}
	b.byReceipt[n] = cancelled
	b.counts.Cancelled++
	return true
}

// Doom notes that timer n is cancelled, perhaps too late.
func (b *Book) Doom(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byReceipt[n] == unseen {
		b.byReceipt[n] = doomed
	}
}

// Cancelled notes how many doomed timers were cancelled in time, as the instance says.
func (b *Book) Cancelled(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts.Cancelled += n
	b.stopped += n
	b.check()
}

// Close says that no further timer is scheduled or cancelled.
func (b *Book) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.check()
}

// Full is closed once the book is closed and everything that must come has come.
func (b *Book) Full() <-chan struct{} { return b.full }

func (b *Book) check() {
	if b.closed && b.counts.Received >= b.counts.Scheduled-b.counts.Cancelled {
		select {
		case <-b.full:
		default:
			close(b.full)
		}
	}
}

// Receive books one record. It reports whether the record belongs to the book: others may
// write to the target, too.
func (b *Book) Receive(r Received) bool {
	id, occurrence := r.Header(waterclock.HeaderID), r.Header(waterclock.HeaderOccurrence)
	if id == "" {
		id = string(r.Key) // of a bare loop
	}
	number, ok := strings.CutPrefix(id, b.of.Prefix)
	if !ok {
		return false
	}
	n := b.number(number, occurrence)
	due, err := r.Due()
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 0 || n >= len(b.due) {
		b.counts.Altered++
		return true
	}
	want := b.due[n]
	if want == AnyDue {
		want = due
	}
	switch {
	case b.byReceipt[n] == cancelled:
		b.counts.Uncancelled++
		return true
	case b.byReceipt[n] >= 0:
		b.counts.Duplicated++
		return true
	case err != nil, due != want, string(r.Key) != id, b.altered(n, r.Value):
		b.counts.Altered++
	case r.early(want):
		b.counts.Early++
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

// number is the number of a timer from its ID, -1 if it has none. Timers of a book fire once.
func (b *Book) number(timer, occurrence string) int {
	if b.of.Salted {
		timer, _, _ = strings.Cut(timer, ".")
	}
	n, err := strconv.Atoi(timer)
	if err != nil || n < 0 {
		return -1
	}
	if occurrence != "" && occurrence != "1" {
		return -1
	}
	return n
}

func (b *Book) altered(n int, value []byte) bool {
	if b.of.Value == nil {
		return false
	}
	b.value = b.of.Value(b.value[:0], n)
	return !bytes.Equal(value, b.value)
}

// Counts returns the verdict. What is missing counts as lost. Doomed timers are counted apart: one that
// came although it was cancelled must not make up for another one that is missing.
func (b *Book) Counts() Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, absent := b.counts, 0 // doomed timers that have not come
	for _, late := range b.byReceipt {
		switch late {
		case unseen:
			c.Lost++
		case doomed:
			absent++
		}
	}
	c.Lost += max(0, absent-b.stopped)
	c.Uncancelled += max(0, b.stopped-absent)
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

// Missing returns the numbers of the timers that have not come and may still.
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

// Each calls do for all that came, with when it was due, in Unix ms, how late it was by its receipt, in
// µs, and by its timestamp, in ms.
func (b *Book) Each(do func(due int64, byReceipt, byStamp int32)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, due := range b.due {
		if b.byReceipt[n] >= 0 {
			do(due, b.byReceipt[n], b.byStamp[n])
		}
	}
}
