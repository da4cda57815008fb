package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/waterclock/waterclock"
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
	return &events{topics: ts, logs: o.Logs, now: o.Now, log: o.Logger, life: life,
		streams: access.NewPool(maxStreams, maxStreams, streamWait)}
}

// watch is the parameters of watchEvents.
type watch struct {
	Topic string `path:"topic" doc:"Request topic."`
	EventFilter
	Since    string `query:"since" doc:"Begin with the events written then or later, about in the order of time: RFC 3339 with a zone, or Unix milliseconds. When all that were there at the beginning are sent, a server-sent event caught-up says so."`
	Follow   bool   `query:"follow" default:"true" doc:"false: with since, end the stream behind caught-up."`
	Position string `query:"position" doc:"Go on there, and not from now on: position of listActivity, log.position of listTimerEvents, or the id of a server-sent event."`
	LastID   string `header:"Last-Event-ID" doc:"The same, and counts before it."`
}

func (e *events) register(h huma.API) {
	op := operation("events", http.MethodGet, "/v1/topics/{topic}/events", "watchEvents",
		"Watch what happens to timers, from now on, from a time or from a position on",
		"Server-sent events, whose data are records of the events topic, as docs/EVENTS.md has them, with the "+
			"timer's ID as id. The id of a server-sent event is the position behind it, which the header "+
			"Last-Event-ID takes, as EventSource does by itself, or position.",
		"410 (events-gone): the stream cannot begin at the position without leaving out events, or since is too "+
			"far back.",
		"409: the request topic writes no events; it does with serve --events.")
	describe[struct{}](h, &op, nil)
	op.Responses["200"] = &huma.Response{Description: "Events, until the caller goes.",
		Content: map[string]*huma.MediaType{streamType: {Schema: &huma.Schema{Type: "string"}}}}
	handle(h, op, e.watch)
	e.registerActivity(h)
	e.registerHistory(h)
}

// watch begins a stream.
func (e *events) watch(ctx context.Context, in *watch) (*huma.StreamResponse, error) {
	topic, err := e.topics.withEvents(ctx, in.Topic, in.asked())
	if err != nil {
		return nil, err
	}
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	since, err := instant("since", in.Since)
	if err == nil && !in.Follow && since == 0 {
		err = problem(http.StatusBadRequest, ReasonBadRequest,
			"follow is false and since is not given: there is nothing to send")
	}
	if err != nil {
		return nil, err
	}
	hold := e.streams.Acquire(ctx, 1)
	if hold == nil {
		return nil, problem(http.StatusTooManyRequests, ReasonTooManyStreams,
			"this instance has %d streams of events, and no more at a time; the caller has its share of them",
			maxStreams)
	}
	begun := false
	defer func() { // also if the following code panics
		if !begun {
			hold.Release()
		}
	}()
	s := &stream{events: e, topic: topic.Events, filter: filter, past: since != 0, follow: in.Follow}
	first, n := in.partitions(e.topics, topic)
	var from time.Time
	if s.past {
		from = time.UnixMilli(since)
	}
	if s.beginning, err = e.begin(ctx, topic.Events, first, n, cmp.Or(in.LastID, in.Position), from); err != nil {
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
		s.w, s.may = w, func() error { return e.topics.may(c.Context(), access.Read, in.Topic, in.asked()) }
		s.run(ctx)
	}}, nil
}

// stream sends a caller events from a position on. It ends when the caller goes or loses its right to
// them, when the log cannot be read any further, or when the API is closed.
//
// Why no event is missed, and none is sent twice. For each partition of the stream, a position says up
// to which offset the log has been read. The log below that offset no longer changes: the offset is
// either the end of what is decided or follows a record that was sent, and no open transaction lies
// below either. A caller that has a position has all matching events below it. It got them from a
// list, whose position is the partitions' end at that time, or from this stream. Each event
// comes with the position after it, and so does each sign of life. So a caller that continues from the
// last position that arrived whole gets the next event. A position names all partitions of the stream,
// so it is the only thing that a caller has to keep. Past events, which are sent in the order of time, end where
// following the log begins: at ends.
//
// If by now the log begins after a position, the events in between are gone. A position that is too far
// back is not read. In both cases the answer says so, and there is no stream: see begin. If retention
// overtakes a stream it ends, and a caller that continues is told why. Only compaction is silent: on a
// compacted events topic, a stream sends the events that are left.
type stream struct {
	*events
	topic     string
	beginning // at is the position behind what was sent
	filter    eventFilter
	past      bool // first send the events between at and ends, in the order of time
	follow    bool // then send events as they are written
	w         http.ResponseWriter
	may       func() error // returns why the caller may not see the events any more
}

// run sends events until the stream ends.
func (s *stream) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life.ctx, cancel)()
	if err := access.Stream(s.w); err != nil {
		s.log.WarnContext(ctx, "cannot stream events on this connection", "err", err)
		return
	}
	s.w.Header().Set("Content-Type", streamType)
	s.w.Header().Set("Cache-Control", "no-store")
	var err error
	if s.past {
		err = s.sendPast(ctx)
	}
	if err == nil && s.follow {
		err = s.logs.Follow(ctx, s.topic, s.at, func(r *Record) error {
			if r != nil && !s.filter.match(r) {
				return nil
			}
			return s.send(r)
		})
	}
	if err != nil && ctx.Err() == nil {
		s.log.DebugContext(ctx, "event stream ended", "topic", s.topic, "err", err)
	}
}

// send sends an event, or a sign of life if r is nil, with the position after it.
func (s *stream) send(r *Record) error {
	if r == nil {
		return s.write("") // without data this is not an event, but the ID counts
	}
	return s.write(fmt.Sprintf("event: event\ndata: %s\n", withID(r)))
}

func (s *stream) write(event string) error {
	if err := s.may(); err != nil {
		return err
	}
	return access.StreamWrite(s.w, []byte("id: "+s.at.String()+"\n"+event+"\n"))
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
	switch {
	case len(r.Key) > waterclock.MaxIDBytes: // it is none
	case utf8.Valid(r.Key):
		fields["id"], _ = json.Marshal(string(r.Key)) // a string can be encoded
	default:
		fields["idBase64"], _ = json.Marshal(r.Key)
	}
	line, _ := json.Marshal(fields)
	return line
}
