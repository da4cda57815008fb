package bench

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/audit/history"
)

// ErrInexact says that emissions were lost, duplicated, early or altered, or were emitted although their timers were
// cancelled. The report that comes with it has their numbers and no other figures.
var ErrInexact = history.ErrInexact

// payloadSeed makes payloads the same in every run.
const payloadSeed = 0x77617465

// batch is a set of timers that are scheduled together: their IDs, their payloads, and the book of received emissions.
type batch struct {
	*history.Book
	prefix string // of the IDs; the timer's number follows
	bytes  int    // payload of each timer
	// on selects the partitions of the IDs, which then have a suffix. nil: any partition.
	on         func(partition int) bool
	partitions int
	// that of Java clients; kept, because making one for each key took most of the producer's time
	places kgo.TopicPartitioner
}

func newBatch(prefix string, bytes, n int) *batch {
	return (&batch{prefix: prefix, bytes: bytes}).open(n)
}

// open gives the batch an empty book for n timers.
func (b *batch) open(n int) *batch {
	b.Book = history.NewBook(history.Timers{Prefix: b.prefix, Salted: b.on != nil, Value: func(v []byte, n int) []byte {
		return payload(v, n, b.bytes)
	}}, n)
	return b
}

// place restricts the IDs to some of the partitions. The caller opens the batch again.
func (b *batch) place(partitions int, on func(partition int) bool) *batch {
	b.partitions, b.on, b.places = partitions, on, kgo.StickyKeyPartitioner(nil).ForTopic("")
	return b
}

// id returns the ID of timer n.
func (b *batch) id(n int) []byte {
	id := strconv.AppendInt([]byte(b.prefix), int64(n), 10)
	if b.on == nil {
		return id
	}
	id = append(id, '.')
	for salt := int64(0); ; salt++ {
		if salted := strconv.AppendInt(id, salt, 10); b.on(b.places.Partition(&kgo.Record{Key: salted}, b.partitions)) {
			return salted
		}
	}
}

// payload returns the value of timer n.
func (b *batch) payload(n int) []byte {
	return payload(make([]byte, 0, b.bytes+7), n, b.bytes)
}

// payload appends the value of a timer: bytes that no other timer has and that cannot be compressed.
func payload(b []byte, number, bytes int) []byte {
	random := rand.NewPCG(payloadSeed, uint64(number))
	for len(b) < bytes {
		b = binary.LittleEndian.AppendUint64(b, random.Uint64())
	}
	return b[:bytes]
}

// Lateness is a distribution, in milliseconds.
type Lateness struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

func (l *Lateness) p99() float64 {
	if l == nil {
		return 0
	}
	return l.P99
}

// latenessOf sorts the values and returns their quantiles by nearest rank. perMs is how many units a millisecond has.
func latenessOf(values []int32, perMs float64) *Lateness {
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	ms := func(q float64) float64 {
		return float64(values[max(0, int(math.Ceil(q*float64(len(values))))-1)]) / perMs
	}
	return &Lateness{P50: ms(0.5), P99: ms(0.99), Max: ms(1)}
}

// window is a span of time; the zero one is all time.
type window struct{ from, to time.Time }

func (w window) holds(ms int64) bool {
	return w == window{} || ms >= w.from.UnixMilli() && ms < w.to.UnixMilli()
}

// receivedIn returns how many timers were received within w, by the consumer's clock.
func (b *batch) receivedIn(w window) (n int) {
	b.Each(func(due int64, byReceipt, _ int32) {
		if w.holds(due + int64(byReceipt)/1000) {
			n++
		}
	})
	return n
}

// lateness returns the lateness of timers that are due within w, by the emissions' timestamps and by receipt.
func (b *batch) lateness(w window) (byStamp, byReceipt *Lateness) {
	var stamps, receipts []int32
	b.Each(func(due int64, byReceipt, byStamp int32) {
		if w.holds(due) {
			stamps, receipts = append(stamps, byStamp), append(receipts, byReceipt)
		}
	})
	return latenessOf(stamps, 1), latenessOf(receipts, 1000)
}
