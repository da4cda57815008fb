package waterclock

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrNotEvent says that a record is not one of waterclock's events.
var ErrNotEvent = errors.New("record is not an event")

// eventFormat is the version of events that this package reads.
const eventFormat = 1

// EventType names what happened to a timer. Later versions may add types.
type EventType string

// The types of events.
const (
	// EventScheduled: a request scheduled a timer, and none was pending under its ID.
	EventScheduled EventType = "scheduled"
	// EventReplaced: a request replaced a pending timer.
	EventReplaced EventType = "replaced"
	// EventCancelled: a request cancelled a pending timer.
	EventCancelled EventType = "cancelled"
	// EventFired: an occurrence was emitted.
	EventFired EventType = "fired"
	// EventExpired: an occurrence would have been later than [HeaderMaxLate] allows, and was not emitted. Or a calendar
	// of [HeaderNotOn] excludes the time of a timer that fires once; then Detail names the calendar.
	EventExpired EventType = "expired"
	// EventUndeliverable: an occurrence could not be emitted and became a dead letter.
	EventUndeliverable EventType = "undeliverable"
	// EventRescheduled: the pending occurrence was skipped because it was missed, and a later one is now pending; or
	// the rules of a time zone or of a calendar changed, and the same occurrence is now due at another instant.
	EventRescheduled EventType = "rescheduled"
	// EventCompleted: a recurrence ended because all its remaining occurrences were missed and skipped, or because new
	// rules of its time zone have moved them beyond its end. A recurrence that ends by firing has only the event of its
	// last firing.
	EventCompleted EventType = "completed"
	// EventTriggered: a request made a pending timer fire now. The firing itself is an event of its own.
	EventTriggered EventType = "triggered"
	// EventPaused: a request paused a pending timer.
	EventPaused EventType = "paused"
	// EventResumed: a request resumed a paused timer. If all remaining occurrences were missed during the pause and are
	// skipped, the event is EventCompleted instead.
	EventResumed EventType = "resumed"
	// EventMoved: a request gave the next occurrence of a pending timer another due time.
	EventMoved EventType = "moved"
	// EventConditionNotMet: the condition of a request ([HeaderIf]) did not hold. The request changed nothing.
	EventConditionNotMet EventType = "condition-not-met"
	// EventUnchanged: a request with [IfChanged] found that what it asks for is pending. It changed nothing.
	EventUnchanged EventType = "unchanged"
	// EventRejected: a request was rejected. It changed nothing and became a dead letter.
	EventRejected EventType = "rejected"
)

// Event is one thing that happened to a timer: a record of the topic <request topic>.waterclock.events. The service
// writes that topic only if it is configured to do so. Each event is written in the same transaction as the change that
// it reports. A consumer with isolation.level=read_committed therefore sees the full history of each ID: every change
// once, in the order in which the changes happened.
type Event struct {
	Type EventType
	// ID is the timer's ID. It is empty if a rejected request had no valid ID.
	ID string
	// At is the time of the change by the clock of the instance that owns the partition.
	// For a firing it is the timestamp of the emission.
	At time.Time
	// Source says which request created the timer. If waterclock topics follow has moved the timer, it names a record
	// of the changelog instead. In EventRejected it is the rejected request. In EventConditionNotMet it is the timer
	// that was found pending, or remembered, and zero if neither was.
	Source Source
	// Previous belongs to EventReplaced and EventMoved: the source of the timer that was replaced, or its source before
	// the move.
	// Cancel belongs to EventCancelled: the request that cancelled.
	Previous, Cancel Source
	// Request belongs to EventTriggered, EventPaused, EventResumed, EventConditionNotMet and EventUnchanged: the
	// request that caused the event.
	Request Source

	// Due, Occurrence and Lateness describe an occurrence. They are set in EventFired, EventExpired and
	// EventUndeliverable: when the occurrence was due, its number, and how late it was. In EventMoved they say which
	// occurrence was moved, and when it was due before.
	Due        time.Time
	Occurrence int64
	Lateness   time.Duration

	// Target is the topic that the timer fires to, in events that concern a target.
	Target string
	// Emission and Partition belong to EventFired: the value of [HeaderEvent] on the emission, and the partition of the
	// target topic that it was written to.
	Emission  string
	Partition int32

	// Reason and Detail belong to EventRejected and EventUndeliverable: they are those of
	// the dead letter. Detail alone: see EventExpired.
	Reason Reason
	Detail string

	// Labels are those of the timer, by name; nil if it has none. No EventRejected has them.
	Labels map[string]string

	// Pending is the timer under the ID after this event; nil if none is pending. If Unknown is true, as in
	// EventRejected, the event did not change the pending timer and does not describe it. To know the timer under an
	// ID, take Pending of its last event whose Unknown is false.
	Pending *Pending
	Unknown bool
}

// Pending is the next occurrence of a timer.
type Pending struct {
	Due        time.Time
	Occurrence int64 // from 1
	Paused     bool  // a paused timer does not fire
}

// eventJSON is an event as it is written.
type eventJSON struct {
	Format     int               `json:"format"`
	Type       EventType         `json:"type"`
	At         int64             `json:"at"`
	Source     string            `json:"source"`
	Previous   string            `json:"previous"`
	Cancel     string            `json:"cancel"`
	Request    string            `json:"request"`
	Due        *int64            `json:"due"`
	Occurrence int64             `json:"occurrence"`
	Lateness   int64             `json:"lateness"`
	Target     string            `json:"target"`
	Partition  int32             `json:"partition"`
	Emission   string            `json:"emission"`
	Reason     Reason            `json:"reason"`
	Detail     string            `json:"detail"`
	Labels     map[string]string `json:"labels"`
	Pending    json.RawMessage   `json:"pending"`
}

// ParseEvent reads a record of <request topic>.waterclock.events. The error wraps [ErrNotEvent] if it is none. An event
// of a type that this version does not know is read like any other.
func ParseEvent(rec *kgo.Record) (Event, error) {
	var w eventJSON
	if err := json.Unmarshal(rec.Value, &w); err != nil {
		return Event{}, fmt.Errorf("parse %s: %w: %w", sourceOf(rec), ErrNotEvent, err)
	}
	switch {
	case w.Format > eventFormat:
		return Event{}, fmt.Errorf("parse %s: event of format %d, written by a newer version: upgrade this one",
			sourceOf(rec), w.Format)
	case w.Format < 1, w.Type == "":
		return Event{}, fmt.Errorf("parse %s: no format or no type: %w", sourceOf(rec), ErrNotEvent)
	}
	e := Event{
		Type: w.Type, ID: string(rec.Key), At: time.UnixMilli(w.At).UTC(),
		Occurrence: w.Occurrence, Lateness: time.Duration(w.Lateness) * time.Millisecond,
		Target: w.Target, Emission: w.Emission, Partition: w.Partition, Reason: w.Reason, Detail: w.Detail,
		Labels: w.Labels, Unknown: w.Pending == nil,
	}
	if w.Due != nil {
		e.Due = time.UnixMilli(*w.Due).UTC()
	}
	for _, s := range []struct {
		to   *Source
		text string
	}{{&e.Source, w.Source}, {&e.Previous, w.Previous}, {&e.Cancel, w.Cancel}, {&e.Request, w.Request}} {
		if s.text == "" {
			continue
		}
		var err error
		if *s.to, err = ParseSource(s.text); err != nil {
			return Event{}, fmt.Errorf("parse %s: %w", sourceOf(rec), err)
		}
	}
	if err := e.parsePending(w.Pending); err != nil {
		return Event{}, fmt.Errorf("parse %s: %w", sourceOf(rec), err)
	}
	return e, nil
}

func (e *Event) parsePending(text json.RawMessage) error {
	if text == nil {
		return nil
	}
	var w *struct {
		Due, Occurrence int64
		Paused          bool
	}
	if err := json.Unmarshal(text, &w); err != nil {
		return fmt.Errorf("pending: %w", err)
	}
	if w != nil {
		e.Pending = &Pending{Due: time.UnixMilli(w.Due).UTC(), Occurrence: w.Occurrence, Paused: w.Paused}
	}
	return nil
}
