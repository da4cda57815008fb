package waterclock

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrNotEvent says that a record is none of waterclock's events.
var ErrNotEvent = errors.New("record is no event")

// eventFormat is the version of events that this package reads.
const eventFormat = 1

// EventType is what has happened to a timer. Later versions have more types.
type EventType string

// The types of events.
const (
	// EventScheduled: a request made a timer where none was pending.
	EventScheduled EventType = "scheduled"
	// EventReplaced: a request took the place of a pending timer.
	EventReplaced EventType = "replaced"
	// EventCancelled: a request took a pending timer back.
	EventCancelled EventType = "cancelled"
	// EventFired: an occurrence was emitted.
	EventFired EventType = "fired"
	// EventExpired: an occurrence was later than [HeaderMaxLate], and not emitted.
	EventExpired EventType = "expired"
	// EventUndeliverable: an occurrence could not be emitted, and is a dead letter.
	EventUndeliverable EventType = "undeliverable"
	// EventRescheduled: another occurrence is pending, or the same one for another
	// instant. What was missed was let go, or the rules of a time zone have changed.
	EventRescheduled EventType = "rescheduled"
	// EventCompleted: a recurrence has ended with occurrences that were missed, and let
	// go. One that ends by firing has no event but that of its last firing.
	EventCompleted EventType = "completed"
	// EventTriggered: a request has what is pending fire now, which has an event of its
	// own.
	EventTriggered EventType = "triggered"
	// EventPaused: a request has a pending timer not fire.
	EventPaused EventType = "paused"
	// EventResumed: a request has a paused timer fire again. Where all that is left of
	// one was missed meanwhile, and is let go, it is EventCompleted instead.
	EventResumed EventType = "resumed"
	// EventConditionNotMet: what a request counts under, [HeaderIf], did not hold. It
	// changes nothing.
	EventConditionNotMet EventType = "condition-not-met"
	// EventRejected: a request changes nothing, and is a dead letter.
	EventRejected EventType = "rejected"
)

// Event is one thing that has happened to a timer: a record of <request
// topic>.waterclock.events, which is there if the service was told to write it. It is
// written in the same transaction as what it tells of. So to who reads with
// isolation.level=read_committed the events of an ID are its history: each thing once,
// in the order in which they happened.
type Event struct {
	Type EventType
	// ID is the timer's ID; empty for a rejected request without a valid one.
	ID string
	// At is when it happened by the owner's clock: of a firing, the timestamp of the
	// emission.
	At time.Time
	// Source is where the timer comes from that it happened to: its request, or, of a
	// timer that waterclock topics follow has moved, a record of the changelog.
	Source Source
	// Previous is, of EventReplaced, where the timer came from that was pending; Cancel
	// is, of EventCancelled, the request.
	Previous, Cancel Source
	// Request is, of EventTriggered, EventPaused, EventResumed and EventConditionNotMet,
	// the request. Source of the last is zero where nothing is pending.
	Request Source

	// Of an occurrence, hence of EventFired, EventExpired and EventUndeliverable: when
	// it was due, its number, and how late it was.
	Due        time.Time
	Occurrence int64
	Lateness   time.Duration

	// Target is the topic that the timer fires to, where one is concerned.
	Target string
	// Emission is, of EventFired, the value of [HeaderEvent] on the emission, and
	// Partition where on the target that was written.
	Emission  string
	Partition int32

	// Reason and Detail are those of the dead letter, of EventRejected and
	// EventUndeliverable.
	Reason Reason
	Detail string

	// Pending is what is pending under the ID from now on; nil for nothing. Where it is
	// Unknown, as of EventRejected, the event says nothing about that: what was pending
	// before is pending still. So what is pending is the Pending of each ID's last
	// event that is not Unknown.
	Pending *Pending
	Unknown bool
}

// Pending is the occurrence of a timer that is to come next.
type Pending struct {
	Due        time.Time
	Occurrence int64 // from 1
	Paused     bool  // it does not fire
}

// eventJSON is an event as it is written.
type eventJSON struct {
	Format     int             `json:"format"`
	Type       EventType       `json:"type"`
	At         int64           `json:"at"`
	Source     string          `json:"source"`
	Previous   string          `json:"previous"`
	Cancel     string          `json:"cancel"`
	Request    string          `json:"request"`
	Due        *int64          `json:"due"`
	Occurrence int64           `json:"occurrence"`
	Lateness   int64           `json:"lateness"`
	Target     string          `json:"target"`
	Partition  int32           `json:"partition"`
	Emission   string          `json:"emission"`
	Reason     Reason          `json:"reason"`
	Detail     string          `json:"detail"`
	Pending    json.RawMessage `json:"pending"`
}

// ParseEvent reads a record of <request topic>.waterclock.events. The error wraps
// [ErrNotEvent] if it is none. An event of a type that this version does not know is
// read like any other.
func ParseEvent(rec *kgo.Record) (Event, error) {
	var w eventJSON
	if err := json.Unmarshal(rec.Value, &w); err != nil {
		return Event{}, fmt.Errorf("parse %s: %w: %w", sourceOf(rec), ErrNotEvent, err)
	}
	switch {
	case w.Format > eventFormat:
		return Event{}, fmt.Errorf("parse %s: event of format %d, written by a newer version: upgrade this one", sourceOf(rec), w.Format)
	case w.Format < 1, w.Type == "":
		return Event{}, fmt.Errorf("parse %s: no format or no type: %w", sourceOf(rec), ErrNotEvent)
	}
	e := Event{
		Type: w.Type, ID: string(rec.Key), At: time.UnixMilli(w.At).UTC(),
		Occurrence: w.Occurrence, Lateness: time.Duration(w.Lateness) * time.Millisecond,
		Target: w.Target, Emission: w.Emission, Partition: w.Partition, Reason: w.Reason, Detail: w.Detail,
		Unknown: w.Pending == nil,
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
