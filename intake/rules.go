package intake

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// Limits bounds one request. A zero field means its default.
type Limits struct {
	// Horizon limits how far ahead of now a timer may be due.
	Horizon time.Duration
	// Headers is the largest number of headers. Headers that begin with waterclock- are dropped
	// and do not count, nor do one traceparent and one tracestate.
	Headers int
	// HeaderBytes bounds names and values of the counted headers together.
	HeaderBytes int
	// ValueBytes bounds the value of a request that schedules. Zero leaves it to the request topic's max.message.bytes.
	ValueBytes int
	// RecordBytes bounds key, headers and value together, without compression: it is the request topic's
	// max.message.bytes. A batch that fits only when compressed may not fit into the changelog. Zero: no limit.
	RecordBytes int
	// Interval is the shortest interval between two occurrences of a recurring timer, apart from
	// jitter and changes of the clock.
	Interval time.Duration
}

// The default limits.
const (
	DefaultHorizon     = 100 * 365.25 * 24 * time.Hour // 100 years
	DefaultHeaders     = 128
	DefaultHeaderBytes = 64 << 10
	DefaultInterval    = 100 * time.Millisecond
)

// DefaultLimits returns the limits without any configuration.
func DefaultLimits() Limits {
	return Limits{Horizon: DefaultHorizon, Headers: DefaultHeaders, HeaderBytes: DefaultHeaderBytes,
		Interval: DefaultInterval}
}

// PartitionerCheck is the treatment of a misplaced record: one that is not on the partition that murmur2 of its key
// names.
type PartitionerCheck uint8

// The checks. Off does not look. Warn reports the record and takes it. DeadLetter reports and rejects it.
const (
	Off PartitionerCheck = iota
	Warn
	DeadLetter
)

// Rules validate the requests of one request topic. Once Validate has been called, any number of goroutines may call
// it; then the exported fields must not change and the Rules must not be copied. Replace puts other rules in their
// place.
type Rules struct {
	Topic      string // the request topic, for details and timer-if
	Changelog  string // its changelog, which timer-if may name; empty: none
	Partitions int32  // partition count of the request topic
	// DefaultTarget is the target of requests without timer-target-topic. If it is empty, they are rejected.
	DefaultTarget string
	// Allow reports whether emissions may go to a topic. Never is called before it: it returns the reason why no
	// configuration could allow a topic, as a sentence without its end, or "". Their answers are cached, so they must
	// not change. A nil Allow allows no topic. Topics that begin with __ are never allowed, even with a nil Never.
	Allow            func(topic string) bool
	Never            func(topic string) string
	PartitionerCheck PartitionerCheck
	Limits           Limits
	Quota            Quota
	// DefaultMaxLate is the timer-max-late of requests without that header; 0: they have none.
	DefaultMaxLate time.Duration
	// LimitPast limits how far before its record's timestamp a timer may be due. A timer that is due earlier expires
	// immediately, unless it recurs or has a timer-max-late. 0: no limit.
	LimitPast time.Duration
	// Dialect is the language in which requests may be written, in addition to our own headers.
	Dialect Dialect

	targets   targets
	newer     atomic.Pointer[Rules] // see Replace
	schedules calendar.Cache
}

// Replace makes all later calls of Validate use other rules of the same topic, which must not have been used before,
// with the same calendars.
// No request is validated by a mixture of both. It may be called at any time, and repeatedly.
func (r *Rules) Replace(with *Rules) {
	with.schedules.Calendars = r.schedules.Calendars
	r.newer.Store(with)
}

// Schedules caches the schedules of the topic's recurring timers. It stays the same when r is replaced.
func (r *Rules) Schedules() *calendar.Cache { return &r.schedules }

// Current returns r, or the rules that have replaced it.
func (r *Rules) Current() *Rules {
	if newer := r.newer.Load(); newer != nil {
		return newer
	}
	return r
}

// Refuse returns a refusal with a formatted detail.
func Refuse(reason waterclock.Reason, format string, args ...any) *timer.Refusal {
	return &timer.Refusal{Reason: string(reason), Detail: timer.CutDetail(fmt.Sprintf(format, args...))}
}

// quotedBytes is the number of bytes of a value that a detail shows.
const quotedBytes = 64

func quote[B []byte | string](text B) string {
	if len(text) > quotedBytes {
		return fmt.Sprintf("%q… (%d bytes)", text[:quotedBytes], len(text))
	}
	return fmt.Sprintf("%q", text)
}

// Validate turns one record of the request topic into a request, or returns the reason for rejecting it. now is in
// Unix milliseconds; the horizon and requests that steer depend on it. Apart from that, the result does not depend on
// when the record is read.
//
// req shares the record's memory. With a refusal it has only ID and Offset. misplaced reports that the record is not
// on the partition that murmur2 of its key names; it is always false if PartitionerCheck is Off.
func (r *Rules) Validate(rec *kgo.Record, now int64) (req timer.Request, misplaced bool, refusal *timer.Refusal) {
	r = r.Current()
	req = timer.Request{ID: rec.Key, Offset: rec.Offset}
	switch {
	case len(rec.Key) == 0:
		return req, false, Refuse(waterclock.ReasonBadKey,
			"the record has no key: its key is the timer's ID, 1 to %d bytes.", waterclock.MaxIDBytes)
	case len(rec.Key) > waterclock.MaxIDBytes:
		return req, false, Refuse(waterclock.ReasonBadKey,
			"the record's key is the timer's ID and has %d bytes: give it 1 to %d.", len(rec.Key),
			waterclock.MaxIDBytes)
	}
	if r.PartitionerCheck != Off && r.Partitions > 0 {
		want := Murmur2Partition(rec.Key, r.Partitions)
		misplaced = want != rec.Partition
		if misplaced && r.PartitionerCheck == DeadLetter {
			return req, true, Refuse(waterclock.ReasonWrongPartition,
				"the record lies on partition %d and murmur2 of its key names %d: set the producer's partitioner to "+
					"murmur2 (librdkafka: partitioner=murmur2_random).", rec.Partition, want)
		}
	}
	if refusal = countHeaders(rec); refusal != nil {
		return req, misplaced, refusal
	}
	said := rec
	if rec, refusal = r.Dialect.translate(said, &r.Limits); refusal != nil {
		return req, misplaced, refusal
	}
	var h headers
	if refusal = h.read(rec.Headers, &r.Limits); refusal != nil {
		return req, misplaced, refusal
	}
	steer, steers, refusal := h.steers(rec)
	if refusal == nil {
		req.If, refusal = r.condition(&h, rec.Partition)
	}
	if refusal != nil {
		return timer.Request{ID: rec.Key, Offset: rec.Offset}, misplaced, refusal
	}
	if steers {
		if req.If.Kind == timer.IfChanged {
			return timer.Request{ID: rec.Key, Offset: rec.Offset}, misplaced, Refuse(waterclock.ReasonBadIf,
				"timer-if is changed and the request does not schedule: leave it out, or send present.")
		}
		switch req.Steer = steer; steer {
		case 0:
		case timer.Move:
			if req.At, refusal = r.moved(&h, rec, now); refusal != nil {
				req = timer.Request{ID: rec.Key, Offset: rec.Offset}
			}
		default:
			req.At = asked(steer, rec, now)
		}
		return req, misplaced, refusal
	}
	t, refusal := r.schedule(rec, &h, now)
	if refusal == nil && isOver(said) {
		refusal = Refuse(waterclock.ReasonOverQuota,
			"requests on %s come faster than the limit of each of its %d partitions: send fewer, spread their keys, "+
				"or raise limit-rate.", r.Topic, r.Partitions)
	}
	if refusal != nil {
		return timer.Request{ID: rec.Key, Offset: rec.Offset}, misplaced, refusal
	}
	if t.IsSkipped() {
		req.At = now
	}
	if req.Schedule = t; req.If.Kind == timer.IfChanged && rec != said {
		req.If.Stamp = r.Dialect.stamp()
	}
	if r.isPast(t, &h, rec) {
		if req.If.Kind == timer.IfChanged {
			req.If.Past, req.If.OnTime = true, t.TooLate
		}
		t.TooLate = 1 // already later than that, so it expires
	}
	return req, misplaced, nil
}

// schedule builds the timer of a request that schedules.
func (r *Rules) schedule(rec *kgo.Record, h *headers, now int64) (*timer.Timer, *timer.Refusal) {
	now = horizonFrom(rec, now)
	recurrence, refusal := r.recurrence(h, now)
	if refusal != nil {
		return nil, refusal
	}
	due, refusal := h.due(rec, &recurrence)
	if refusal == nil {
		refusal = r.beyond(due, now)
	}
	if refusal != nil {
		return nil, refusal
	}
	target, refusal := r.target(rec, h)
	if refusal != nil {
		return nil, refusal
	}
	if limit := r.Limits.RecordBytes; limit > 0 && recordBytes(rec) > limit {
		return nil, Refuse(waterclock.ReasonValueTooLarge,
			"the request has %d bytes without compression and the topic's max.message.bytes is %d: send a smaller "+
				"value, or raise the setting of the request topic and its own topics.", recordBytes(rec), limit)
	}
	if limit := r.Limits.ValueBytes; limit > 0 && len(rec.Value) > limit {
		return nil, Refuse(waterclock.ReasonValueTooLarge,
			"the value has %d bytes, the limit is %d: send a reference to the payload instead, or raise the limit.",
			len(rec.Value), limit)
	}
	t := &timer.Timer{
		ID:         rec.Key,
		Offset:     rec.Offset,
		Due:        due,
		Occurrence: 1,
		Target:     target,
		Headers:    h.passed(rec.Headers),
		Value:      rec.Value,
	}
	if refusal = r.maxLate(h, t); refusal == nil {
		t.Remember, refusal = h.remember()
	}
	if refusal == nil {
		refusal = h.labels(t)
	}
	switch {
	case refusal != nil:
	case h.recurs():
		refusal = r.start(t, recurrence, due, rec.Timestamp.UnixMilli(), now)
	case recurrence.Recurrence != nil:
		if !recurrence.Start(t, due, rec.Timestamp.UnixMilli()) && !recurrence.Skip(t, due, rec.Timestamp.UnixMilli()) {
			refusal = neverDue(recurrence.Recurrence)
		} else {
			refusal = r.beyond(t.Due, now)
		}
	}
	return t, refusal
}

// isPast reports whether t was due longer before its request was written than LimitPast allows.
func (r *Rules) isPast(t *timer.Timer, h *headers, rec *kgo.Record) bool {
	return r.LimitPast > 0 && !h.recurs() && !h.has(maxLateHeader) &&
		rec.Timestamp.UnixMilli()-t.Due > r.LimitPast.Milliseconds()
}

// horizonGrace limits how far ahead of the owner's clock a record's timestamp may be to count for the horizon.
const horizonGrace = time.Hour

// horizonFrom returns the start of a request's horizon: the owner's clock or, if that is later, the record's
// timestamp. So no timer-after within the limit is rejected because two clocks differ.
func horizonFrom(rec *kgo.Record, now int64) int64 {
	return max(now, min(rec.Timestamp.UnixMilli(), now+horizonGrace.Milliseconds()))
}

// beyond rejects a due time further ahead than the horizon.
func (r *Rules) beyond(due, now int64) *timer.Refusal {
	if horizon := cmp.Or(r.Limits.Horizon, DefaultHorizon); due > now && due-now > horizon.Milliseconds() {
		return Refuse(waterclock.ReasonBeyondHorizon,
			"the timer is due at %s, further ahead than %s: choose an earlier time, or send the request when it is "+
				"nearer.", instant(due), span.String(horizon))
	}
	return nil
}

// due returns the due time in Unix milliseconds, at most 2·maxMillis. For a recurring timer that is its first due
// time or, with a cron expression, a time before it.
func (h *headers) due(rec *kgo.Record, recurrence *calendar.Recurrence) (int64, *timer.Refusal) {
	switch {
	case h.has(atHeader) && h.has(afterHeader):
		return 0, Refuse(waterclock.ReasonConflictingHeaders,
			"timer-at comes together with timer-after: send one of them.")
	case h.has(atHeader):
		return parseInstant(waterclock.HeaderAt, waterclock.ReasonBadTime, h.values[atHeader])
	}
	var after int64
	var refusal *timer.Refusal
	by := waterclock.HeaderAfter
	switch {
	case h.has(everyHeader):
		by = waterclock.HeaderEvery
	case h.has(cronHeader):
		by = waterclock.HeaderCron
	case h.has(afterHeader):
		after, refusal = parseDuration(waterclock.HeaderAfter, waterclock.ReasonBadDuration, h.values[afterHeader])
	default:
		refusal = Refuse(waterclock.ReasonNoDueTime,
			"nothing says when the timer is due: add timer-at, timer-after, timer-every or timer-cron, or cancel "+
				"with timer-cancel: true (over HTTP by DELETE).")
	}
	if refusal != nil {
		return 0, refusal
	}
	from := rec.Timestamp.UnixMilli()
	if from < 0 {
		return 0, Refuse(waterclock.ReasonNoTimestamp,
			"%s counts from the record's timestamp, which is %d: let the producer set one, or send timer-at.", by, from)
	}
	if from = min(from, maxMillis); h.recurs() {
		return recurrence.Anchor(from), nil
	}
	return from + after, nil
}

// instant formats Unix milliseconds for a reader.
func instant(ms int64) string {
	const lastYear = 253402300799999 // 9999-12-31T23:59:59.999Z, where RFC 3339 ends
	if ms > lastYear {
		return "a time after the year 9999"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// recordBytes is the size of key, headers and value together.
func recordBytes(rec *kgo.Record) int {
	n := len(rec.Key) + len(rec.Value)
	for i := range rec.Headers {
		n += len(rec.Headers[i].Key) + len(rec.Headers[i].Value)
	}
	return n
}
