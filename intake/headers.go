package intake

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kit/suggest"
	"github.com/waterclock/waterclock/internal/timer"
)

// name numbers the headers that are instructions to the service.
type name uint8

const (
	atHeader name = iota
	afterHeader
	cancelHeader
	targetTopicHeader
	targetKeyHeader
	targetKeyNullHeader
	targetPartitionHeader
	everyHeader
	cronHeader
	zoneHeader
	untilHeader
	countHeader
	jitterHeader
	notOnHeader
	shiftHeader
	catchUpHeader
	maxLateHeader
	triggerHeader
	pauseHeader
	resumeHeader
	moveHeader
	ifHeader
	rememberHeader
	labelsHeader
	labelsHeaderHeader
	names

	otherHeader  // not ours: passed through
	ownHeader    // waterclock-*: dropped
	wrongCase    // a known name in another case
	unknownTimer // timer-*, but not a known one
)

// headers holds the timer- headers of one request, with the values of the record.
type headers struct {
	values [names][]byte
	seen   uint32 // bit n: header n is given; its value may be null
	others int    // number of headers to be passed through
}

func (h *headers) has(n name) bool { return h.seen&(1<<n) != 0 }

// W3C's headers for the context of a trace, and their maximum lengths. A tracestate may be longer, but programs may
// cut it to that length. One of each does not count against the limits: the API and OpenTelemetry's instrumentation
// add them to some requests, and tracing must not cause a rejection.
const (
	traceparent      = "traceparent"
	traceparentBytes = 55
	tracestate       = "tracestate"
	tracestateBytes  = 512
)

// traceContext records which headers of a trace context a record has.
type traceContext struct{ parent, state bool }

// takes reports whether a header belongs to the context, and adds it.
func (t *traceContext) takes(h *kgo.RecordHeader) bool {
	taken, most := &t.parent, traceparentBytes
	switch h.Key {
	case traceparent:
	case tracestate:
		taken, most = &t.state, tracestateBytes
	default:
		return false
	}
	if *taken || len(h.Value) > most {
		return false
	}
	*taken = true
	return true
}

// countHeaders rejects a record if the reader has not built all its headers. Waterclock's own headers count here too.
func countHeaders(rec *kgo.Record) *timer.Refusal {
	if n := partlog.HeaderCount(rec); n > partlog.MaxHeaders {
		return Refuse(waterclock.ReasonTooManyHeaders,
			"the record has %d headers, at most %d are allowed: leave some out.", n, partlog.MaxHeaders)
	}
	return nil
}

// read sorts the headers of a record. It allocates nothing.
func (h *headers) read(list []kgo.RecordHeader, limits *Limits) *timer.Refusal {
	counted, size := 0, 0
	var trace traceContext
	maxCount, maxSize := limits.headers()
	for i := range list {
		n := classify(list[i].Key)
		if n == ownHeader {
			continue
		}
		if n == otherHeader && trace.takes(&list[i]) {
			h.others++
			continue
		}
		if counted++; counted > maxCount {
			return tooManyHeaders(maxCount)
		}
		if size += len(list[i].Key) + len(list[i].Value); size > maxSize {
			return headersTooLarge(maxSize)
		}
		if n == otherHeader {
			h.others++
			continue
		}
		if refusal := h.take(n, &list[i]); refusal != nil {
			return refusal
		}
	}
	return nil
}

// headers returns how many headers a request may have, and how many bytes they may have together.
func (l *Limits) headers() (count, bytes int) {
	return cmp.Or(l.Headers, DefaultHeaders), cmp.Or(l.HeaderBytes, DefaultHeaderBytes)
}

func tooManyHeaders(limit int) *timer.Refusal {
	return Refuse(waterclock.ReasonTooManyHeaders, "the request has more than %d headers: leave some out.", limit)
}

func headersTooLarge(limit int) *timer.Refusal {
	return Refuse(waterclock.ReasonHeadersTooLarge,
		"the headers have more than %d bytes, names included: leave some out, or put them into the value.", limit)
}

// meant suggests a header for an unknown one.
func meant(key string) string {
	if len(key) > maxMeant {
		return ""
	}
	if best := suggest.Header(key, headerNames[:]); best != "" {
		return " (did you mean " + best + "?)"
	}
	return ""
}

// maxMeant is the longest unknown name, in bytes, for which a header is suggested.
const maxMeant = 64

// take records one timer- header.
func (h *headers) take(n name, header *kgo.RecordHeader) *timer.Refusal {
	switch {
	case n == wrongCase:
		return Refuse(waterclock.ReasonHeaderCase,
			"the header %s has the wrong case: write %s.", quote(header.Key), strings.ToLower(header.Key))
	case n == unknownTimer:
		return Refuse(waterclock.ReasonUnknownHeader,
			"the header %s is none that waterclock knows: correct its spelling, or rename it if it is your own%s.",
			quote(header.Key), meant(header.Key))
	case h.has(n):
		return Refuse(waterclock.ReasonDuplicateHeader, "the header %s is given twice: send it once.", header.Key)
	case n != targetKeyHeader && !utf8.Valid(header.Value):
		return Refuse(waterclock.ReasonNotUTF8, "the value of %s is not UTF-8: send it as text.", header.Key)
	}
	h.seen |= 1 << n
	h.values[n] = header.Value
	return nil
}

// passed returns the headers that go with the emission, in order.
func (h *headers) passed(list []kgo.RecordHeader) []timer.Header {
	if h.others == 0 {
		return nil
	}
	kept := make([]timer.Header, 0, h.others)
	for i := range list {
		if classify(list[i].Key) == otherHeader {
			kept = append(kept, timer.Header(list[i]))
		}
	}
	return kept
}

// labels reads the labels of t, and adds them to its headers if they have one of their own there. So that header is one
// of those that are passed through, in every other respect: the emission, its dead letter and a resend have it.
func (h *headers) labels(t *timer.Timer) *timer.Refusal {
	text, name := h.values[labelsHeader], string(h.values[labelsHeaderHeader])
	if !h.has(labelsHeader) {
		if h.has(labelsHeaderHeader) {
			return Refuse(waterclock.ReasonBadLabels,
				"timer-labels-header comes without timer-labels: send both, or leave it out.")
		}
		return nil
	}
	var fault string
	if t.Labels, fault = timer.ParseLabels(string(text)); fault != "" {
		return Refuse(waterclock.ReasonBadLabels,
			"timer-labels is %s, and %s: send up to %d labels, name=value, with commas between them.", quote(text),
			fault, waterclock.MaxLabels)
	}
	if !h.has(labelsHeaderHeader) {
		return nil
	}
	if fault := timer.LabelsHeaderFault(name); fault != "" {
		return Refuse(waterclock.ReasonBadLabels, "timer-labels-header is %s, and %s: send another one.", quote(name),
			fault)
	}
	t.Headers = append(slices.DeleteFunc(t.Headers, func(h timer.Header) bool { return h.Key == name }),
		timer.Header{Key: name, Value: []byte(t.Labels)})
	return nil
}

// classify identifies a header by its name. For most, the first letter is enough.
func classify(key string) name {
	if key == "" {
		return otherHeader
	}
	switch key[0] | 0x20 {
	case 'w':
		if strings.HasPrefix(key, waterclock.OwnPrefix) {
			return ownHeader
		}
	case 't':
		const prefix = len(waterclock.RequestPrefix)
		if strings.HasPrefix(key, waterclock.RequestPrefix) || // the usual case, for which this is faster
			len(key) >= prefix && strings.EqualFold(key[:prefix], waterclock.RequestPrefix) {
			return classifyTimer(key)
		}
	}
	return otherHeader
}

func classifyTimer(key string) name {
	if n := known(key); n != unknownTimer {
		return n
	}
	if lower := strings.ToLower(key); lower != key && known(lower) != unknownTimer {
		return wrongCase
	}
	return unknownTimer
}

// headerNames are the names of all headers that requests have.
var headerNames = [names]string{
	atHeader:              waterclock.HeaderAt,
	afterHeader:           waterclock.HeaderAfter,
	cancelHeader:          waterclock.HeaderCancel,
	targetTopicHeader:     waterclock.HeaderTargetTopic,
	targetKeyHeader:       waterclock.HeaderTargetKey,
	targetKeyNullHeader:   waterclock.HeaderTargetKeyNull,
	targetPartitionHeader: waterclock.HeaderTargetPartition,
	everyHeader:           waterclock.HeaderEvery,
	cronHeader:            waterclock.HeaderCron,
	zoneHeader:            waterclock.HeaderZone,
	untilHeader:           waterclock.HeaderUntil,
	countHeader:           waterclock.HeaderCount,
	jitterHeader:          waterclock.HeaderJitter,
	notOnHeader:           waterclock.HeaderNotOn,
	shiftHeader:           waterclock.HeaderShift,
	catchUpHeader:         waterclock.HeaderCatchUp,
	maxLateHeader:         waterclock.HeaderMaxLate,
	triggerHeader:         waterclock.HeaderTrigger,
	pauseHeader:           waterclock.HeaderPause,
	resumeHeader:          waterclock.HeaderResume,
	moveHeader:            waterclock.HeaderMove,
	ifHeader:              waterclock.HeaderIf,
	rememberHeader:        waterclock.HeaderRemember,
	labelsHeader:          waterclock.HeaderLabels,
	labelsHeaderHeader:    waterclock.HeaderLabelsHeader,
}

// String returns the header's name.
func (n name) String() string { return headerNames[n] }

func known(key string) name {
	if n := slices.Index(headerNames[:], key); n >= 0 {
		return name(n)
	}
	return unknownTimer
}
