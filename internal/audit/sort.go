package audit

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/audit/observe"
)

// sorter puts the facts in records into the spill, under the ID that they are about.
type sorter struct{ topics []Topic }

// writerFor returns the function that puts a record of a topic into a batch.
func (s *sorter) writerFor(stage int, topic string) (func(*pebble.Batch, *kgo.Record) error, error) {
	for i := range s.topics {
		t := &s.topics[i]
		switch {
		case stage == cutStage && t.Changelog == topic:
			return func(b *pebble.Batch, rec *kgo.Record) error { return s.pending(b, t, rec) }, nil
		case stage == afterStage && t.Changelog == topic:
			return func(b *pebble.Batch, rec *kgo.Record) error { return s.moving(b, t, rec) }, nil
		case stage == requestStage && t.Name == topic:
			return func(b *pebble.Batch, rec *kgo.Record) error { return s.request(b, t, rec) }, nil
		case stage == outcomeStage && t.Letters == topic:
			return s.letter, nil
		case stage == outcomeStage && t.Events == topic:
			return s.event, nil
		}
	}
	if stage == outcomeStage {
		return s.emission, nil
	}
	return nil, fmt.Errorf("%s is not among the topics of the audit", topic)
}

// groupOf returns the ID under which a fact is kept. A fact without a valid ID is kept alone.
func groupOf(id string, source history.Place) string {
	if len(id) == 0 || len(id) > waterclock.MaxIDBytes {
		return source.String()
	}
	return id
}

func (s *sorter) request(b *pebble.Batch, t *Topic, rec *kgo.Record) error {
	// When the service read it is not known, so no horizon rejects it here: its dead letter tells.
	q := observe.Request(t.Rules, rec, math.MaxInt64/2, time.Time{})
	if q.Action == history.Poison && t.Lenient != nil {
		if q = observe.Request(t.Lenient, rec, math.MaxInt64/2, time.Time{}); q.Action != history.Poison {
			q.OtherSettings = true
		}
	}
	if q.Action == history.Schedules {
		if err := b.Set(targetKey(q.OtherSettings, q.Emits.Topic), nil, nil); err != nil {
			return err
		}
	}
	return b.Set(factKey(t.Name, groupOf(q.ID, q.Place), requestKind, q.Place), encode((*codec).request, q), nil)
}

// audited returns the request topic of a source, which may be in its changelog; nil: not audited.
func (s *sorter) audited(source history.Place) *Topic {
	i := slices.IndexFunc(s.topics, func(t Topic) bool { return source.Topic == t.Name || source.Topic == t.Changelog })
	if i < 0 {
		return nil
	}
	return &s.topics[i]
}

func (s *sorter) emission(b *pebble.Batch, rec *kgo.Record) error {
	e, err := observe.Emission(rec, time.Time{})
	if t := s.audited(e.Source); err == nil && t != nil && !t.former(&e) { // targets have other writers
		return b.Set(factKey(t.Name, groupOf(e.ID, e.Source), emissionKind, e.Place), encode((*codec).emission, e), nil)
	}
	return nil
}

// former reports whether an emission is of a topic of the same name that was deleted: waterclock-event has the topic's
// ID.
func (t *Topic) former(e *history.Emission) bool {
	text, _, _ := strings.Cut(e.Event, ".")
	id, err := base64.RawURLEncoding.DecodeString(text)
	return err == nil && len(id) == len(t.ID) && e.Source.Topic == t.Name && t.ID != [16]byte{} &&
		!bytes.Equal(id, t.ID[:])
}

func (s *sorter) letter(b *pebble.Batch, rec *kgo.Record) error {
	l, err := observe.Letter(rec, time.Time{})
	if t := s.audited(l.Source); err == nil && t != nil { // the topic may be shared
		return b.Set(factKey(t.Name, groupOf(l.ID, l.Source), letterKind, l.Place), encode((*codec).letter, l), nil)
	}
	return nil
}

func (s *sorter) event(b *pebble.Batch, rec *kgo.Record) error {
	e, err := observe.Event(rec, time.Time{})
	if err != nil {
		return err
	}
	source := e.Source
	if source.Topic == "" {
		source = e.Request
	}
	t := s.audited(source)
	if t == nil {
		return nil
	}
	return b.Set(factKey(t.Name, groupOf(e.Event.ID, source), eventKind, e.Place), encode((*codec).event, e), nil)
}

// pending applies a record of a changelog to the pending timers.
func (s *sorter) pending(b *pebble.Batch, t *Topic, rec *kgo.Record) error {
	c, err := observe.Change(t.Name, rec, time.Time{})
	if err != nil {
		return err
	}
	switch {
	case c.Kind == history.Claim && c.Step == "": // only a claim's last record has the step
		return nil
	case c.Kind != history.TimerChange:
		return b.Set(stepKey(history.Log{Topic: t.Name, Partition: c.Partition}, c.Offset),
			encode((*codec).step, c), nil)
	}
	key := factKey(t.Name, c.ID, pendingKind, history.Place{Topic: t.Changelog, Partition: c.Partition})
	if c.Timer == nil {
		return b.Delete(key, nil)
	}
	return b.Set(key, encode((*codec).timer, *c.Timer), nil)
}

// moving notes an ID to which something happened after the cut.
func (s *sorter) moving(b *pebble.Batch, t *Topic, rec *kgo.Record) error {
	c, err := observe.Change(t.Name, rec, time.Time{})
	if err != nil || c.Kind != history.TimerChange {
		return err
	}
	return b.Set(factKey(t.Name, c.ID, movingKind, history.Place{Topic: t.Changelog, Partition: c.Partition}), nil, nil)
}
