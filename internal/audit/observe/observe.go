// Package observe turns records of Kafka into the facts of package history:
//
//	emission, err := observe.Emission(record, receivedAt)
//
// It decodes the formats of docs/internals/FORMAT.md, and judges nothing.
package observe

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/timer"
)

// Of returns the fields of every record. seen is when the record was received; zero: not known.
func Of(rec *kgo.Record, seen time.Time) history.Record {
	return history.Record{Place: wire.SourceOf(rec), Timestamp: rec.Timestamp.UnixMilli(), Seen: seen}
}

// Request reads a record of a request topic by the rules of that topic. now is about when the service read it,
// in Unix milliseconds: the limit on how far ahead a timer may be due depends on it.
func Request(rules *intake.Rules, rec *kgo.Record, now int64, seen time.Time) history.Request {
	r := history.Request{Record: Of(rec, seen), ID: string(rec.Key)}
	req, _, refusal := rules.Validate(rec, now)
	switch {
	case refusal != nil:
		r.Action = history.Poison
		return r
	case req.Schedule != nil:
		r.Action = history.Schedules
		schedules(&r, req.Schedule)
	case req.Steer == 0:
		r.Action = history.Cancels
	default:
		r.Action = map[timer.Steer]history.Action{timer.Trigger: history.Triggers, timer.Pause: history.Pauses,
			timer.Resume: history.Resumes, timer.Move: history.Moves}[req.Steer]
		if req.Steer == timer.Move {
			r.Due = req.At
		}
	}
	for _, h := range rec.Headers {
		if h.Key == waterclock.HeaderIf {
			r.If = string(h.Value)
		}
	}
	return r
}

func schedules(r *history.Request, t *timer.Timer) {
	r.Due, r.MaxLate, r.Emits = t.Scheduled(), t.TooLate, payload(t)
	if c := t.Recurrence; c != nil && c.NotOn != "" { // only the service knows the calendars
		r.Due, r.Recurs = 0, &history.Recurrence{CatchUp: waterclock.CatchUpNone, Count: 1}
		r.NotOn, r.MayBeRejected = true, true
		if t.Recurs() {
			r.Recurs.Count = c.Count
			if c.Until != timer.NoUntil {
				r.Recurs.Until = c.Until
			}
		}
		if t.Remember != nil {
			r.Remember = t.Remember.For
		}
		return
	}
	if t.Recurs() { // some may have been due before the request
		number := t.Occurrence
		if count := t.Recurrence.Count; count > 0 {
			number = min(number, count)
		}
		r.Due -= (number - 1) * t.Recurrence.Every
	}
	if t.Remember != nil {
		r.Remember = t.Remember.For
	}
	if t.Recurrence != nil && !t.Recurs() {
		r.Jitter = t.Recurrence.Jitter
	} else if c := t.Recurrence; c != nil {
		r.Recurs = &history.Recurrence{Every: c.Every, Count: c.Count, Jitter: c.Jitter,
			CatchUp: waterclock.CatchUpPolicy(c.CatchUp.String())}
		if c.Until != timer.NoUntil {
			r.Recurs.Until = c.Until
		}
	}
}

func payload(t *timer.Timer) history.Payload {
	hs := make([]kgo.RecordHeader, len(t.Headers))
	for i := range t.Headers {
		hs[i] = kgo.RecordHeader(t.Headers[i])
	}
	return history.Payload{
		Topic: t.Target.Topic, Partition: t.Target.Partition, Key: string(t.Target.Key), NullKey: t.Target.Key == nil,
		Value: string(t.Value), NullValue: t.Value == nil, Headers: headers(hs), Labels: string(t.Labels),
	}
}

// headers encodes headers that are passed through. Those of traces are left out: the setting tracing replaces them.
func headers(hs []kgo.RecordHeader) string {
	var b []byte
	for _, h := range hs {
		if timer.IsTraceContext(h.Key) || strings.HasPrefix(h.Key, waterclock.OwnPrefix) {
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(h.Key)))
		b = append(b, h.Key...)
		if h.Value == nil {
			b = append(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(h.Value))+1)
		b = append(b, h.Value...)
	}
	return string(b)
}

// logAppendTime is a record's timestamp type (message.timestamp.type).
const logAppendTime = 1

// Emission reads a record of a target. Errors are those of [waterclock.ParseEmission].
func Emission(rec *kgo.Record, seen time.Time) (history.Emission, error) {
	e, err := waterclock.ParseEmission(rec)
	if err != nil {
		return history.Emission{}, err
	}
	return history.Emission{
		Record: Of(rec, seen), Stamped: rec.Attrs.TimestampType() == logAppendTime, ID: e.ID, Due: e.Due.UnixMilli(),
		Occurrence: e.Occurrence, Source: e.Source, Event: e.Event,
		Carries: history.Payload{
			Topic: rec.Topic, Partition: rec.Partition, Key: string(rec.Key), NullKey: rec.Key == nil,
			Value: string(rec.Value), NullValue: rec.Value == nil, Headers: headers(e.Headers),
		},
	}, nil
}

// Letter reads a record of a dead-letter topic. Errors are those of [waterclock.ParseDeadLetter].
func Letter(rec *kgo.Record, seen time.Time) (history.Letter, error) {
	l, err := waterclock.ParseDeadLetter(rec)
	if err != nil {
		return history.Letter{}, err
	}
	letter := history.Letter{Record: Of(rec, seen), ID: l.ID, Source: l.Source, Reason: l.Reason}
	switch l.Reason {
	case waterclock.ReasonTargetUnknown, waterclock.ReasonTargetPartitionUnknown, waterclock.ReasonTargetTooLarge,
		waterclock.ReasonTargetNotAuthorized, waterclock.ReasonTargetRefused:
		letter.Emission, letter.Occurrence = true, -1
	}
	for _, h := range rec.Headers {
		if letter.Emission && h.Key == waterclock.HeaderOccurrence {
			if _, err := fmt.Sscan(string(h.Value), &letter.Occurrence); err != nil {
				return letter, fmt.Errorf("parse %s: %s: %w", letter.Place, h.Key, err)
			}
		}
	}
	return letter, nil
}

// Event reads a record of an events topic. Errors are those of [waterclock.ParseEvent].
func Event(rec *kgo.Record, seen time.Time) (history.Event, error) {
	e, err := waterclock.ParseEvent(rec)
	labels, _ := timer.LabelsOf(e.Labels)
	return history.Event{Record: Of(rec, seen), Event: e, Labelled: string(labels)}, err
}

// Change reads a committed record of the changelog of a request topic.
func Change(requests string, rec *kgo.Record, seen time.Time) (history.ChangelogRecord, error) {
	c := history.ChangelogRecord{Record: Of(rec, seen), Requests: requests}
	kind, id, err := wire.ParseKey(rec.Key)
	if err != nil {
		return c, fmt.Errorf("read %s: %w", c.Place, err)
	}
	switch kind {
	case wire.KindTimer:
		c.Kind, c.ID = history.TimerChange, string(id)
		if rec.Value == nil {
			return c, nil
		}
		t, err := timer.Decode(rec.Value)
		if err != nil {
			return c, fmt.Errorf("read %s: %w", c.Place, err)
		}
		c.Timer = Timer(requests, rec.Topic, rec.Partition, t)
	case wire.KindCheckpoint:
		w, err := wire.DecodeCheckpoint(rec.Value)
		if err != nil {
			return c, fmt.Errorf("read %s: %w", c.Place, err)
		}
		c.Kind, c.Step, c.Group, c.Owner, c.Position, c.Written = history.Checkpoint, w.Step, w.Group, w.Owner,
			w.Position, w.Time
		c.Incarnation = fmt.Sprintf("%x", w.Request)
	case wire.KindClaim:
		w, err := wire.DecodeClaim(rec.Value)
		if err != nil {
			return c, fmt.Errorf("read %s: %w", c.Place, err)
		}
		c.Kind, c.Step, c.Group, c.Owner, c.Member, c.Generation, c.Written = history.Claim, w.Step, w.Group, w.Owner,
			w.Member, w.Generation, w.Time
	}
	return c, nil
}

// Timer returns a stored timer of a partition of a request topic as a fact.
func Timer(requests, changelog string, partition int32, t *timer.Timer) *history.Timer {
	source := waterclock.Source{Topic: requests, Partition: partition, Offset: t.Ref().Generation()}
	if at, moved := timer.MovedAt(source.Offset); moved {
		source.Topic, source.Offset = changelog, at
	}
	return &history.Timer{
		ID: string(t.ID), Source: source, Due: t.Due, Occurrence: t.Occurrence,
		Paused: t.IsPaused(), Triggered: t.IsTriggered(), Remembered: t.IsRemembered(), Emits: payload(t),
	}
}
