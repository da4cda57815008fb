package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/waterclock/waterclock/internal/api/access"
)

const (
	// maxStreams is how many streams of events an instance has at a time: each has a consumer of
	// its own. A caller may have all of them, until another one comes: see access.Pool.
	maxStreams = 32
	// streamWait is how long a stream waits for another caller's stream to end.
	streamWait = time.Second
)

const streamType = "text/event-stream"

// events are the operations on events topics: the history of a timer, and the stream of new events.
type events struct {
	topics  *topics
	logs    Logs
	now     func() time.Time
	streams *access.Pool
	life    *lifetime
	log     *slog.Logger
}

func newEvents(ts *topics, o Options, life *lifetime) *events {
	return &events{topics: ts, logs: o.Logs, now: o.Now, log: o.Logger, life: life, streams: access.NewPool(maxStreams, maxStreams, streamWait)}
}

// watch is the parameters of watchEvents.
type watch struct {
	Topic    string `path:"topic" doc:"Request topic."`
	ID       string `query:"id" doc:"Of that timer alone."`
	Prefix   string `query:"prefix" doc:"Of timers whose IDs begin with it."`
	Position string `query:"position" doc:"Go on there, and not from now on: log.position of listTimerEvents, or the id of a server-sent event."`
	LastID   string `header:"Last-Event-ID" doc:"The same, and counts before it."`
}

func (e *events) register(h huma.API) {
	op := operation("events", http.MethodGet, "/v1/topics/{topic}/events", "watchEvents", "Watch what happens to timers, from now on or from a position on",
		"Server-sent events, whose data are records of the events topic, as docs/EVENTS.md has them, with the timer's ID as id. The id of a server-sent event is the position behind it, which the header Last-Event-ID takes, as EventSource does by itself, or position.",
		"410 (events-gone): the stream cannot begin at the position without leaving out events.",
		"409: the request topic writes no events; it does with events: true.")
	describe[struct{}](h, &op, nil)
	op.Responses["200"] = &huma.Response{Description: "Events, until the caller goes.", Content: map[string]*huma.MediaType{streamType: {Schema: &huma.Schema{Type: "string"}}}}
	handle(h, op, e.watch)
	e.registerHistory(h)
}

// watch begins a stream.
func (e *events) watch(ctx context.Context, in *watch) (*huma.StreamResponse, error) {
	asked := cmp.Or(in.ID, in.Prefix)
	topic, err := e.topics.withEvents(ctx, in.Topic, asked)
	switch {
	case err != nil:
		return nil, err
	case in.ID != "" && in.Prefix != "":
		return nil, problem(http.StatusBadRequest, ReasonBadRequest, "id and prefix are given: give one of them")
	}
	hold := e.streams.Acquire(ctx, 1)
	if hold == nil {
		return nil, problem(http.StatusTooManyRequests, ReasonTooManyStreams, "this instance has %d streams of events, and no more at a time; the caller has its share of them", maxStreams)
	}
	begun := false
	defer func() { // also if the following code panics
		if !begun {
			hold.Release()
		}
	}()
	first, n := int32(0), topic.Partitions
	match := func(r *Record) bool { return strings.HasPrefix(string(r.Key), in.Prefix) }
	if in.ID != "" {
		first, n = e.topics.partitionOf([]byte(in.ID), topic.Partitions), 1
		match = func(r *Record) bool { return string(r.Key) == in.ID }
	}
	at, err := e.begin(ctx, topic.Events, first, n, cmp.Or(in.LastID, in.Position))
	if err != nil {
		return nil, err
	}
	begun = true // from here on the body of the answer releases the hold
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer hold.Release()
		r, w := humago.Unwrap(c)
		if r.Method == http.MethodHead { // nothing is written, so it would not show that the caller is gone
			w.Header().Set("Content-Type", streamType)
			return
		}
		ctx, cancel := context.WithCancel(c.Context())
		defer cancel()
		// A caller that is cut off continues from its last event once there is room.
		hold.Cuttable(func() { cancel(); access.CutOff(w) })
		e.stream(ctx, w, topic.Events, at, match, func() error { return e.topics.may(c.Context(), access.Read, in.Topic, asked) })
	}}, nil
}

// stream sends a caller events from a position on. It ends when the caller goes or loses its right to
// them, when the log cannot be read any further, or when the API is closed.
//
// Why no event is missed, and none is sent twice. For each partition of the stream, a position says up
// to which offset the log has been read. The log below that offset no longer changes: the offset is
// either the end of what is decided or follows a record that was sent, and no open transaction lies
// below either. A caller that has a position has all matching events below it. It got them from a
// timer's history, whose position is the partition's end at that time, or from this stream. Each event
// comes with the position after it, and so does each sign of life. So a caller that continues from the
// last position that arrived whole gets the next event. A position names all partitions of the stream,
// so it is the only thing that a caller has to keep.
//
// If by now the log begins after a position, the events in between are gone. A position that is too far
// back is not read. In both cases the answer says so, and there is no stream: see begin. If retention
// overtakes a stream it ends, and a caller that continues is told why. Only compaction is silent: on a
// compacted events topic, a stream sends the events that are left.
func (e *events) stream(ctx context.Context, w http.ResponseWriter, topic string, at Position, match func(*Record) bool, may func() error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.life.ctx, cancel)()
	if err := access.Stream(w); err != nil {
		e.log.WarnContext(ctx, "events cannot be told on this connection", "err", err)
		return
	}
	w.Header().Set("Content-Type", streamType)
	w.Header().Set("Cache-Control", "no-store")
	err := e.logs.Follow(ctx, topic, at, func(r *Record) error {
		if r != nil && !match(r) {
			return nil
		}
		if err := may(); err != nil {
			return err
		}
		text := "id: " + at.String() + "\n" // without data this is not an event, but the ID counts
		if r != nil {
			text += fmt.Sprintf("event: event\ndata: %s\n", withID(r))
		}
		return access.StreamWrite(w, []byte(text+"\n"))
	})
	if err != nil && ctx.Err() == nil {
		e.log.DebugContext(ctx, "events are no longer told", "topic", topic, "err", err)
	}
}

// maxEventBytes is more than any event of ours has: an ID and a detail of 1.5 KiB, each byte of which may be written
// as six.
const maxEventBytes = 16 << 10

// withID returns an event as one line of JSON, with the ID of its timer, which is the record's key. A larger record, or
// one that is not an object, was written by another program. It is not decoded: six bytes may become a hundred.
func withID(r *Record) []byte {
	var fields map[string]json.RawMessage
	if len(r.Value) > maxEventBytes || json.Unmarshal(r.Value, &fields) != nil || fields == nil {
		fields = map[string]json.RawMessage{}
	}
	if utf8.Valid(r.Key) {
		fields["id"], _ = json.Marshal(string(r.Key)) // a string can be encoded
	} else {
		fields["idBase64"], _ = json.Marshal(r.Key)
	}
	line, _ := json.Marshal(fields)
	return line
}
