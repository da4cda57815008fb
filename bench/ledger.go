package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// ErrInexact says that emissions were lost, duplicated, early or altered, or came
// although they were cancelled. The report that comes with it tells how many, and
// no figures.
var ErrInexact = errors.New("emissions are not exact")

// payloadSeed makes payloads the same in every run.
const payloadSeed = 0x77617465

// Exactness is what became of the timers of a phase, as a read_committed consumer
// saw it. All but the first three must be 0.
type Exactness struct {
	Scheduled   int `json:"scheduled"`
	Cancelled   int `json:"cancelled,omitempty"`
	Received    int `json:"received"` // timers whose emission came at least once
	Lost        int `json:"lost"`
	Duplicated  int `json:"duplicated"`
	Early       int `json:"early"`       // by timestamp or by receipt
	Altered     int `json:"altered"`     // another due time, key or value, or no timer of the phase
	Uncancelled int `json:"uncancelled"` // came although it was cancelled long before it was due
}

// wrong is how many went wrong.
func (e Exactness) wrong() int { return e.Lost + e.Duplicated + e.Early + e.Altered + e.Uncancelled }

// err is nil if nothing is wrong.
func (e Exactness) err(phase string) error {
	if e.wrong() == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d lost, %d duplicated, %d early, %d altered, %d in spite of their cancel of %d: %w",
		phase, e.Lost, e.Duplicated, e.Early, e.Altered, e.Uncancelled, e.Scheduled, ErrInexact)
}

// What stands in place of the lateness of a timer that has not come.
const (
	unseen    = -1
	cancelled = -2
	doomed    = -3 // its cancel was sent, and may come too late
)

// ledger knows what was scheduled in a phase and books what arrives. It knows
// nothing of the service's code: it reads the headers that users read. mu guards
// what follows it.
type ledger struct {
	prefix string // of the IDs of the phase; the timer's number follows
	bytes  int    // payload of each timer
	// timers is how many there are that recur, 0 where none does: occurrence k, from 1,
	// of timer i has the number (k-1)*timers+i.
	timers int
	// on says that partition of partitions the IDs lie on, which have a suffix for it; nil: they lie anywhere.
	on         func(partition int) bool
	partitions int
	places     kgo.TopicPartitioner // as Java's; to make one for each key took most of the producer's time

	mu sync.Mutex
	// due, in Unix ms, and lateness, by number: in µs by receipt, or unseen or
	// cancelled, and in ms by the emission's timestamp.
	due       []int64
	byReceipt []int32
	byStamp   []int32
	exact     Exactness
	closed    bool      // nothing more is scheduled
	first     time.Time // receipt
	last      time.Time
	full      chan struct{} // closed when closed and all that must come are received
	value     []byte        // scratch of receive
}

func newLedger(prefix string, bytes, n int) *ledger {
	return &ledger{
		prefix: prefix, bytes: bytes, due: make([]int64, 0, n), byReceipt: make([]int32, 0, n), byStamp: make([]int32, 0, n),
		full: make(chan struct{}),
	}
}

// again is a ledger of the same timers, none of which has come.
func (l *ledger) again() *ledger {
	n := newLedger(l.prefix, l.bytes, len(l.due))
	for _, due := range l.due {
		n.schedule(due)
	}
	n.close()
	return n
}

// schedule notes the next timer and returns its number.
func (l *ledger) schedule(due int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due, l.byReceipt, l.byStamp = append(l.due, due), append(l.byReceipt, unseen), append(l.byStamp, 0)
	l.exact.Scheduled++
	return len(l.due) - 1
}

// recur notes that timer i of those that recur is due first at due, in Unix ms, and then
// each interval until its last occurrence.
func (l *ledger) recur(i int, due int64, every time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := i; n < len(l.due); n += l.timers {
		l.due[n] = due
		due += every.Milliseconds()
	}
}

// cancel notes that the timer must not come, and reports whether it did: not if it
// has come, or is due before a moment.
func (l *ledger) cancel(n int, before time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byReceipt[n] != unseen || l.due[n] < before.UnixMilli() {
		return false
	}
	l.byReceipt[n] = cancelled
	l.exact.Cancelled++
	return true
}

// place has the IDs lie on some of so many partitions alone.
func (l *ledger) place(partitions int, on func(partition int) bool) {
	l.partitions, l.on, l.places = partitions, on, kgo.StickyKeyPartitioner(nil).ForTopic("")
}

// doom notes that the timer is cancelled, maybe too late.
func (l *ledger) doom(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byReceipt[n] == unseen {
		l.byReceipt[n] = doomed
	}
}

// cancelled notes how many of those that may have come in spite of it were cancelled, as the instance says.
func (l *ledger) cancelled(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exact.Cancelled += n
	l.check()
}

// id is the ID of timer n.
func (l *ledger) id(n int) []byte {
	id := strconv.AppendInt([]byte(l.prefix), int64(l.timer(n)), 10)
	if l.on == nil {
		return id
	}
	id = append(id, '.')
	for salt := int64(0); ; salt++ {
		if salted := strconv.AppendInt(id, salt, 10); l.on(l.places.Partition(&kgo.Record{Key: salted}, l.partitions)) {
			return salted
		}
	}
}

// payload is the value of timer n.
func (l *ledger) payload(n int) []byte {
	return payload(make([]byte, 0, l.bytes+7), l.timer(n), l.bytes)
}

// timer is which one a number is of.
func (l *ledger) timer(n int) int {
	if l.timers > 0 {
		return n % l.timers
	}
	return n
}

// payload appends the value of a timer: bytes that no other timer has and that
// no compression makes smaller.
func payload(b []byte, number, bytes int) []byte {
	random := rand.NewPCG(payloadSeed, uint64(number))
	for len(b) < bytes {
		b = binary.LittleEndian.AppendUint64(b, random.Uint64())
	}
	return b[:bytes]
}

// close says that no further timer is scheduled or cancelled.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.check()
}

func (l *ledger) check() {
	if l.closed && l.exact.Received >= l.exact.Scheduled-l.exact.Cancelled {
		select {
		case <-l.full:
		default:
			close(l.full)
		}
	}
}

// receive books one record that was received at a moment. It reports whether it
// belongs to the phase; others may write to the target, too.
func (l *ledger) receive(r *kgo.Record, at time.Time) bool {
	id, due, occurrence := string(r.Key), "", "1"
	for _, h := range r.Headers {
		switch h.Key {
		case waterclock.HeaderID:
			id = string(h.Value)
		case waterclock.HeaderDue:
			due = string(h.Value)
		case waterclock.HeaderOccurrence:
			occurrence = string(h.Value)
		}
	}
	number, ok := strings.CutPrefix(id, l.prefix)
	if !ok {
		return false
	}
	if l.on != nil {
		number, _, _ = strings.Cut(number, ".")
	}
	n, err := strconv.Atoi(number)
	k, odd := strconv.Atoi(occurrence)
	if odd != nil || k != 1 && l.timers == 0 || l.timers > 0 && n >= l.timers {
		n = -1
	}
	n += (k - 1) * l.timers
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || n < 0 || n >= len(l.due) {
		l.exact.Altered++
		return true
	}
	want := l.due[n]
	l.value = payload(l.value[:0], l.timer(n), l.bytes)
	switch {
	case l.byReceipt[n] == cancelled:
		l.exact.Uncancelled++
		return true
	case l.byReceipt[n] >= 0:
		l.exact.Duplicated++
		return true
	case due != strconv.FormatInt(want, 10), string(r.Key) != id, !bytes.Equal(r.Value, l.value):
		l.exact.Altered++
	case r.Timestamp.UnixMilli() < want, at.UnixMilli() < want:
		l.exact.Early++
	}
	l.byReceipt[n] = int32(min(max(at.Sub(time.UnixMilli(want)).Microseconds(), 0), math.MaxInt32))
	l.byStamp[n] = int32(min(max(r.Timestamp.UnixMilli()-want, 0), math.MaxInt32))
	l.exact.Received++
	if l.first.IsZero() {
		l.first = at
	}
	l.last = at
	l.check()
	return true
}

// result counts what is missing as lost.
func (l *ledger) result() Exactness {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.exact
	if e.Lost = e.Scheduled - e.Cancelled - e.Received; e.Lost < 0 { // of those that were cancelled some came
		e.Lost, e.Uncancelled = 0, e.Uncancelled-e.Lost
	}
	return e
}

// missing are the IDs of the timers that have not come, or not for the last time, and may
// still.
func (l *ledger) missing() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n, late := range l.byReceipt {
		if late == unseen && (l.timers == 0 || n+l.timers >= len(l.byReceipt)) {
			ids = append(ids, string(l.id(n)))
		}
	}
	return ids
}

// received is how many timers have arrived so far.
func (l *ledger) received() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.exact.Received
}
