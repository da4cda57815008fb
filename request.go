package waterclock

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer"
)

// Schedule builds a request that schedules or reschedules the timer with the given ID (1 to [MaxIDBytes] bytes). The
// caller produces it to requestTopic with a kgo client. Schedule needs exactly one of [At], [After], [Every] and
// [Cron], or At together with Every. It also needs [To], unless the service has a default target for the topic. Without
// [Value] or [NullValue] the payload is empty.
//
// The producer must partition by Java's murmur2. That is kgo's default partitioner, but not librdkafka's (set
// partitioner=murmur2_random there). With another partitioner a later Cancel lands on another partition and cancels
// nothing.
//
// The error names every fault at once. Some faults only the service can find, such as a target that is not allowed or a
// limit that was lowered. It reports them as dead letters, see [ParseDeadLetter].
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

// Cancel builds a request that cancels the pending timer with the given ID. If none is pending, the request does
// nothing. The cancel wins if the service reads it before it has planned the firing; otherwise the firing wins. They
// never both happen.
//
// Cancel accepts the options [If] and [Timestamp]. So do [Trigger], [Pause] and [Resume].
func Cancel(requestTopic, id string, opts ...Option) (*kgo.Record, error) {
	return steer("cancel", HeaderCancel, requestTopic, id, opts)
}

// Trigger builds a request that fires the pending timer with the given ID now. It does nothing if no timer is pending,
// or if the timer was triggered before and has not fired yet. A timer that does not recur is then over. A recurring
// timer keeps its schedule: the extra firing is not one of its occurrences, and its Emission.Occurrence is 0. A paused
// timer fires too; if it recurs, it stays paused. Emission.Due is the timestamp of the request, or the time when the
// service read it if that is earlier.
func Trigger(requestTopic, id string, opts ...Option) (*kgo.Record, error) {
	return steer("trigger", HeaderTrigger, requestTopic, id, opts)
}

// Pause builds a request that pauses the pending timer with the given ID. The timer stays pending but does not fire
// until [Resume], unless it is triggered. Pause does nothing if no timer is pending or the timer is already paused. A
// request that schedules the ID again makes a new timer, which is not paused.
func Pause(requestTopic, id string, opts ...Option) (*kgo.Record, error) {
	return steer("pause", HeaderPause, requestTopic, id, opts)
}

// Resume builds a request that lets a paused timer fire again. If the timer is past due, it fires immediately. Of
// missed occurrences, those fire that the timer's [CatchUp] policy selects. [MaxLate] still counts from their due
// times. Resume does nothing if no paused timer is pending.
func Resume(requestTopic, id string, opts ...Option) (*kgo.Record, error) {
	return steer("resume", HeaderResume, requestTopic, id, opts)
}

// Move builds a request that makes the pending timer with the given ID due at another time. Everything else about the
// timer stays; its source is then the request. Of a recurring timer only the next occurrence moves. It fires in any
// case; of the occurrences that it passes, those fire after it that the timer's [CatchUp] policy selects. Move does
// nothing if no timer is pending. It needs exactly one of [At] and [After], and accepts [If] and [Timestamp].
func Move(requestTopic, id string, opts ...Option) (*kgo.Record, error) {
	return steer("move", HeaderMove, requestTopic, id, opts)
}

// steer builds a request that does not schedule. A plain cancel is a null value without headers, because that is the
// form that any client can write.
func steer(what, header, requestTopic, id string, opts []Option) (*kgo.Record, error) {
	d := draft{rec: kgo.Record{Topic: requestTopic, Key: []byte(id)}}
	d.check(requestTopic, id)
	if header != HeaderCancel || len(opts) > 0 {
		d.set(header, True)
	}
	for _, opt := range opts {
		opt(&d)
	}
	if header == HeaderMove && d.dues != 1 {
		d.fail("give exactly one of At and After, not %d", d.dues)
	}
	for _, h := range d.rec.Headers {
		if due := h.Key == HeaderAt || h.Key == HeaderAfter; h.Key != header && h.Key != HeaderIf &&
			!(due && header == HeaderMove) {
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

// Option is one property of a request. Options apply in order.
type Option func(*draft)

// draft is a request under construction.
type draft struct {
	rec    kgo.Record
	dues   int // how many options gave a due time
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

// At sets the due time. Fractions of a millisecond round up. An instant in the past means
// now.
func At(t time.Time) Option {
	return func(d *draft) {
		d.dues++
		d.recurs.at = true
		if t.IsZero() || t.Year() < 0 || t.Year() > 9999 {
			d.fail("At: %v cannot be a due time", t)
			return
		}
		d.set(HeaderAt, FormatInstant(ceilMilli(t)))
	}
}

// ceilMilli converts t to Unix milliseconds, rounded up.
func ceilMilli(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}

// FormatInstant writes Unix milliseconds as a value of [HeaderAt]: as a number, or in RFC 3339 for instants before
// March 1973, because the service takes smaller numbers for seconds.
func FormatInstant(unixMilli int64) string {
	if unixMilli >= MinUnixMilli {
		return strconv.FormatInt(unixMilli, 10)
	}
	return time.UnixMilli(unixMilli).UTC().Format(rfc3339Milli)
}

// rfc3339Milli is the layout of RFC 3339 with milliseconds.
const rfc3339Milli = "2006-01-02T15:04:05.000Z07:00"

// After makes the timer due d after the record's timestamp. That is the moment of producing, or the arrival at the
// broker if the topic has message.timestamp.type=LogAppendTime. d must not be negative. Fractions of a millisecond
// round up.
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

// If makes the request conditional: on [IfAbsent], [IfPresent], or a [Source] in text form, which is that of the timer
// that must be pending; or [IfChanged], if it schedules. The service checks the condition at the request's position in
// the log, not when the request is written. If it does not hold, the request changes nothing.
func If(condition string) Option {
	return func(d *draft) {
		if condition != IfAbsent && condition != IfPresent && condition != IfChanged {
			if _, err := ParseSource(condition); err != nil {
				d.fail("If: %q is none of %s, %s and %s, and no source such as timers/3/17", condition, IfAbsent,
					IfPresent, IfChanged)
			}
		}
		d.once(HeaderIf, condition)
	}
}

// To names the target topic, to which the emission is written.
func To(topic string) Option {
	return func(d *draft) {
		if !timer.ValidTopicName(topic) {
			d.fail("To: %q cannot be the name of a topic", topic)
		}
		d.once(HeaderTargetTopic, topic)
	}
}

// once sets a header that may be given only once.
func (d *draft) once(name, value string) {
	for _, h := range d.rec.Headers {
		if h.Key == name {
			d.fail("%s is set twice", name)
			return
		}
	}
	d.set(name, value)
}

// Key sets the key of the emission. Without it the key is the timer's ID. As everywhere in kgo, nil is Kafka's null:
// the same as [NullKey].
func Key(key []byte) Option {
	if key == nil {
		return NullKey()
	}
	return func(d *draft) {
		d.keys++
		d.set(HeaderTargetKey, string(key))
	}
}

// NullKey gives the emission a null key, so it may go to any partition.
func NullKey() Option {
	return func(d *draft) {
		d.keys++
		d.set(HeaderTargetKeyNull, True)
	}
}

// Partition sends the emission to the given partition of the target topic, from 0, instead of the one that its key
// selects.
func Partition(n int32) Option {
	return func(d *draft) {
		if n < 0 {
			d.fail("Partition: %d is outside 0 to %d", n, math.MaxInt32)
		}
		d.once(HeaderTargetPartition, strconv.FormatInt(int64(n), 10))
	}
}

// Value sets the payload. The service emits it byte for byte and never reads it. As everywhere in kgo, nil is Kafka's
// null: the emission is a tombstone.
func Value(value []byte) Option {
	return func(d *draft) { d.rec.Value = value }
}

// NullValue makes the emission a tombstone.
func NullValue() Option { return Value(nil) }

// Header adds a header that is passed through to the emission; nil is a null value. Headers keep their order, and a
// name may be given several times. Names that begin with timer- (in any case) or waterclock- are reserved for the
// service.
func Header(name string, value []byte) Option {
	return func(d *draft) {
		if reserved(name) || strings.HasPrefix(name, OwnPrefix) {
			d.fail("Header: the name %q is reserved", name)
		}
		d.rec.Headers = append(d.rec.Headers, kgo.RecordHeader{Key: name, Value: value})
	}
}

// Headers adds all headers of a consumed record except those that waterclock wrote. With it a consumer can schedule an
// emission again unchanged.
func Headers(headers []kgo.RecordHeader) Option {
	return func(d *draft) {
		for _, h := range passed(headers) {
			Header(h.Key, h.Value)(d)
		}
	}
}

// Labels gives the timer labels, by name: see [HeaderLabels]. No emission has them, unless [LabelsHeader] names a
// header for them.
func Labels(labels map[string]string) Option {
	return func(d *draft) {
		text, fault := timer.LabelsOf(labels)
		if fault != "" {
			d.fail("Labels: %s", fault)
		}
		if text != "" {
			d.once(HeaderLabels, string(text))
		}
	}
}

// LabelsHeader puts the labels of the timer into a header of its emissions: see [HeaderLabelsHeader].
func LabelsHeader(name string) Option {
	return func(d *draft) {
		if fault := timer.LabelsHeaderFault(name); fault != "" {
			d.fail("LabelsHeader: %s", fault)
		}
		d.once(HeaderLabelsHeader, name)
	}
}

// ParseLabels reads labels in the form of [HeaderLabels], such as those that [LabelsHeader] gives an emission.
func ParseLabels(text string) (map[string]string, error) {
	labels, fault := timer.ParseLabels(text)
	if fault != "" {
		return nil, fmt.Errorf("parse labels: %s", fault)
	}
	return labels.Map(), nil
}

// Timestamp sets the record's timestamp, in milliseconds, from which [After] counts.
// Without it kgo uses the moment of producing.
func Timestamp(t time.Time) Option {
	return func(d *draft) { d.rec.Timestamp = t }
}

// reserved reports whether name has a prefix that is reserved for instructions to the service, in any case.
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
