package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/suggest"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// pastAhead limits, roughly, the events that a stream holds while it sends past ones in the order of time, all
	// partitions together, and pastBytes limits their bytes.
	pastAhead, pastBytes = 4_000, 1 << 20
	// pastLook is the number of bytes of a log that a stream reads at a time.
	pastLook = 8 << 20
)

// EventFilter has the parameters that choose events.
type EventFilter struct {
	ID     string   `query:"id" doc:"Only of this timer."`
	Prefix string   `query:"prefix" doc:"Only of timers whose IDs begin with it."`
	Type   []string `query:"type" doc:"Only of these types, as in fired,cancelled."`
	Target string   `query:"target" doc:"Only of timers that fire to this topic. A rejected request has no target here."`
	Label  []string `query:"label,explode" maxItems:"16" doc:"Only of timers with these labels, as in listTimers. A rejected request has none here."`
}

// asked returns the ID or the prefix to which the caller needs a right.
func (e *EventFilter) asked() string {
	if e.ID != "" {
		return e.ID
	}
	return e.Prefix
}

// partitions returns the partitions of the events: the first one, and the number of them.
func (e *EventFilter) partitions(ts *topics, topic Topic) (first, n int32) {
	if e.ID != "" {
		return ts.partitionOf([]byte(e.ID), topic.Partitions), 1
	}
	return 0, topic.Partitions
}

func (e *EventFilter) filter() (eventFilter, error) {
	if e.ID != "" && e.Prefix != "" {
		return eventFilter{}, invalid("id and prefix are given: give one of them")
	}
	for _, name := range e.Type {
		if types := EventTypes(); !slices.Contains(types, name) {
			return eventFilter{}, invalid("type is %.60q, needs some of %s%s", name, strings.Join(types, ", "),
				suggest.Hint(name, "", types))
		}
	}
	labels, err := selector(e.Label)
	return eventFilter{*e, labels}, err
}

// EventTypes returns the types of events that this version writes.
func EventTypes() []string {
	types := []string{}
	for _, t := range []waterclock.EventType{
		waterclock.EventScheduled, waterclock.EventReplaced, waterclock.EventFired, waterclock.EventCancelled,
		waterclock.EventExpired, waterclock.EventUndeliverable, waterclock.EventRejected, waterclock.EventRescheduled,
		waterclock.EventCompleted, waterclock.EventTriggered, waterclock.EventPaused, waterclock.EventResumed,
		waterclock.EventMoved, waterclock.EventConditionNotMet, waterclock.EventUnchanged,
	} {
		types = append(types, string(t))
	}
	return types
}

// eventFilter chooses events. It implements wanted.
type eventFilter struct {
	EventFilter
	labels timer.Selector
}

func (ef eventFilter) match(r *Record) bool {
	key := string(r.Key)
	if ef.ID != "" && key != ef.ID || !strings.HasPrefix(key, ef.Prefix) {
		return false
	}
	if len(ef.Type) == 0 && ef.Target == "" && ef.labels == "" {
		return true
	}
	var e struct {
		Type, Target string
		Labels       map[string]string
	}
	if len(r.Value) > maxEventBytes || json.Unmarshal(r.Value, &e) != nil {
		return false
	}
	if len(ef.Type) > 0 && !slices.Contains(ef.Type, e.Type) || ef.Target != "" && e.Target != ef.Target {
		return false
	}
	labels, _ := timer.LabelsOf(e.Labels)
	return ef.labels.Match(labels)
}

// over implements wanted: the times of a filter bound the reading.
func (eventFilter) over(*Record) bool { return false }

// slim implements wanted. A key that is longer than any ID is cut, but stays too long; events have no headers.
func (eventFilter) slim(r *Record) *Record {
	one := *r
	one.Key, one.Headers = r.Key[:min(len(r.Key), waterclock.MaxIDBytes+1)], nil
	return slim(&one, maxEventBytes)
}

// Activity is a page of events of a request topic.
type Activity struct {
	Events   []ActivityEvent `json:"events" nullable:"false" doc:"The newest first; approximately, by their time, if they are on several partitions."`
	Cursor   string          `json:"cursor,omitempty" doc:"Cursor of the page with older ones; absent if there are none. A page may have few, or none, and a cursor: a call searches a limited part of the log."`
	Deleted  bool            `json:"olderDeleted,omitempty" doc:"Retention has deleted, or may have deleted, older events than those of the log."`
	Position string          `json:"position" doc:"The position from which watchEvents continues after all events that were there at the time of this call."`
}

// ActivityEvent is an event of any timer.
type ActivityEvent struct {
	Partition int32 `json:"partition" doc:"Partition of the events topic, and of the timer's requests."`
	TimerEvent
}

func (e *events) registerActivity(h huma.API) {
	op := operation("events", http.MethodGet, "/v1/topics/{topic}/activity", "listActivity",
		"List the events of timers",
		"What the events topic has, the newest first. What happens from then on: watchEvents, with the position of "+
			"the answer.",
		"409: the request topic writes no events; it does with serve --events.")
	reads(h, op, func(ctx context.Context, in *struct {
		Topic string `path:"topic" doc:"Request topic."`
		EventFilter
		After  string `query:"after" doc:"Written then or later: RFC 3339 with a zone, or Unix milliseconds."`
		Before string `query:"before" doc:"Written before then."`
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The maximum number."`
		Cursor string `query:"cursor" maxLength:"8192" doc:"cursor of the previous page, with the same filter."`
	}) (*Activity, error) {
		topic, err := e.topics.withEvents(ctx, in.Topic, in.asked())
		if err != nil {
			return nil, err
		}
		b := &browser{logs: e.logs, now: e.now, topic: topic.Events, limit: in.Limit}
		if b.filter, err = in.filter(); err != nil {
			return nil, err
		}
		first, n := in.partitions(e.topics, topic)
		page := &Activity{Events: []ActivityEvent{}}
		if b.bounds, err = e.between(ctx, topic.Events, page, first, n, in.After, in.Before); err != nil {
			return nil, err
		}
		found, cursor, err := b.page(ctx, in.Cursor)
		for _, r := range found {
			page.Events = append(page.Events, ActivityEvent{r.Partition, TimerEvent{r.Offset, r.Time.UTC(), withID(r)}})
		}
		page.Cursor = cursor
		return page, err
	})
}

// between returns the bounds of a span of time in n partitions of a topic. It records in the page where the
// partitions end, and whether events of the span may have been deleted.
func (e *events) between(
	ctx context.Context, topic string, page *Activity, first, n int32, after, before string,
) (map[int32][2]int64, error) {
	all, err := e.logs.Bounds(ctx, topic)
	if err != nil {
		return nil, err
	}
	page.Position = endsOf(all, first, n).String()
	bounds := make(map[int32][2]int64, n)
	for p := first; p < first+n; p++ {
		bounds[p] = all[p]
	}
	for i, text := range []string{after, before} {
		at, err := instant([]string{"after", "before"}[i], text)
		if err != nil {
			return nil, err
		}
		if at == 0 {
			continue
		}
		offsets, err := e.logs.Since(ctx, topic, time.UnixMilli(at))
		if err != nil {
			return nil, err
		}
		for p, span := range bounds {
			if offset, some := offsets[p]; some {
				span[i] = max(span[0], min(offset, span[1]))
				bounds[p] = span
			}
		}
	}
	for p, span := range bounds {
		page.Deleted = page.Deleted || span[0] > 0 && span[0] == all[p][0]
	}
	return bounds, nil
}

// sendPast sends the events that were in the log when the stream began, approximately in the order of time, and then
// the event caught-up.
func (s *stream) sendPast(ctx context.Context) error {
	bounds := make(map[int32][2]int64, len(s.at.Next))
	for i := range s.at.Next {
		bounds[s.at.First+int32(i)] = [2]int64{s.at.Next[i], max(s.at.Next[i], s.ends.Next[i])}
	}
	if err := s.send(nil); err != nil {
		return err
	}
	order := newTimeOrder(bounds, false)
	order.most = max(1, pastAhead/int64(max(1, len(bounds))))
	order.window = order.most
	for {
		for spans := order.spans(); len(spans) > 0; spans = order.spans() {
			if err := s.look(ctx, order, spans); err != nil {
				return err
			}
		}
		next := order.take(pastAhead, pastBytes)
		for _, r := range next {
			s.at.Passed(r.partition, r.offset)
			if err := s.send(r.record); err != nil {
				return err
			}
		}
		if len(next) == 0 {
			break
		}
	}
	for i, end := range s.ends.Next { // past markers, and events that the filter leaves out
		s.at.Next[i] = max(s.at.Next[i], end)
	}
	return s.write(fmt.Sprintf("event: caught-up\ndata: {\"olderDeleted\":%t}\n", s.deleted))
}

// look finds the events of spans that match the filter. If they are too large together, it finds none, and the next
// spans of order are smaller.
func (s *stream) look(ctx context.Context, order *timeOrder, spans map[int32][2]int64) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found, looked, kept := make(map[int32][]recordAt), 0, 0
	err := s.logs.Read(ctx, s.topic, spans, func(r *Record) error {
		if looked += r.size(); looked > pastLook && order.shrink() {
			return errLargeSpan
		}
		if !s.filter.match(r) {
			return nil
		}
		one := s.filter.slim(r)
		if kept += one.size(); kept > pastBytes && order.shrink() {
			return errLargeSpan
		}
		found[r.Partition] = append(found[r.Partition], recordAt{partition: r.Partition, offset: r.Offset, at: r.Time,
			size: one.size(), record: one})
		return nil
	})
	switch {
	case err == nil:
		order.looked(spans, found)
	case errors.Is(err, errLargeSpan):
		return nil
	}
	return err
}

// Limits of one call for the history of a timer. A cursor leads beyond them.
const (
	// historySpan is the number of offsets examined first; each time after that it is historyGrowth times as many.
	// Those of one timer may be far apart.
	historySpan, historyGrowth = 2_000, 4
	// leastHistorySpan offsets are always read, however large their records are.
	leastHistorySpan  = 32
	maxHistoryOffsets = 200_000
	maxHistoryBytes   = 64 << 20 // of keys and values: events have some 300 bytes
	historyTime       = 3 * time.Second
)

// TimerEvents is a page of the history of a timer, from the events topic.
type TimerEvents struct {
	Events []TimerEvent `json:"events" nullable:"false" doc:"The newest first."`
	Cursor string       `json:"cursor,omitempty" doc:"Cursor of the page with older ones; absent if the log has none. A page may have few, or none, and a cursor: a call searches a limited part of the log."`
	Log    EventLog     `json:"log"`
}

// TimerEvent is one event of a timer.
type TimerEvent struct {
	Offset int64           `json:"offset" doc:"Position of its record on the events topic."`
	At     time.Time       `json:"at" doc:"The record's timestamp."`
	Event  json.RawMessage `json:"event" doc:"The event: the record's value, an object, as in docs/EVENTS.md, with the timer's ID as id (or idBase64)."`
}

// EventLog is the part of the events topic that was searched for a timer's events.
type EventLog struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition" doc:"Partition of the timer's requests."`
	Begins    int64      `json:"begins" doc:"The first offset that Kafka has. If it is not 0, retention has deleted older events."`
	Ends      int64      `json:"ends" doc:"The offset after the last record that was committed at the time of this call."`
	LookedTo  int64      `json:"lookedTo" doc:"How far back this page reaches: it has all events of the timer from there on to its start."`
	Position  string     `json:"position" doc:"The position from which watchEvents continues after ends."`
	Oldest    *time.Time `json:"oldest,omitempty" doc:"Without a cursor: timestamp of the oldest record of any timer. Earlier events are unknown."`
}

func (e *events) registerHistory(h huma.API) {
	op := operation("events", http.MethodGet, onePath+"/events", "listTimerEvents", "List the events of a timer",
		"What the events topic still has of its ID, the newest first; also of a timer that is not pending any more. "+
			"What happens from now on: watchEvents.",
		"409: the request topic writes no events; it does with serve --events. Of a compacted events topic the last "+
			"event of each timer is there, and few more.")
	reads(h, op, func(ctx context.Context, in *struct {
		OneTimer
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The maximum number."`
		Cursor string `query:"cursor" maxLength:"20" doc:"cursor of the previous page."`
	}) (*TimerEvents, error) {
		topic, err := e.topics.withEvents(ctx, in.Topic, in.ID)
		if err != nil {
			return nil, err
		}
		end := int64(math.MaxInt64)
		if in.Cursor != "" {
			if end, err = strconv.ParseInt(in.Cursor, 10, 64); err != nil || end < 0 {
				return nil, invalid("the cursor is not one of this list: give that of the page before, or none")
			}
		}
		return e.history(ctx, topic.Events, e.topics.partitionOf([]byte(in.ID), topic.Partitions), in.ID, in.Limit, end)
	})
}

// history returns limit events of an ID below an offset of a partition, or fewer if it meets another limit.
func (e *events) history(ctx context.Context, topic string, partition int32, id string, limit int,
	end int64) (*TimerEvents, error) {
	bounds, err := e.logs.Bounds(ctx, topic)
	if err != nil {
		return nil, err
	}
	span := bounds[partition]
	page := &TimerEvents{Events: []TimerEvent{}, Log: EventLog{
		Topic: topic, Partition: partition, Begins: span[0], Ends: span[1],
		Position: endsOf(bounds, partition, 1).String(),
	}}
	f := &eventsOfTimer{eventFilter: eventFilter{EventFilter: EventFilter{ID: id}}, low: math.MaxInt64}
	b := &browser{logs: e.logs, now: e.now, topic: topic, bounds: map[int32][2]int64{partition: span}, filter: f,
		limit: limit, most: maxHistoryBytes}
	low := map[int32]int64{partition: max(span[0], min(end, span[1]))}
	found, err := b.newest(ctx, low, historySpan)
	for _, r := range found {
		page.Events = append(page.Events, TimerEvent{Offset: r.Offset, At: r.Time.UTC(), Event: withID(r)})
	}
	if page.Log.LookedTo = low[partition]; page.Log.LookedTo > span[0] {
		page.Cursor = strconv.FormatInt(page.Log.LookedTo, 10)
	} else if !f.oldest.IsZero() {
		page.Log.Oldest = &f.oldest
	}
	return page, err
}

// eventsOfTimer selects the events of one timer, and remembers the oldest record of all.
type eventsOfTimer struct {
	eventFilter
	low    int64 // offset of the oldest record
	oldest time.Time
}

func (e *eventsOfTimer) match(r *Record) bool {
	if r.Offset < e.low {
		e.low, e.oldest = r.Offset, r.Time.UTC()
	}
	return e.eventFilter.match(r)
}
