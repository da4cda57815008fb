package wire

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// eventFormat is the version of events that is written.
const eventFormat = 1

// Event is one thing that happened to a timer. [waterclock.Event] is its form for readers.
type Event struct {
	Type                     waterclock.EventType
	ID                       []byte
	At                       int64             // Unix milliseconds
	Source, Previous, Cancel waterclock.Source // no topic: none
	Request                  waterclock.Source // request that steered, or did not count
	// Occurred is the timer whose occurrence the event is about, nil for none.
	Occurred *timer.Timer
	// Was is the timer as it was before a request moved it, nil if none did.
	Was *timer.Timer
	// Emission is the header waterclock-event of the emission, nil for none, and Partition is the
	// partition it was written to.
	Emission       []byte
	Partition      int32
	Reason, Detail string
	Labels         timer.Labels // of the timer
	// Pending is the timer that is pending now, nil for none. Unknown: the event does not say.
	Pending *timer.Timer
	Unknown bool
}

// eventTypes are the words for outcomes. A cancel that found no timer makes no event; its word is for a caller that
// asks for the outcome of its request.
var eventTypes = [timer.Outcomes]waterclock.EventType{
	timer.None: waterclock.EventRescheduled, timer.Scheduled: waterclock.EventScheduled,
	timer.Replaced:  waterclock.EventReplaced,
	timer.Cancelled: waterclock.EventCancelled, timer.NotFound: "not-found", timer.Fired: waterclock.EventFired,
	timer.Expired: waterclock.EventExpired, timer.Refused: waterclock.EventRejected,
	timer.Undeliverable: waterclock.EventUndeliverable,
	timer.Completed:     waterclock.EventCompleted, timer.Triggered: waterclock.EventTriggered,
	timer.Paused:  waterclock.EventPaused,
	timer.Resumed: waterclock.EventResumed, timer.Unmet: waterclock.EventConditionNotMet,
	timer.Unchanged: waterclock.EventUnchanged, timer.Moved: waterclock.EventMoved,
}

// EventTypeOf returns the word for an outcome.
func EventTypeOf(o timer.Outcome) waterclock.EventType { return eventTypes[o] }

// EventOf returns the event of an entry with a result; false if nothing happened to a timer, for example because a
// cancel found nothing, or a firing was rolled back. The caller adds the parts that the entry does not know: the
// emission, and why a request or an emission was rejected. source returns the record that a generation comes from. (The
// long switch is the table of events.)
func EventOf(e *timer.Entry, result timer.Outcome, at int64,
	source func(generation int64) waterclock.Source) (ev Event, happened bool) {
	ev = Event{Type: EventTypeOf(result), ID: e.ID, At: at, Source: source(e.Before.Offset), Pending: e.After}
	if e.After.IsRemembered() {
		ev.Pending = nil
	}
	switch {
	case e.Emit != nil:
		ev.Labels = e.Emit.Labels
	case e.Late != nil:
		ev.Labels = e.Late.Labels
	case e.After != nil:
		ev.Labels = e.After.Labels
	default:
		ev.Labels = e.Labels
	}
	switch result {
	case timer.Scheduled:
		ev.Source = source(e.After.Offset)
	case timer.Replaced, timer.Moved:
		ev.Source, ev.Previous, ev.Was = source(e.After.Offset), ev.Source, e.Was
	case timer.Cancelled:
		ev.Cancel = source(e.Request)
	case timer.Fired, timer.Undeliverable:
		ev.Occurred = e.Emit
	case timer.Expired:
		ev.Occurred = e.Late
		ev.Source = source(e.Late.Offset)
		if e.NotOn != "" {
			ev.Detail = "calendar " + e.NotOn + " excludes its time"
		}
	case timer.None:
		return ev, e.After != nil && e.After.Ref() != e.Before // otherwise a remembered timer is forgotten
	case timer.Triggered, timer.Paused, timer.Resumed, timer.Unchanged:
		ev.Request = source(e.Request)
	case timer.Unmet:
		ev.Request = source(e.Request)
		if e.Before.IsAbsent() {
			ev.Source = waterclock.Source{}
		}
	case timer.NotFound:
		return ev, false
	}
	return ev, true
}

// EventKey returns the key of an event: the ID, or an empty key if there is no valid ID. (A compacted topic
// takes no null key.)
func EventKey(id []byte) []byte {
	if n := len(id); n == 0 || n > waterclock.MaxIDBytes {
		return []byte{}
	}
	return id
}

// AppendTo appends the value of the event's record: a JSON object of about 250 bytes, whose members have a
// fixed order. It does not use encoding/json because it runs once for each firing, and a lane waits for it.
func (e *Event) AppendTo(dst []byte) []byte {
	dst = append(dst, `{"format":`...)
	dst = strconv.AppendInt(dst, eventFormat, 10)
	dst = appendField(dst, "type", string(e.Type))
	if id := EventKey(e.ID); len(id) > 0 && utf8.Valid(id) {
		dst = appendField(dst, "id", id)
	}
	dst = appendNumber(dst, "at", e.At)
	dst = appendSource(dst, "source", &e.Source)
	dst = appendSource(dst, "previous", &e.Previous)
	dst = appendSource(dst, "cancel", &e.Cancel)
	dst = appendSource(dst, "request", &e.Request)
	if t := e.Occurred; t != nil {
		dst = appendNumber(dst, "due", t.FiresAt())
		dst = appendNumber(dst, "occurrence", t.FiresAs())
		dst = appendNumber(dst, "lateness", e.At-t.FiresAt())
		dst = appendField(dst, "target", t.Target.Topic)
	} else if e.Pending != nil {
		if e.Was != nil {
			dst = appendNumber(dst, "due", e.Was.Due)
			dst = appendNumber(dst, "occurrence", e.Was.Occurrence)
		}
		dst = appendField(dst, "target", e.Pending.Target.Topic)
	}
	if e.Emission != nil {
		dst = appendNumber(dst, "partition", int64(e.Partition))
		dst = appendField(dst, "emission", e.Emission)
	}
	if e.Reason != "" {
		dst = appendField(dst, "reason", e.Reason)
	}
	if e.Detail != "" || e.Reason != "" {
		dst = appendField(dst, "detail", timer.CutDetail(e.Detail))
	}
	return append(e.appendPending(appendLabels(dst, e.Labels)), '}')
}

func (e *Event) appendPending(dst []byte) []byte {
	switch {
	case e.Unknown:
		return dst
	case e.Pending == nil:
		return append(dst, `,"pending":null`...)
	}
	dst = append(dst, `,"pending":{"due":`...)
	dst = strconv.AppendInt(dst, e.Pending.Due, 10)
	dst = appendNumber(dst, "occurrence", e.Pending.Occurrence)
	if e.Pending.IsPaused() {
		dst = append(appendName(dst, "paused"), "true"...)
	}
	return append(dst, '}')
}

// appendLabels appends labels as an object, if there are any.
func appendLabels(dst []byte, labels timer.Labels) []byte {
	if labels == "" {
		return dst
	}
	dst = append(appendName(dst, "labels"), '{')
	first := true
	for name, value := range labels.All() {
		if !first {
			dst = append(dst, ',')
		}
		dst = appendString(append(appendString(dst, name), ':'), value)
		first = false
	}
	return append(dst, '}')
}

// appendName appends the name of a member other than the first.
func appendName(dst []byte, name string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

func appendNumber(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(appendName(dst, name), n, 10)
}

// appendSource appends a source, if there is one.
func appendSource(dst []byte, name string, s *waterclock.Source) []byte {
	if s.Topic == "" {
		return dst
	}
	dst = append(appendName(dst, name), '"')
	dst = append(dst, s.Topic...) // a Kafka topic needs no escapes
	dst = strconv.AppendInt(append(dst, '/'), int64(s.Partition), 10)
	dst = strconv.AppendInt(append(dst, '/'), s.Offset, 10)
	return append(dst, '"')
}

// appendField appends a text, with invalid bytes of UTF-8 replaced.
func appendField[text string | []byte](dst []byte, name string, value text) []byte {
	return appendString(appendName(dst, name), value)
}

func appendString[text string | []byte](dst []byte, value text) []byte {
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(string(value)) // never an error of a string
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, value...)
	return append(dst, '"')
}
