// Package timer is the vocabulary of waterclock: what a timer is, the bytes it
// is stored in, and the pure state machine that turns requests and the passing
// of time into outcomes. It knows neither Kafka nor Pebble, holds no clock and
// starts no goroutine. Every other package speaks in these words.
package timer

// Unix milliseconds are the only instants waterclock computes with.
const (
	// AnyPartition as Target.Partition means: murmur2 of the key over the
	// partition count at firing or, with a null key, any partition that has a
	// leader.
	AnyPartition int32 = -1
	// Unplaced as TopicPartition.Partition means: which one is not known until it is
	// known what partitions the topic has, or that it does not exist.
	Unplaced int32 = -2
	// Beyond as TopicPartition.Partition means: one that the topic does not have, until it
	// has more, or is known not to get them.
	Beyond int32 = -3

	// NoOffset is the generation of a timer that is not there.
	NoOffset int64 = -1
)

// movedFrom is the generation of a timer that was moved by the first record of a
// changelog partition; those behind it go down.
const movedFrom = NoOffset - 1

// Moved is the generation of a timer that was moved to where it is: that came to
// this partition not by a request but by a record of the changelog partition, at
// the offset at. No request has that generation, and no other record.
func Moved(at int64) (generation int64) { return movedFrom - at }

// MovedAt is the changelog offset of a generation that Moved has given.
func MovedAt(generation int64) (at int64, moved bool) {
	return movedFrom - generation, generation <= movedFrom
}

// Header is one record header. A nil Value is Kafka's null.
type Header struct {
	Key   string
	Value []byte
}

// Target says where an emission goes.
type Target struct {
	Topic     string
	Partition int32  // explicit partition, or AnyPartition
	Key       []byte // key of the emission; nil is a null key
}

// Ref names one pending version of a timer within its partition: it is the key
// of the timer's row by due time, and unique, because two timers never come
// from one request. Refs order as timers fire: by due time, then by offset.
type Ref struct {
	Due    int64 // Unix milliseconds; of a steered timer a place apart, see Steering
	Offset int64 // the generation: offset of the request, one of Moved, or NoOffset
}

// Absent is the Ref of a timer that is not pending.
var Absent = Ref{Offset: NoOffset}

// IsAbsent reports whether r names no pending timer.
func (r Ref) IsAbsent() bool { return r.Offset == NoOffset }

// Compare orders refs by due time, then offset: -1, 0 or +1.
func (r Ref) Compare(o Ref) int {
	switch {
	case r.Due < o.Due:
		return -1
	case r.Due > o.Due:
		return 1
	case r.Offset < o.Offset:
		return -1
	case r.Offset > o.Offset:
		return 1
	}
	return 0
}

// Timer is one pending timer: what is stored, and all that an emission needs.
// A Timer is immutable once planned; it may be shared between goroutines.
type Timer struct {
	ID         []byte // 1 to 512 bytes
	Offset     int64  // generation: offset of the request in its request partition, or one of Moved; see Remember
	Due        int64  // Unix milliseconds of the next occurrence, by its schedule
	Occurrence int64  // number of the next occurrence, from 1
	Target     Target
	Headers    []Header // passed through, in order, duplicates included
	Value      []byte   // nil is Kafka's null
	// Recurrence says how it goes on behind this occurrence; nil: it does not.
	Recurrence *Recurrence
	// TooLate is the least lateness, in milliseconds, at which an occurrence is not
	// emitted any more; 0: no occurrence is too late.
	TooLate int64
	// Steering is what requests that steer have made of it; nil: nothing.
	Steering *Steering
	// Remember says for how long its ID stays taken when it has fired; nil: not at all.
	Remember *Remember
}

// Ref returns the timer's place among the pending ones; Absent for nil.
func (t *Timer) Ref() Ref {
	if t == nil {
		return Absent
	}
	if t.Steering != nil {
		return Ref{Due: t.Steering.refDue(), Offset: t.Offset}
	}
	return Ref{Due: t.Due, Offset: t.Offset}
}

// Size is about how many bytes of memory t holds, for limits in bytes.
func (t *Timer) Size() int {
	const fixed, recurrence, steering, remember = 192, 112, 24, 24 // the structs themselves and what refers to them
	n := fixed + len(t.ID) + len(t.Target.Topic) + len(t.Target.Key) + len(t.Value)
	for i := range t.Headers {
		n += 40 + len(t.Headers[i].Key) + len(t.Headers[i].Value)
	}
	if t.Recurrence != nil {
		n += recurrence + len(t.Recurrence.Cron) + len(t.Recurrence.Zone)
	}
	if t.Steering != nil {
		n += steering
	}
	if t.Remember != nil {
		n += remember + len(t.Remember.Token)
	}
	return n
}
