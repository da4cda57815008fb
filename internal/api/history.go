package api

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

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
				return nil, problem(http.StatusBadRequest, ReasonBadRequest,
					"the cursor is not one of this list: give that of the page before, or none")
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
		Position: Position{First: partition, Next: []int64{span[1]}}.String(),
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
