package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// ErrInexact says that emissions were lost, doubled, early or altered. The
// report that comes with it tells how many.
var ErrInexact = errors.New("emissions are not exact")

// payloadSeed makes payloads the same in every run.
const payloadSeed = 0x77617465

// Exactness is what became of the timers of a phase, as a read_committed
// consumer saw it. All but the first two must be 0.
type Exactness struct {
	Scheduled int `json:"scheduled"`
	Received  int `json:"received"` // timers whose emission came at least once
	Lost      int `json:"lost"`
	Doubled   int `json:"doubled"`
	Early     int `json:"early"`   // by timestamp or by receipt
	Altered   int `json:"altered"` // another due time, key or value, or no timer of the phase
}

// err is nil if nothing is wrong.
func (e Exactness) err(phase string) error {
	if e.Lost+e.Doubled+e.Early+e.Altered == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d lost, %d doubled, %d early, %d altered of %d: %w",
		phase, e.Lost, e.Doubled, e.Early, e.Altered, e.Scheduled, ErrInexact)
}

// ledger knows what was scheduled in a phase and books what arrives. It knows
// nothing of the service's code: it reads the headers that users read. mu guards
// what follows it.
type ledger struct {
	prefix string // of the IDs of the phase; the timer's number follows
	bytes  int    // payload of each timer

	mu      sync.Mutex
	due     []int64 // Unix ms by number
	seen    []bool
	exact   Exactness
	closed  bool // nothing more is scheduled
	byStamp *histogram
	byClock *histogram
	first   time.Time // receipt
	last    time.Time
	full    chan struct{} // closed when closed and all are received
	value   []byte        // scratch of receive
}

func newLedger(prefix string, bytes, n int) *ledger {
	return &ledger{
		prefix: prefix, bytes: bytes, due: make([]int64, 0, n), seen: make([]bool, 0, n),
		byStamp: newHistogram(), byClock: newHistogram(), full: make(chan struct{}),
	}
}

// schedule notes the next timer and returns its ID and its payload.
func (l *ledger) schedule(due int64) (id, value []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.due)
	id = strconv.AppendInt([]byte(l.prefix), int64(n), 10)
	l.due, l.seen = append(l.due, due), append(l.seen, false)
	l.exact.Scheduled++
	return id, payload(make([]byte, 0, l.bytes+7), n, l.bytes)
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

// close says that no further timer is scheduled.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.check()
}

func (l *ledger) check() {
	if l.closed && l.exact.Received == l.exact.Scheduled {
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
	id, due := string(r.Key), ""
	for _, h := range r.Headers {
		switch h.Key {
		case waterclock.HeaderID:
			id = string(h.Value)
		case waterclock.HeaderDue:
			due = string(h.Value)
		}
	}
	number, ok := strings.CutPrefix(id, l.prefix)
	if !ok {
		return false
	}
	n, err := strconv.Atoi(number)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || n < 0 || n >= len(l.due) {
		l.exact.Altered++
		return true
	}
	want := l.due[n]
	l.value = payload(l.value[:0], n, l.bytes)
	switch {
	case l.seen[n]:
		l.exact.Doubled++
		return true
	case due != strconv.FormatInt(want, 10), string(r.Key) != id, !bytes.Equal(r.Value, l.value):
		l.exact.Altered++
	case r.Timestamp.UnixMilli() < want, at.UnixMilli() < want:
		l.exact.Early++
	}
	l.seen[n] = true
	l.exact.Received++
	l.byStamp.record(r.Timestamp.Sub(time.UnixMilli(want)))
	l.byClock.record(at.Sub(time.UnixMilli(want)))
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
	e.Lost = e.Scheduled - e.Received
	return e
}

// missing are the IDs of the timers that have not come.
func (l *ledger) missing() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n, seen := range l.seen {
		if !seen {
			ids = append(ids, l.prefix+strconv.Itoa(n))
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
