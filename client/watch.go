package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

const (
	// resumePause is the pause before an ended stream of events is resumed; resumeTime limits the attempts.
	resumePause, resumeTime = time.Second, time.Minute
	// streamQuiet is the silence after which a stream counts as broken: signs of life come every 15 s.
	streamQuiet = time.Minute
	streamType  = "text/event-stream"
)

// Events selects events; the zero value selects all of a request topic. ID and Prefix exclude each other.
type Events struct {
	ID, Prefix string // of the timers
	Target     string // topic that they fire to; rejected requests have none
	Types      []waterclock.EventType
	Labels     string // of the timers, as in Filter; rejected requests have none
	// Since begins with past events, from then on and roughly in the order of time. Behind them comes an event of the
	// type [CaughtUp]. With Stop the stream ends there.
	Since time.Time
	Stop  bool
	// Position continues an earlier stream: it is Event.Position.
	Position string
	// Began is called when the stream has begun: it has all events that happen from then on.
	Began func()
}

// CaughtUp is the type of the event behind the past events of a stream. It is about no timer.
const CaughtUp waterclock.EventType = "caught-up"

// Event is an event of a timer.
type Event struct {
	waterclock.Event
	// Position is behind the event: a stream from there on neither leaves out nor repeats one. It is empty in a
	// history.
	Position string
	// OlderDeleted belongs to CaughtUp: retention has deleted, or may have deleted, events since Events.Since.
	OlderDeleted bool
	// JSON is the event as the service has written it, with the timer's ID.
	JSON json.RawMessage
}

// eventOf reads an event. One of another program, or of a newer version, has its JSON alone.
func eventOf(data []byte) Event {
	e := Event{JSON: bytes.Clone(data)}
	var w struct {
		ID       string
		IDBase64 []byte
	}
	if json.Unmarshal(data, &w) != nil {
		return e
	}
	read, err := waterclock.ParseEvent(&kgo.Record{Key: []byte(either(w.ID, w.IDBase64)), Value: data})
	if err == nil {
		e.Event = read
	}
	e.ID = either(w.ID, w.IDBase64)
	return e
}

// Watch streams the events of a request topic that writes them. It does not end by itself, unless Events.Stop is set. A
// stream that breaks goes on where it was, at any instance. The last item is an error if no instance answers for a
// minute, if events would be missing ([ReasonEventsGone]), or if the context ends.
func (c *Client) Watch(ctx context.Context, topic string, f Events) iter.Seq2[Event, error] {
	q := texts("id", f.ID, "prefix", f.Prefix, "target", f.Target, "since", millis(f.Since), "position", f.Position,
		"label", f.Labels)
	var types []string
	for _, t := range f.Types {
		types = append(types, string(t))
	}
	if len(types) > 0 {
		q.Set("type", strings.Join(types, ","))
	}
	if f.Stop {
		q.Set("follow", "false")
	}
	return func(yield func(Event, error) bool) {
		s := stream{c: c, path: Path(topic, "events"), query: maps.Clone(q), began: f.Began, stop: f.Stop, yield: yield}
		if err := s.run(ctx); err != nil && !s.over {
			yield(Event{}, err)
		}
	}
}

// stream is a stream of server-sent events, over any number of connections.
type stream struct {
	c     *Client
	path  string
	query url.Values
	began func() // nil: it has been called, or there is none
	stop  bool   // end behind the past events
	yield func(Event, error) bool
	over  bool   // yield wants no more, or all is read
	last  string // ID of the last event, or sign of life, that has arrived completely
}

// errTooLong is an event that is too long to be read. It would be so again.
var errTooLong = errors.New("an event is too long")

// run reads the stream until it is over. If it cannot begin, that is an error like that of any call.
func (s *stream) run(ctx context.Context) error {
	lost := time.Time{} // when the last connection ended
	for {
		began, err := s.connect(ctx)
		switch {
		case s.over:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errTooLong), s.last == "":
			return err
		case began:
			lost = time.Now()
		}
		e, rejected := errors.AsType[*Error](err)
		if rejected && e.Status != http.StatusServiceUnavailable && e.Status != http.StatusTooManyRequests ||
			!began && time.Since(lost) >= s.c.resumeTime {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(s.c.resumePause):
		}
	}
}

// connect reads one connection until it ends, or is silent for streamQuiet. began reports that there was one.
func (s *stream) connect(ctx context.Context) (began bool, err error) {
	q := &call{method: http.MethodGet, path: s.path, query: s.query, header: http.Header{"Accept": {streamType}},
		repeats: func() bool { return !began }}
	if s.last != "" {
		q.header.Set("Last-Event-ID", s.last)
	}
	_, err = s.c.do(ctx, q, func(ctx context.Context, base string, resp *http.Response) error {
		began = true
		if s.began != nil {
			s.began()
			s.began = nil
		}
		quiet := time.AfterFunc(streamQuiet, func() { resp.Body.Close() })
		defer quiet.Stop()
		if err := s.read(ctx, resp, quiet); err != nil {
			return fmt.Errorf("read the events of %s: %w", base, err)
		}
		return fmt.Errorf("%s has ended the stream of events", base)
	})
	return began, err
}

// read yields the events of a response.
func (s *stream) read(ctx context.Context, resp *http.Response, quiet *time.Timer) error {
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxProblem)
	id, name, data := s.last, "", []byte(nil)
	for ctx.Err() == nil && lines.Scan() {
		quiet.Reset(streamQuiet)
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		switch value = bytes.TrimSpace(value); {
		case string(field) == "id":
			id = string(value)
		case string(field) == "event":
			name = string(value)
		case string(field) == "data":
			data = bytes.Clone(value)
		case len(lines.Bytes()) == 0: // the end of an event
			if s.last = id; data != nil && !s.tell(name, data) {
				s.over = true
				return nil
			}
			name, data = "", nil
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("%w: %w", errTooLong, err)
	} else if err != nil {
		return err
	}
	return nil
}

// tell yields an event. It reports whether the stream goes on.
func (s *stream) tell(name string, data []byte) bool {
	switch name {
	case string(CaughtUp):
		e := Event{Event: waterclock.Event{Type: CaughtUp}, Position: s.last, JSON: data}
		var past struct{ OlderDeleted bool }
		_ = json.Unmarshal(data, &past) // it is a note
		e.OlderDeleted = past.OlderDeleted
		s.query.Del("since") // all past events were received
		return s.yield(e, nil) && !s.stop
	case "", "event":
		e := eventOf(data)
		e.Position = s.last
		return s.yield(e, nil)
	}
	return true // an event type of a newer version
}

// History yields the events of one timer, pending or not, the newest first. The request topic must write events.
// Retention may have deleted the oldest ones.
func (c *Client) History(ctx context.Context, topic, id string) iter.Seq2[Event, error] {
	return c.past(ctx, Path(topic, "timers", id, "events"), make(url.Values))
}

// Activity yields past events of all timers of a request topic, the newest first.
func (c *Client) Activity(ctx context.Context, topic string, f Events) iter.Seq2[Event, error] {
	q := texts("id", f.ID, "prefix", f.Prefix, "target", f.Target, "after", millis(f.Since))
	for _, t := range f.Types {
		q.Add("type", string(t))
	}
	return c.past(ctx, Path(topic, "activity"), q)
}

func (c *Client) past(ctx context.Context, path string, q url.Values) iter.Seq2[Event, error] {
	return pages(q, func(q url.Values) ([]Event, string, error) {
		var page struct {
			Events []struct{ Event json.RawMessage }
			Cursor string
		}
		err := c.get(ctx, path, q, &page)
		events := make([]Event, len(page.Events))
		for i := range page.Events {
			events[i] = eventOf(page.Events[i].Event)
		}
		return events, page.Cursor, err
	})
}
