package api

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Limits of one call for the history of a timer. A cursor leads to what lies beyond them.
const (
	// historySpan is how many offsets are looked at first; each time after that it is
	// historyGrowth times as many. Those of one timer may be far apart.
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
	Cursor string       `json:"cursor,omitempty" doc:"Of the page with older ones; without it the log has none. A page may have few, or none, and a cursor: a call looks at so much of the log."`
	Log    EventLog     `json:"log"`
}

// TimerEvent is one event of a timer.
type TimerEvent struct {
	Offset int64           `json:"offset" doc:"Where its record is on the events topic."`
	At     time.Time       `json:"at" doc:"The record's timestamp."`
	Event  json.RawMessage `json:"event" doc:"What has happened: the record's value, an object, as docs/EVENTS.md has it, with the timer's ID as id (or idBase64)."`
}

// EventLog is the part of the events topic in which a timer's events were looked for.
type EventLog struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition" doc:"That of the timer's requests."`
	Begins    int64      `json:"begins" doc:"The first offset that Kafka has. Where it is not 0, what was before is gone: retention."`
	Ends      int64      `json:"ends" doc:"The offset behind the last record that was committed when this was asked."`
	LookedTo  int64      `json:"lookedTo" doc:"How far back this page has looked: all events of the timer from there on to where it began are on it."`
	Position  string     `json:"position" doc:"What watchEvents takes as position to go on behind what ends says."`
	Oldest    *time.Time `json:"oldest,omitempty" doc:"Without a cursor: timestamp of the oldest record of any timer. Nothing is known of the time before it."`
}

func (e *events) registerHistory(h huma.API) {
	op := operation("events", http.MethodGet, onePath+"/events", "listTimerEvents", "See what has happened to a timer",
		"What the events topic still has of its ID, the newest first; also of a timer that is not pending any more. "+
			"What happens from now on: watchEvents.",
		"409: the request topic writes no events; it does with serve --events. Of a compacted events topic the last "+
			"event of each timer is there, and few more.")
	reads(h, op, func(ctx context.Context, in *struct {
		OneTimer
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many at most."`
		Cursor string `query:"cursor" maxLength:"20" doc:"That of the page before."`
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

// history reads a partition backward from an offset, until it has limit events of an ID or meets another
// limit.
func (e *events) history(ctx context.Context, topic string, partition int32, id string, limit int,
	end int64) (*TimerEvents, error) {
	bounds, err := e.logs.Bounds(ctx, topic)
	if err != nil {
		return nil, err
	}
	begin, last := bounds[partition][0], bounds[partition][1]
	end = max(begin, min(end, last))
	page := &TimerEvents{Events: []TimerEvent{}, Log: EventLog{
		Topic: topic, Partition: partition, Begins: begin, Ends: last,
		Position: Position{First: partition, Next: []int64{last}}.String(),
	}}
	s := &lookBack{logs: e.logs, topic: topic, partition: partition, id: id}
	keep, err := reservePage(ctx, 1)
	if err != nil {
		return nil, err
	}
	size := 0
	defer func() { keep(size) }()
	back := backward{
		bounds: map[int32][2]int64{partition: bounds[partition]}, low: map[int32]int64{partition: end},
		over: make(map[int32]bool), window: historySpan, least: 1,
	}
	until := e.now().Add(historyTime)
	// Each call gets further than its cursor, even if only a little.
	for len(page.Events) < limit && size < pageBytes {
		spans := back.spans()
		if len(spans) == 0 || back.looked > 0 && (back.looked >= maxHistoryOffsets || s.bytes >= maxHistoryBytes ||
			e.now().After(until)) {
			break
		}
		span := spans[partition]
		found, err := s.read(ctx, span[0], span[1], limit-len(page.Events))
		if errors.Is(err, errLargeSpan) {
			back.shrink()
			continue
		}
		if err != nil && back.looked == 0 {
			return nil, err
		}
		if err != nil {
			break // the events found so far count; the next call meets the error
		}
		back.passed(spans, nil)
		if len(found.all) > 0 && (found.from > span[0] || len(found.all) == limit-len(page.Events)) {
			back.low[partition] = found.all[0].Offset // there may be more events before it
		}
		size += found.size
		if found.from > span[0] { // and there is no room for them
			size = max(size, pageBytes)
		}
		for _, r := range slices.Backward(found.all) {
			page.Events = append(page.Events, TimerEvent{Offset: r.Offset, At: r.Time.UTC(), Event: withID(r)})
		}
		back.grow()
		back.window = min(back.window, maxHistoryOffsets-back.looked)
	}
	at := back.low[partition]
	if page.Log.LookedTo = at; at > begin {
		page.Cursor = strconv.FormatInt(at, 10)
	} else if !s.first.IsZero() {
		page.Log.Oldest = &s.first
	}
	return page, nil
}

// errLargeSpan says that a span of the log has more bytes than one call reads.
var errLargeSpan = errors.New("the span is too large")

// lookBack reads spans of a partition for the events of one ID.
type lookBack struct {
	logs      Logs
	topic     string
	partition int32
	id        string

	bytes int       // of spans that were read completely
	first time.Time // of the first record of the last span read
}

// read returns the newest events of a span. If the error is errLargeSpan, the caller tries again with
// fewer offsets.
func (l *lookBack) read(ctx context.Context, from, to int64, limit int) (found newest, err error) {
	l.first, found = time.Time{}, newest{from: from, limit: limit, room: pageBytes}
	size := 0
	err = l.logs.Read(ctx, l.topic, map[int32][2]int64{l.partition: {from, to}}, func(r *Record) error {
		if l.first.IsZero() {
			l.first = r.Time.UTC()
		}
		if size += len(r.Key) + len(r.Value); size > maxHistoryBytes && to-from > leastHistorySpan {
			return errLargeSpan
		}
		if string(r.Key) != l.id {
			return nil
		}
		found.add(slim(r, len(r.Value)))
		return nil
	})
	if !errors.Is(err, errLargeSpan) {
		l.bytes += size
	}
	return found, err
}
