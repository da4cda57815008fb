package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/waterclock/waterclock/internal/api/access"
)

// maxStreams is how many callers an instance tells of events at a time: each has a consumer of
// its own.
const maxStreams = 32

const streamType = "text/event-stream"

// streams counts those who are told of events.
type streams struct{ n atomic.Int32 }

func (a *API) registerEvents(h huma.API) {
	op := operation(http.MethodGet, "/v1/topics/{topic}/events", "watchEvents", "Watch what happens to timers, from now on",
		"Server-sent events, whose data are records of the events topic, as docs/FORMAT.md has them, with the timer's ID as id.",
		"409: the request topic writes no events; it does with events: true.")
	op.Tags = []string{"events"}
	describe[struct{}](h, &op, nil)
	op.Responses["200"] = &huma.Response{Description: "Events, until the caller goes.", Content: map[string]*huma.MediaType{streamType: {Schema: &huma.Schema{Type: "string"}}}}
	huma.Register(h, op, func(ctx context.Context, in *struct {
		Topic  string `path:"topic" doc:"Request topic."`
		ID     string `query:"id" doc:"Of that timer alone."`
		Prefix string `query:"prefix" doc:"Of timers whose IDs begin with it."`
	}) (*huma.StreamResponse, error) {
		asked := in.Prefix
		if in.ID != "" {
			asked = in.ID
		}
		topic, err := a.told(ctx, in.Topic, asked)
		switch {
		case err != nil:
			return nil, err
		case in.ID != "" && in.Prefix != "":
			return nil, problem(http.StatusBadRequest, ReasonBadRequest, "id and prefix are given: give one of them")
		case a.streams.n.Add(1) > maxStreams:
			a.streams.n.Add(-1)
			return nil, problem(http.StatusTooManyRequests, ReasonTooManyStreams, "%d callers are told of events by this instance, and no more are at a time", maxStreams)
		}
		partitions := make([]int32, 0, topic.Partitions)
		for p := range topic.Partitions {
			if in.ID == "" || p == a.o.PartitionOf([]byte(in.ID), topic.Partitions) {
				partitions = append(partitions, p)
			}
		}
		match := func(r *Record) bool {
			if in.ID != "" {
				return string(r.Key) == in.ID
			}
			return strings.HasPrefix(string(r.Key), in.Prefix)
		}
		return &huma.StreamResponse{Body: func(c huma.Context) {
			defer a.streams.n.Add(-1)
			r, w := humago.Unwrap(c)
			if r.Method == http.MethodHead { // what is written goes nowhere: that the caller is gone would not show
				w.Header().Set("Content-Type", streamType)
				return
			}
			a.stream(c.Context(), w, topic.Events, partitions, match, func() error { return a.may(c.Context(), access.Read, in.Topic, asked) })
		}}, nil
	})
}

// stream tells a caller of events until it goes, has no right to them any more, or the API is closed.
func (a *API) stream(ctx context.Context, w http.ResponseWriter, topic string, partitions []int32, match func(*Record) bool, may func() error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.jobs.life, cancel)()
	if err := access.Stream(w); err != nil {
		a.o.Logger.Warn("events cannot be told on this connection", "err", err)
		return
	}
	write := func(text string) error { return access.StreamWrite(w, []byte(text)) }
	w.Header().Set("Content-Type", streamType)
	w.Header().Set("Cache-Control", "no-store")
	err := a.o.Logs.Follow(ctx, topic, partitions, func(r *Record) error {
		if r != nil && !match(r) {
			return nil
		}
		if err := may(); err != nil {
			return err
		}
		if r == nil {
			return write(":\n\n") // a comment: there is nothing, and the caller is still there
		}
		return write(fmt.Sprintf("id: %d/%d\nevent: event\ndata: %s\n\n", r.Partition, r.Offset, withID(r)))
	})
	if err != nil && ctx.Err() == nil {
		a.o.Logger.Debug("events are no longer told", "topic", topic, "err", err)
	}
}

// withID is an event with the ID of its timer, which is the record's key, as one line.
func withID(r *Record) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(r.Value, &fields) != nil || fields == nil {
		fields = map[string]json.RawMessage{} // of another program
	}
	if utf8.Valid(r.Key) {
		fields["id"], _ = json.Marshal(string(r.Key)) // a string can be encoded
	} else {
		fields["idBase64"], _ = json.Marshal(r.Key)
	}
	line, _ := json.Marshal(fields)
	return line
}
