package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/query"
	"github.com/waterclock/waterclock/internal/timer"
)

// OneTimer are the parameters of what is about one timer.
type OneTimer struct {
	Topic string `path:"topic" doc:"Request topic."`
	ID    string `path:"id" doc:"ID of the timer, percent-encoded as a path has it, slashes too."`
}

// Wait is until when a call that changes something waits.
type Wait struct {
	Wait string `query:"wait" enum:"decided,written" default:"decided" doc:"decided: until the owner has committed what becomes of the request. written: until Kafka has the request."`
}

// Result is what became of a request.
type Result struct {
	Outcome   string `json:"outcome" enum:"scheduled,replaced,cancelled,triggered,paused,resumed,completed,unchanged,written" doc:"What became of the request. unchanged: the timer was so already. written: it is in the log, and what becomes of it is not known here."`
	Topic     string `json:"topic" doc:"Where the request is in the log: request topic."`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Timer     *Timer `json:"timer,omitempty" doc:"What is pending under the ID right behind the request."`
	Note      string `json:"note,omitempty" doc:"Of written: why no more is known. Else what is odd: that the timer lies on another partition than its ID belongs on, that there is no such target."`
}

// changed is the answer to a call that changes one timer.
type changed struct {
	Status int
	ETag   string `header:"ETag" doc:"Of the timer that is pending, in quotes: its source, and once it has fired, or is not just pending, a semicolon and more."`
	Body   Result
}

const onePath = "/v1/topics/{topic}/timers/{id}"

func (a *API) registerTimers(h huma.API) {
	a.registerPut(h)
	a.registerGet(h)
	for _, s := range []struct{ id, method, path, summary, header, then string }{
		{"cancelTimer", http.MethodDelete, onePath, "Cancel a timer", waterclock.HeaderCancel, ""},
		{"triggerTimer", http.MethodPost, onePath + "/trigger", "Have a timer fire now", waterclock.HeaderTrigger, "One that recurs goes on as if nothing had been."},
		{"pauseTimer", http.MethodPost, onePath + "/pause", "Have a timer not fire until it is resumed", waterclock.HeaderPause, ""},
		{"resumeTimer", http.MethodPost, onePath + "/resume", "Have a paused timer fire again", waterclock.HeaderResume, "What is past due fires at once."},
	} {
		op := operation(s.method, s.path, s.id, s.summary, s.then, "404: nothing is pending under the ID. 412: what it counts under does not hold.")
		op.Tags, op.Parameters = []string{"timers"}, conditions()
		describe[Result](h, &op, map[string]string{"202": "The request is in the log; what becomes of it is not known here."})
		huma.Register(h, op, func(ctx context.Context, in *struct {
			OneTimer
			Wait
		}) (*changed, error) {
			r, err := steering(in.ID, s.header, headersOf(ctx))
			return a.change(ctx, &in.OneTimer, in.Wait.Wait, r, true, err)
		})
	}
}

func (a *API) registerPut(h huma.API) {
	op := operation(http.MethodPut, onePath, "putTimer", "Schedule a timer, or schedule it again",
		"The body is the payload, byte for byte, and HTTP headers are those of the request in Kafka, with the same names; or the body is the timer as JSON, of the type application/json, and may be what GET has answered. A payload that is JSON itself is sent as application/octet-stream, or as value.",
		"400, 403, 413, 429, 431: the request is refused, and a dead letter; reason and detail are the same.")
	op.Tags, op.MaxBodyBytes = []string{"timers"}, a.largest()
	op.Parameters = append(conditions(), requestHeaders()...)
	before(&op, func(c huma.Context) error {
		_, err := a.topic(c.Context(), access.Write, c.Param("topic"), c.Param("id"))
		return err
	})
	describe[Result](h, &op, map[string]string{
		"201": "Scheduled: nothing was pending under the ID.",
		"202": "The request is in the log; what becomes of it is not known here.",
	})
	huma.Register(h, op, func(ctx context.Context, in *struct {
		OneTimer
		Wait
		RawBody []byte `contentType:"application/octet-stream"`
	}) (*changed, error) {
		// The body is in a buffer that is used again when this call is over, and a record may
		// be on its way for longer.
		r, err := fromHTTP(in.Topic, in.ID, headersOf(ctx), bytes.Clone(in.RawBody))
		return a.change(ctx, &in.OneTimer, in.Wait.Wait, r, false, err)
	})
	// Behind Register, which would hold payloads against a schema.
	h.OpenAPI().Paths[onePath].Put.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{
		jsonType: {Schema: h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[NewTimer](), true, "")},
		// Any other type is as good, but generators have none for */*.
		"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary", Description: "The payload, of any type but JSON's."}},
	}}
}

func (a *API) registerGet(h huma.API) {
	op := operation(http.MethodGet, onePath, "getTimer", "See a pending timer")
	op.Tags = []string{"timers"}
	op.Parameters = []*huma.Param{header("If-None-Match", "ETags of the timer as the caller has it: 304 if it is still so.")}
	describe[Timer](h, &op, nil)
	op.Responses["304"] = &huma.Response{Description: "It is as one of the ETags of If-None-Match says."}
	huma.Register(h, op, func(ctx context.Context, in *OneTimer) (*struct {
		ETag string `header:"ETag" doc:"Its source in quotes; once it has fired, or is not just pending, with a semicolon and more. If-None-Match takes it."`
		Body Timer
	}, error) {
		t, err := a.get(ctx, in)
		if err != nil {
			return nil, err
		}
		return &struct {
			ETag string `header:"ETag" doc:"Its source in quotes; once it has fired, or is not just pending, with a semicolon and more. If-None-Match takes it."`
			Body Timer
		}{etag(t), *t}, nil
	})
}

func (a *API) get(ctx context.Context, in *OneTimer) (*Timer, error) {
	topic, err := a.topic(ctx, access.Read, in.Topic, in.ID)
	if err != nil {
		return nil, err
	}
	if len(in.ID) > waterclock.MaxIDBytes {
		return nil, none(in) // nor ever will be
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	at := a.at(in.Topic, topic, []byte(in.ID))
	answer, err := a.o.Asker.Ask(ctx, &route.Call{Kind: route.Get, Topic: at.Topic, Partition: at.Partition, ID: []byte(in.ID)})
	if err != nil {
		return nil, routed(err)
	}
	if answer.Timer == nil {
		answer.Timer = a.o.Asker.Find(ctx, in.Topic, []byte(in.ID))
	}
	if answer.Timer == nil || answer.Timer.State == query.Remembered {
		return nil, none(in)
	}
	if p := access.Reserve(ctx, pageFactor*int64(answer.Timer.Size())); p != nil {
		return nil, refusedBy(p)
	}
	v := view(answer.Timer, true)
	v.Note = stray(v.Topic, v.Partition, at.Partition)
	return v, nil
}

// stray says that a timer lies on another partition than its ID belongs on; "" if it does not.
func stray(topic string, lies, belongs int32) string {
	if lies == belongs {
		return ""
	}
	return fmt.Sprintf("it lies on partition %d of %s, and its ID belongs on %d: its producer uses another partitioner than murmur2, so what others send for this ID by Kafka misses it, unless they name partition %d", lies, topic, belongs, lies)
}

func none(in *OneTimer) *Problem {
	return problem(http.StatusNotFound, ReasonNotFound, "no timer of ID %.100q is pending on %s", in.ID, in.Topic)
}

// change writes the request that was built, or says what is wrong with it. One that steers a timer
// that is not where its ID belongs is written once more, where that lies.
func (a *API) change(ctx context.Context, in *OneTimer, wait string, r route.Request, steers bool, wrong error) (*changed, error) {
	topic, err := a.topic(ctx, access.Write, in.Topic, in.ID)
	if err != nil {
		return nil, err
	}
	if wrong != nil {
		return nil, asProblem(wrong)
	}
	at := a.at(in.Topic, topic, r.ID)
	if err := tooLarge(&r, topic); err != nil {
		return nil, err
	}
	all, err := a.write(ctx, at, wait, []route.Request{r})
	if err != nil {
		return nil, routed(err)
	}
	status, result, wrongs := decided(at, in.ID, &all[0])
	note, nothing := "", wrongs != nil && wrongs.Pending == nil && (wrongs.Reason == ReasonNotFound || wrongs.Reason == ReasonConditionNotMet)
	if steers && nothing || status == http.StatusCreated {
		if found := a.o.Asker.Find(ctx, in.Topic, r.ID); found != nil {
			note = stray(in.Topic, found.Partition, at.Partition)
			at.Partition = found.Partition
		}
	}
	switch {
	case note != "" && steers:
		if all, err = a.write(ctx, at, wait, []route.Request{r}); err != nil {
			return nil, routed(err)
		}
		status, result, wrongs = decided(at, in.ID, &all[0])
	case note != "":
		note = "another timer of this ID is pending, which this one does not replace: " + note
	}
	if wrongs != nil {
		return nil, wrongs
	}
	if t := result.Timer; t != nil && !steers && a.o.OfTarget != nil && note == "" {
		note = a.o.OfTarget(ctx, t.Target.Topic)
	}
	result.Note = cmp.Or(result.Note, note)
	out := &changed{Status: status, Body: *result}
	if result.Timer != nil {
		out.ETag = etag(result.Timer)
	}
	return out, nil
}

// tooLarge says that Kafka would not take the record: so it cannot be a dead letter either.
func tooLarge(r *route.Request, topic Topic) error {
	n := recordOverhead + len(r.ID) + len(r.Value)
	for _, h := range r.Headers {
		n += headerOverhead + len(h.Key) + len(h.Value)
	}
	if n <= topic.MaxBytes {
		return nil
	}
	return problem(http.StatusRequestEntityTooLarge, ReasonTooLarge, "the request has %d bytes as a record, and the request topic takes %d (max.message.bytes)", n, topic.MaxBytes)
}

const (
	recordOverhead = 61 + 21 // of a batch, and of the record in it at most
	headerOverhead = 10      // two lengths
)

// callBytes is how large the requests of one call to an owner are together, but for one that
// is larger alone: an instance bounds what it takes (api-body-limit).
const callBytes = 512 << 10

// write writes requests of one partition and, if asked to, waits for what becomes of them. An
// error says that none was written, or that it is not known of any. Where a part was written and
// the next one fails, each request behind it is told of by itself.
func (a *API) write(ctx context.Context, at timer.TopicPartition, wait string, rs []route.Request) ([]route.Written, error) {
	for i := range rs {
		access.Wrote(ctx, string(rs[i].ID))
	}
	if wait == "written" {
		ctx, cancel := context.WithTimeout(ctx, produceTimeout)
		defer cancel()
		return a.o.Asker.Produce(ctx, at, rs), nil
	}
	ctx, cancel := context.WithTimeout(ctx, decideTimeout+produceTimeout)
	defer cancel()
	all := make([]route.Written, 0, len(rs))
	for len(all) < len(rs) {
		part := rs[len(all):]
		part = part[:fit(part)]
		answer, err := a.o.Asker.Ask(ctx, &route.Call{
			Kind: route.Write, Topic: at.Topic, Partition: at.Partition, Requests: part, WaitMillis: decideTimeout.Milliseconds(),
		})
		if err == nil && len(answer.Written) != len(part) {
			err = fmt.Errorf("%w: the owner answers for %d requests of %d", route.ErrUnknown, len(answer.Written), len(part))
		}
		if err != nil && len(all) == 0 {
			return nil, err
		}
		if err != nil {
			// Of those behind this part none was sent.
			for i := range rs[len(all):] {
				all = append(all, route.Written{Offset: -1, Unknown: i < len(part) && errors.Is(err, route.ErrUnknown), Problem: err.Error()})
			}
			return all, nil
		}
		all = append(all, answer.Written...)
	}
	return all, nil
}

// fit is how many requests go with one call, at least one.
func fit(rs []route.Request) int {
	size := 0
	for n := range rs {
		size += len(rs[n].ID) + len(rs[n].Value)
		for _, h := range rs[n].Headers {
			size += headerOverhead + len(h.Key) + len(h.Value)
		}
		if size > callBytes && n > 0 {
			return n
		}
	}
	return len(rs)
}

// decided is what a caller is told of a request.
func decided(at timer.TopicPartition, id string, w *route.Written) (status int, r *Result, p *Problem) {
	if w.Offset < 0 && w.Unknown {
		return 0, nil, routed(fmt.Errorf("%w: %s", route.ErrUnknown, w.Problem))
	}
	if w.Offset < 0 {
		return 0, nil, problem(http.StatusServiceUnavailable, ReasonNotWritten, "the request was not written: %s", w.Problem)
	}
	r = &Result{Topic: at.Topic, Partition: at.Partition, Offset: w.Offset}
	d := w.Decision
	if d == nil {
		r.Outcome, r.Note = "written", w.Why
		return http.StatusAccepted, r, nil
	}
	r.Outcome, r.Timer = d.Outcome, view(d.Pending, true)
	switch d.Outcome {
	case string(waterclock.EventRejected):
		p = problem(statusOf(d.Reason), d.Reason, "%s", d.Detail)
	case string(waterclock.EventConditionNotMet):
		p = problem(http.StatusPreconditionFailed, ReasonConditionNotMet, "what the request counts under does not hold of timer %.100q: nothing has changed", id)
		p.Pending = r.Timer
	case "not-found":
		if d.Pending != nil { // paused when it was, and the like
			r.Outcome = "unchanged"
			return http.StatusOK, r, nil
		}
		p = problem(http.StatusNotFound, ReasonNotFound, "no timer of ID %.100q was pending on %s: nothing has changed", id, at.Topic)
	case string(waterclock.EventScheduled):
		return http.StatusCreated, r, nil
	default:
		return http.StatusOK, r, nil
	}
	p.Request = fmt.Sprintf("%s/%d/%d", at.Topic, at.Partition, w.Offset)
	return 0, nil, p
}

// conditions are the parameters of what may count under a condition.
func conditions() []*huma.Param {
	return []*huma.Param{
		header("If-Match", `* : something is pending. "SOURCE": the timer from that request is, as an ETag has it.`),
		header("If-None-Match", "*: nothing is pending."),
		header(waterclock.HeaderIf, "absent, present, or a waterclock-source: as in Kafka; instead of If-Match and If-None-Match."),
	}
}

func header(name, doc string) *huma.Param {
	return &huma.Param{Name: name, In: "header", Description: doc, Schema: &huma.Schema{Type: "string"}}
}

// requestHeaders are the parameters of what schedules.
func requestHeaders() []*huma.Param {
	return []*huma.Param{
		header(waterclock.HeaderAt, "Due then: RFC 3339 with a zone, or Unix milliseconds."),
		header(waterclock.HeaderAfter, "Due that long from now: 250ms, 90s, 1h30m, 3d, P1DT2H."),
		header(waterclock.HeaderEvery, "Recurs at that interval."),
		header(waterclock.HeaderCron, "Recurs when the clock shows that: 5 or 6 fields."),
		header(waterclock.HeaderZone, "IANA name of the time zone of timer-cron; without it UTC."),
		header(waterclock.HeaderUntil, "End of the recurrence, inclusive."),
		header(waterclock.HeaderCount, "How many occurrences there are."),
		header(waterclock.HeaderJitter, "Each occurrence is delayed by a part of it."),
		header(waterclock.HeaderCatchUp, "What becomes of missed occurrences: all, latest or none."),
		header(waterclock.HeaderMaxLate, "What would be emitted later than that is not."),
		header(waterclock.HeaderRemember, "For how long its ID stays taken once it has fired, as in 1h: timer-if: absent does not hold as long."),
		header(waterclock.HeaderTargetTopic, "Where it fires to; without it the default target of the request topic."),
		header(waterclock.HeaderTargetKey, "Key of the emission; without it the ID."),
		header(waterclock.HeaderTargetKeyNull, "true: a null key."),
		header(waterclock.HeaderTargetPartition, "Partition of the target; without it the key decides."),
		// No array: in OpenAPI that is one line with commas, which may stand in a value.
		header("waterclock-pass", "NAME=VALUE: a header that is passed on to the target. HTTP takes any number of these lines; a client that sends one has the others in a body of JSON."),
	}
}
