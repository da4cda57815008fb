package waterclock

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/span"
	"github.com/waterclock/waterclock/internal/timer"
)

// Schedule builds the request that schedules, or re-schedules, the timer of
// that ID (1 to [MaxIDBytes] bytes) and returns it for a kgo client to produce
// to requestTopic. It needs exactly one of [At], [After], [Every] and [Cron], or At
// with Every, and [To] unless the service has a default target for the topic.
// Without [Value] or [NullValue] the payload is empty.
//
// The producer must partition by Java's murmur2. kgo's default partitioner
// does; librdkafka's does not (set partitioner=murmur2_random there). Else a
// later Cancel lands on another partition and cancels nothing.
//
// The error names every fault at once. What Schedule cannot know (which targets
// are allowed, what limits are lowered) the service checks; it answers with a
// dead letter, see [ParseDeadLetter].
func Schedule(requestTopic, id string, opts ...Option) (*kgo.Record, error) {
	d := draft{rec: kgo.Record{Topic: requestTopic, Key: []byte(id), Value: []byte{}}}
	d.check(requestTopic, id)
	for _, opt := range opts {
		opt(&d)
	}
	d.checkWhen()
	if d.keys > 1 {
		d.fail("give one of Key and NullKey at most once")
	}
	if len(d.faults) > 0 {
		return nil, fmt.Errorf("build request for timer %q: %w", id, errors.Join(d.faults...))
	}
	return &d.rec, nil
}

// Cancel builds the request that cancels the timer of that ID. It does nothing
// where no such timer is pending. It wins against the firing if the service
// has read it before the firing was planned, else it loses: never both.
//
// Of the options it takes [If] and [Timestamp], as [Trigger], [Pause] and [Resume] do.
func Cancel(requestTopic, id string, opts ...Option) (*kgo.Record, error) {
	return steer("cancel", HeaderCancel, requestTopic, id, opts)
}

// Trigger builds the request that fires what is pending of that ID now. It does nothing
// where nothing is pending, or was triggered before and has not fired yet. A timer that
// does not recur is over then. One that recurs goes on as if nothing had been: the
// firing is beside its schedule, and its Emission.Occurrence is 0. A timer that is
// paused fires as well, and if it recurs it stays paused. Emission.Due is the timestamp of the
// request, or when the service read it if that is earlier.
func Trigger(requestTopic, id string, opts ...Option) (*kgo.Record, error) {
	return steer("trigger", HeaderTrigger, requestTopic, id, opts)
}

// Pause builds the request that keeps the timer of that ID pending and has it not fire
// until [Resume]; what was triggered fires nevertheless. It does nothing where nothing
// is pending, or that is paused already. A request that schedules the ID again makes
// another timer, which is not paused.
func Pause(requestTopic, id string, opts ...Option) (*kgo.Record, error) {
	return steer("pause", HeaderPause, requestTopic, id, opts)
}

// Resume builds the request that has a paused timer fire again: at once if it is past
// due, and of occurrences that were missed those that its [CatchUp] has fire. [MaxLate]
// counts from when they were due. It does nothing where no paused timer is pending.
func Resume(requestTopic, id string, opts ...Option) (*kgo.Record, error) {
	return steer("resume", HeaderResume, requestTopic, id, opts)
}

// steer builds a request that does not schedule. A plain cancel is a null value and
// nothing else, as any client can write it.
func steer(what, header, requestTopic, id string, opts []Option) (*kgo.Record, error) {
	d := draft{rec: kgo.Record{Topic: requestTopic, Key: []byte(id)}}
	d.check(requestTopic, id)
	if header != HeaderCancel || len(opts) > 0 {
		d.set(header, True)
	}
	for _, opt := range opts {
		opt(&d)
	}
	for _, h := range d.rec.Headers {
		if h.Key != header && h.Key != HeaderIf {
			d.fail("%s has no effect on a %s: leave it out", h.Key, what)
		}
	}
	if d.rec.Value != nil {
		d.fail("a %s has no value: leave it out", what)
	}
	if len(d.faults) > 0 {
		return nil, fmt.Errorf("build %s for timer %q: %w", what, id, errors.Join(d.faults...))
	}
	return &d.rec, nil
}

// Option is one thing that a request says. Options apply in order.
type Option func(*draft)

// draft is a request while it is built.
type draft struct {
	rec    kgo.Record
	dues   int // how many options said when, once
	keys   int // how many options set the key
	recurs recurs
	faults []error
}

func (d *draft) fail(format string, args ...any) {
	d.faults = append(d.faults, fmt.Errorf(format, args...))
}

func (d *draft) set(name, value string) {
	d.rec.Headers = append(d.rec.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
}

func (d *draft) check(topic, id string) {
	if !timer.ValidTopicName(topic) {
		d.fail("request topic %q cannot be the name of a topic", topic)
	}
	if len(id) == 0 || len(id) > MaxIDBytes {
		d.fail("an ID has 1 to %d bytes, not %d", MaxIDBytes, len(id))
	}
}

// At says that the timer is due at t. Fractions of a millisecond round up; an
// instant in the past means now.
func At(t time.Time) Option {
	return func(d *draft) {
		d.dues++
		d.recurs.at = true
		if t.IsZero() || t.Year() < 0 || t.Year() > 9999 {
			d.fail("At: %v is no instant to schedule for", t)
			return
		}
		d.set(HeaderAt, FormatInstant(ceilMilli(t)))
	}
}

// ceilMilli is an instant in Unix milliseconds, rounded up.
func ceilMilli(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}

// FormatInstant writes Unix milliseconds as a value of [HeaderAt]: as the
// number or, before March 1973 where the service takes numbers for seconds, as
// RFC 3339.
func FormatInstant(unixMilli int64) string {
	if unixMilli >= MinUnixMilli {
		return strconv.FormatInt(unixMilli, 10)
	}
	return time.UnixMilli(unixMilli).UTC().Format(rfc3339Milli)
}

// rfc3339Milli is RFC 3339 to the millisecond.
const rfc3339Milli = "2006-01-02T15:04:05.000Z07:00"

// After says that the timer is due d after the record's timestamp: the moment
// of producing, or of arrival at the broker where the topic has
// message.timestamp.type=LogAppendTime. d is not negative; fractions of a
// millisecond round up.
func After(d time.Duration) Option {
	return func(r *draft) {
		r.dues++
		if d < 0 {
			r.fail("After: %s is negative", span.String(d))
			return
		}
		r.set(HeaderAfter, formatDuration(d))
	}
}

// formatDuration writes a duration in milliseconds, rounded up.
func formatDuration(d time.Duration) string {
	ms := d.Milliseconds()
	if d%time.Millisecond != 0 {
		ms++
	}
	return strconv.FormatInt(ms, 10) + "ms"
}

// If is what the request counts under: [IfAbsent], [IfPresent], or a [Source] as text,
// which is that of the timer that is to be pending. It holds or not where the request
// stands in the log, whatever was known when it was written; if not, it changes nothing.
func If(condition string) Option {
	return func(d *draft) {
		if condition != IfAbsent && condition != IfPresent {
			if _, err := ParseSource(condition); err != nil {
				d.fail("If: %q is neither %s nor %s nor a source: %w", condition, IfAbsent, IfPresent, err)
			}
		}
		d.once(HeaderIf, condition)
	}
}

// To names the topic that the emission goes to.
func To(topic string) Option {
	return func(d *draft) {
		if !timer.ValidTopicName(topic) {
			d.fail("To: %q cannot be the name of a topic", topic)
		}
		d.once(HeaderTargetTopic, topic)
	}
}

// once sets a header that may be there once.
func (d *draft) once(name, value string) {
	for _, h := range d.rec.Headers {
		if h.Key == name {
			d.fail("%s is set twice", name)
			return
		}
	}
	d.set(name, value)
}

// Key sets the key of the emission; without it the key is the timer's ID. As
// everywhere in kgo, nil is Kafka's null: the same as [NullKey].
func Key(key []byte) Option {
	if key == nil {
		return NullKey()
	}
	return func(d *draft) {
		d.keys++
		d.set(HeaderTargetKey, string(key))
	}
}

// NullKey gives the emission a null key: it goes to any partition.
func NullKey() Option {
	return func(d *draft) {
		d.keys++
		d.set(HeaderTargetKeyNull, True)
	}
}

// Partition sends the emission to that partition of the target topic, from 0,
// instead of the one of its key.
func Partition(n int32) Option {
	return func(d *draft) {
		if n < 0 {
			d.fail("Partition: %d is outside 0 to %d", n, math.MaxInt32)
		}
		d.once(HeaderTargetPartition, strconv.FormatInt(int64(n), 10))
	}
}

// Value sets the payload, which the service emits byte for byte and never looks
// at. As everywhere in kgo, nil is Kafka's null: the emission is a tombstone.
func Value(value []byte) Option {
	return func(d *draft) { d.rec.Value = value }
}

// NullValue makes the emission a tombstone.
func NullValue() Option { return Value(nil) }

// Header adds a header that is passed through to the emission, nil for a null
// value. Headers keep their order; one name may be given several times. Names
// that begin with timer- (in any case) or waterclock- are the service's.
func Header(name string, value []byte) Option {
	return func(d *draft) {
		if reserved(name) || strings.HasPrefix(name, OwnPrefix) {
			d.fail("Header: the name %q is reserved", name)
		}
		d.rec.Headers = append(d.rec.Headers, kgo.RecordHeader{Key: name, Value: value})
	}
}

// Headers adds all headers of a record that was consumed, but for those that
// waterclock wrote: so an emission can be scheduled again as it came.
func Headers(headers []kgo.RecordHeader) Option {
	return func(d *draft) {
		for _, h := range passed(headers) {
			Header(h.Key, h.Value)(d)
		}
	}
}

// Timestamp sets the record's timestamp, in milliseconds, from which [After]
// counts. Without it kgo takes the moment of producing.
func Timestamp(t time.Time) Option {
	return func(d *draft) { d.rec.Timestamp = t }
}

// reserved reports whether name speaks to the service, or tries to.
func reserved(name string) bool {
	return len(name) >= len(RequestPrefix) && strings.EqualFold(name[:len(RequestPrefix)], RequestPrefix)
}

// passed returns the headers that waterclock did not write.
func passed(headers []kgo.RecordHeader) []kgo.RecordHeader {
	var kept []kgo.RecordHeader
	for _, h := range headers {
		if !strings.HasPrefix(h.Key, OwnPrefix) {
			kept = append(kept, h)
		}
	}
	return kept
}
