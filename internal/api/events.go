package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
)

const (
	// maxStreams limits the concurrent streams of events of an instance: each has its own consumer. A caller may have
	// all of them, until another one comes: see access.Pool.
	maxStreams = 32
	// streamWait is how long a stream waits for another caller's stream to end.
	streamWait = time.Second
)

const streamType = "text/event-stream"

// events are the operations on events topics: the history of a timer, and the stream of new events.
type events struct {
	*common
	streams *access.Pool
}

// watch is the parameters of watchEvents.
type watch struct {
	Topic string `path:"topic" doc:"Request topic."`
	EventFilter
	Since    string `query:"since" doc:"Begin with the events written then or later, approximately in the order of time: RFC 3339 with a zone, or Unix milliseconds. After all past events comes a server-sent event caught-up."`
	Follow   bool   `query:"follow" default:"true" doc:"false: with since, end the stream after caught-up."`
	Position string `query:"position" doc:"Continue there, instead of from now: position of listActivity, log.position of listTimerEvents, or the id of a server-sent event."`
	LastID   string `header:"Last-Event-ID" doc:"The same, and takes precedence over it."`
}

func (e *events) register(h huma.API) {
	op := operation("events", http.MethodGet, "/v1/topics/{topic}/events", "watchEvents",
		"Watch the events of timers, from now on, from a time or from a position on",
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
		err = invalid("follow is false and since is not given: there is nothing to send")
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
	begun = true // from here on the body of the response releases the hold
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

// stream sends a caller events from a position on. It ends when the caller disconnects or loses its right to them,
// when the log cannot be read any further, or when the API is closed.
//
// Why no event is missed, and none is sent twice. For each partition of the stream, a position holds the offset up to
// which the log has been read. The log below that offset no longer changes: the offset is either the end of the
// decided part or follows a record that was sent, and no open transaction is below either. A caller that has a
// position has all matching events below it. It got them from a list, whose position is the partitions' end at that
// time, or from this stream. Each event comes with the position after it, and so does each sign of life. So a caller
// that continues from the last complete position gets the next event. A position names all partitions of the stream,
// so a caller has to keep nothing else. Past events, which are sent in the order of time, end where following the log
// begins: at ends.
//
// If by now the log begins after a position, the events in between are gone. A position that is too far back is not
// read. In both cases the response says so, and there is no stream: see begin. If retention overtakes a stream it
// ends, and a caller that continues is told why. Only compaction is silent: on a compacted events topic, a stream
// sends the remaining events.
type stream struct {
	*events
	topic     string
	beginning // at is the position after the last event sent
	filter    eventFilter
	past      bool // first send the events between at and ends, in the order of time
	follow    bool // then send events as they are written
	w         http.ResponseWriter
	may       func() error // returns the reason why the caller may no longer see the events
}

// run sends events until the stream ends.
func (s *stream) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life.Context(), cancel)()
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

// maxEventBytes is larger than any of our events: an ID and a detail of 1.5 KiB, each byte of which may be written as
// six.
const maxEventBytes = 16 << 10

// withID returns an event as one line of JSON, with the ID of its timer, which is the record's key. A larger record, or
// one that is not an object, was written by another program. It is not decoded: six bytes may become a hundred.
func withID(r *Record) []byte {
	var fields map[string]json.RawMessage
	if len(r.Value) > maxEventBytes || json.Unmarshal(r.Value, &fields) != nil || fields == nil {
		fields = map[string]json.RawMessage{}
	}
	switch {
	case len(r.Key) > waterclock.MaxIDBytes: // it is not an ID
	case utf8.Valid(r.Key):
		fields["id"], _ = json.Marshal(string(r.Key)) // a string can be encoded
	default:
		fields["idBase64"], _ = json.Marshal(r.Key)
	}
	line, _ := json.Marshal(fields)
	return line
}

// maxBehind limits how far a stream of events reaches back, in offsets over all its partitions.
const maxBehind = 200_000

// Position is how far a caller has received the events of some partitions: for partition First, and for each
// partition after it, Next has the offset of the first event that is still to come. As text it is the number of the
// first partition, a colon, and the offsets with dots between them, as in "3:17" or "0:17.5.99". A stream has one
// partition or all of them, so nothing shorter would name them.
//
// It does not identify the log. If the topic of events was recreated, that shows only as long as the new log is
// shorter than the old one was.
type Position struct {
	First int32
	Next  []int64
}

// String returns the position as text.
func (p Position) String() string {
	text := strconv.AppendInt(make([]byte, 0, 8+8*len(p.Next)), int64(p.First), 10)
	between := byte(':')
	for _, offset := range p.Next {
		text, between = strconv.AppendInt(append(text, between), offset, 10), '.'
	}
	return string(text)
}

// Passed moves the position past a record.
func (p Position) Passed(partition int32, offset int64) {
	if i := int(partition - p.First); i >= 0 && i < len(p.Next) {
		p.Next[i] = max(p.Next[i], offset+1)
	}
}

// next returns the next offset of a partition: 0 if the position does not name it.
func (p Position) next(partition int32) int64 {
	if i := int(partition - p.First); i >= 0 && i < len(p.Next) {
		return p.Next[i]
	}
	return 0
}

// endsOf returns the position at the ends of n partitions.
func endsOf(bounds map[int32][2]int64, first, n int32) Position {
	p := Position{First: first, Next: make([]int64, n)}
	for i := range p.Next {
		p.Next[i] = bounds[first+int32(i)][1]
	}
	return p
}

// parsePosition reads the format of String. The limit of a call's headers bounds its length.
func parsePosition(text string) (Position, bool) {
	first, offsets, _ := strings.Cut(text, ":")
	partition, err := strconv.ParseUint(first, 10, 31)
	if err != nil {
		return Position{}, false
	}
	p := Position{First: int32(partition)}
	for one := range strings.SplitSeq(offsets, ".") {
		offset, err := strconv.ParseUint(one, 10, 62)
		if err != nil {
			return Position{}, false
		}
		p.Next = append(p.Next, int64(offset))
	}
	return p, true
}

// beginning is the start of a stream of events, and the end of the decided part at that time.
type beginning struct {
	at, ends Position
	deleted  bool // retention may have deleted events of the time at which the stream begins
}

// begin returns the start of a stream of n partitions of a topic of events: a position if one is given, else the
// first events of a time if one is given, else the end of the decided part. If the topic has more partitions than the
// position names, those begin at their first event. The error is a *Problem if the stream would have to leave out
// events.
func (e *events) begin(
	ctx context.Context, topic string, first, n int32, text string, since time.Time,
) (b beginning, err error) {
	given, ok := parsePosition(text)
	if text != "" && !ok {
		return b, invalid("the position is not one of a stream of events: give the last ID that one came with, " +
			"log.position of a timer's events, or none")
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	bounds, err := e.logs.Bounds(ctx, topic)
	if err != nil {
		return b, err
	}
	var starts map[int32]int64 // by partition; nil: no time was given
	if !since.IsZero() && text == "" {
		if starts, err = e.logs.Since(ctx, topic, since); err != nil {
			return b, err
		}
	}
	b.at, b.ends = endsOf(bounds, first, n), endsOf(bounds, first, n)
	var behind int64
	for i, next := range b.at.Next {
		p := first + int32(i)
		span := bounds[p]
		switch offset, some := starts[p]; {
		case text != "":
			next = given.next(p)
		case some:
			next = max(span[0], min(offset, span[1]))
			b.deleted = b.deleted || next == span[0] && next > 0
		}
		switch b.at.Next[i] = next; {
		case next < span[0]:
			return b, gone("%s/%d begins at %d now, and the position is %d: retention has deleted the events "+
				"between them",
				topic, p, span[0], next)
		case next > span[1]:
			return b, gone("%s/%d ends at %d now, and the position is %d: the topic was recreated, or has lost records",
				topic, p, span[1], next)
		}
		behind += span[1] - next
	}
	switch {
	case behind <= maxBehind:
	case starts != nil:
		return b, problem(http.StatusGone, ReasonEventsGone,
			"there are %d offsets since then, and a stream of events begins %d back at most: give a later time, or an "+
				"ID", behind, maxBehind)
	default:
		return b, gone("the position is %d offsets back, and a stream of events begins %d back at most", behind,
			maxBehind)
	}
	return b, nil
}

// gone returns the problem of a stream that cannot continue at its position.
func gone(format string, args ...any) *Problem {
	p := problem(http.StatusGone, ReasonEventsGone, format, args...)
	p.Detail += "; list the events of a timer, and begin without a position"
	return p
}
