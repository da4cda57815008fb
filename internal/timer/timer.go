// Package timer is the vocabulary of waterclock: the type of a timer, its encoding, and the pure state machine that
// turns requests and the passing of time into outcomes.
//
//	entry := request.Apply(before, pending) // one decision about one timer
//	bytes := entry.After.AppendTo(nil)      // its stored form
//	t, err := timer.Decode(bytes)
//
// It knows neither Kafka nor Pebble, has no clock and starts no goroutine. Every other package uses its terms.
package timer

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// All instants in waterclock are Unix milliseconds.
const (
	// AnyPartition, as Target.Partition, means murmur2 of the key modulo the number of partitions at firing. With a
	// null key it means any partition that has a leader.
	AnyPartition int32 = -1
	// Unplaced, as TopicPartition.Partition, means that the partition is not known yet. It
	// becomes known when the topic's partitions are known, or when the topic is known not
	// to exist.
	Unplaced int32 = -2
	// Beyond, as TopicPartition.Partition, means a partition that the topic does not have.
	// The state ends when the topic gets more partitions, or is known not to get them.
	Beyond int32 = -3
	// Deferred, as TopicPartition.Partition, stands for all partitions of a topic whose rate keeps timers waiting.
	Deferred int32 = -4

	// NoOffset is the generation of a timer that does not exist.
	NoOffset int64 = -1
)

// movedFrom is the generation of a timer that was moved by the first record of a changelog partition. Later records
// have lower generations.
const movedFrom = NoOffset - 1

// MovedBy returns the generation of a timer that came to this partition not by a request but by the record of the
// changelog partition at offset at. No request and no other record has that generation.
func MovedBy(at int64) (generation int64) { return movedFrom - at }

// MovedAt returns the changelog offset of a generation that MovedBy has returned.
func MovedAt(generation int64) (at int64, moved bool) {
	return movedFrom - generation, generation <= movedFrom
}

// Header is one record header. A nil Value is Kafka's null.
type Header struct {
	Key   string
	Value []byte
}

// Target is the destination of an emission.
type Target struct {
	Topic     string
	Partition int32  // explicit partition, or AnyPartition
	Key       []byte // key of the emission; nil is a null key
}

// Ref names one pending version of a timer within its partition. It is the key of the timer's row by due time. It is
// unique, because no two timers come from one request. Refs sort in the order of firing: by due time, then by offset.
type Ref struct {
	Due    int64 // Unix milliseconds; steered timers have special values, see Steering
	Offset int64 // the generation: offset of the request, one of MovedBy, or NoOffset
}

// Absent is the Ref of a timer that is not pending.
var Absent = Ref{Offset: NoOffset}

// IsAbsent reports whether r names no pending timer.
func (r Ref) IsAbsent() bool { return r.Offset == NoOffset }

// Compare orders refs by due time, then offset: -1, 0 or +1.
func (r Ref) Compare(o Ref) int {
	if r.Due != o.Due {
		return cmp.Compare(r.Due, o.Due)
	}
	return cmp.Compare(r.Offset, o.Offset)
}

// Timer is one pending timer: everything that is stored, and everything that an emission needs. A Timer is immutable
// once it is planned, and may be shared between goroutines.
type Timer struct {
	ID         []byte // 1 to 512 bytes
	Offset     int64  // generation: offset of the request in its request partition, or one of MovedBy; see Remember
	Due        int64  // Unix milliseconds of the next occurrence, by its schedule
	Occurrence int64  // number of the next occurrence, from 1
	Target     Target
	Headers    []Header // passed through, in order, duplicates included
	Value      []byte   // nil is Kafka's null
	// Recurrence says how the timer recurs, and its jitter; nil: it fires once, without jitter. See Recurs.
	Recurrence *Recurrence
	// TooLate is the lateness, in milliseconds, from which an occurrence is no longer emitted; 0: no limit.
	TooLate int64
	// Steering is the effect of pause and trigger requests; nil: none.
	Steering *Steering
	// Remember defines how long the ID stays taken after the last firing; nil: not at all.
	Remember *Remember
	// Labels are for those who look for timers: nothing that happens to a timer depends on them.
	Labels Labels
}

// Ref returns the Ref of t; Absent for nil.
func (t *Timer) Ref() Ref {
	if t == nil {
		return Absent
	}
	if t.Steering != nil {
		return Ref{Due: t.Steering.refDue(), Offset: t.Offset}
	}
	return Ref{Due: t.Due, Offset: t.Offset}
}

// Size returns about how many bytes of memory t holds, for limits in bytes.
func (t *Timer) Size() int {
	const fixed, recurrence, steering, remember = 208, 192, 24, 24 // the structs themselves and the references to them
	n := fixed + len(t.ID) + len(t.Target.Topic) + len(t.Target.Key) + len(t.Value) + len(t.Labels)
	for i := range t.Headers {
		n += 40 + len(t.Headers[i].Key) + len(t.Headers[i].Value)
	}
	if t.Recurrence != nil {
		n += recurrence + len(t.Recurrence.Cron) + len(t.Recurrence.Zone) + len(t.Recurrence.NotOn)
	}
	if t.Steering != nil {
		n += steering
	}
	if t.Remember != nil {
		n += remember + len(t.Remember.Token)
	}
	return n
}

// TopicPartition names one partition of a topic. With AnyPartition, Unplaced, Beyond or Deferred it stands
// for the topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Label returns the partition as a label for metrics.
func (t TopicPartition) Label() string {
	switch t.Partition {
	case AnyPartition:
		return "any"
	case Unplaced:
		return "unknown"
	case Beyond:
		return "beyond"
	case Deferred:
		return "deferred"
	}
	return strconv.Itoa(int(t.Partition))
}

// Name returns topic/partition, for ParseTopicPartition.
func (t TopicPartition) Name() string { return t.Topic + "/" + strconv.Itoa(int(t.Partition)) }

// ParseTopicPartition reads what Name has returned.
func ParseTopicPartition(name string) (TopicPartition, error) {
	topic, number, _ := strings.Cut(name, "/")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return TopicPartition{}, fmt.Errorf("%q: want topic/partition", name)
	}
	return TopicPartition{Topic: topic, Partition: int32(n)}, nil
}

// MaxTopicNameBytes is the maximum length of the name of a Kafka topic, in bytes.
const MaxTopicNameBytes = 249

// ValidTopicName reports whether Kafka accepts name as the name of a topic: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and
// '-', but not "." or ".." (the rule of Kafka's org.apache.kafka.common.internals.Topic).
func ValidTopicName[S string | []byte](name S) bool {
	if len(name) == 0 || len(name) > MaxTopicNameBytes {
		return false
	}
	dots := 0
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.':
			dots++
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return dots < len(name) || len(name) > 2
}

// Size is a number of entries, and about how many bytes they hold. It measures a load, or the room for one.
type Size struct {
	Entries int
	Bytes   int64
}

// Unlimited is larger than any load.
var Unlimited = Size{Entries: math.MaxInt, Bytes: math.MaxInt64}

// Plus returns s and o together.
func (s Size) Plus(o Size) Size { return Size{s.Entries + o.Entries, s.Bytes + o.Bytes} }

// Minus returns s without o. It may be negative.
func (s Size) Minus(o Size) Size { return Size{s.Entries - o.Entries, s.Bytes - o.Bytes} }

// Min returns the smaller number of entries and the smaller number of bytes.
func (s Size) Min(o Size) Size { return Size{min(s.Entries, o.Entries), min(s.Bytes, o.Bytes)} }

// Max returns the larger number of entries and the larger number of bytes.
func (s Size) Max(o Size) Size { return Size{max(s.Entries, o.Entries), max(s.Bytes, o.Bytes)} }

// Over returns the n-th part of s.
func (s Size) Over(n int) Size { return Size{s.Entries / n, s.Bytes / int64(n)} }

// IsUsedUp reports whether s leaves no room for anything.
func (s Size) IsUsedUp() bool { return s.Entries <= 0 || s.Bytes <= 0 }

// Refusal is why a request or an emission becomes a dead letter.
type Refusal struct {
	Reason string // a waterclock.Reason
	Detail string // one sentence that names the problem and the remedy; at most MaxDetailBytes
}

// MaxDetailBytes bounds the detail of a rejection, of an event and of a dead letter. Errors that a detail quotes may be
// as long as the request.
const MaxDetailBytes = 1024

// CutDetail returns at most MaxDetailBytes of a detail, cut between two characters. What it cuts does not share the
// detail's memory.
func CutDetail(detail string) string {
	if len(detail) <= MaxDetailBytes {
		return detail
	}
	return strings.ToValidUTF8(strings.Clone(detail[:MaxDetailBytes]), "")
}
