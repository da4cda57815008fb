package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// OneTimer has the parameters of operations on one timer.
type OneTimer struct {
	Topic string `path:"topic" doc:"Request topic."`
	ID    string `path:"id" doc:"ID of the timer, percent-encoded for a path, including slashes."`
}

// Wait is how long a call that changes something waits.
type Wait struct {
	Wait string `query:"wait" enum:"decided,written" default:"decided" doc:"decided: until the owner has committed the outcome of the request. written: until Kafka has the request."`
}

// Result is the outcome of a request.
type Result struct {
	Outcome   string `json:"outcome" enum:"scheduled,replaced,cancelled,triggered,paused,resumed,moved,completed,unchanged,written" doc:"The outcome of the request. unchanged: the timer was in that state already. written: it is in the log, and its outcome is unknown here."`
	Topic     string `json:"topic" doc:"Position of the request in the log: request topic."`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Timer     *Timer `json:"timer,omitempty" doc:"The timer pending under the ID right after the request."`
	Note      string `json:"note,omitempty" doc:"With written: why no more is known. Otherwise an anomaly: that the timer is on another partition than its ID belongs on, or that there is no such target."`
}

// changed is the response to a call that changes one timer.
type changed struct {
	Status int
	ETag   string `header:"ETag" doc:"Of the pending timer, in quotes: its source, and from its second occurrence on, or in another state than pending, a semicolon and more."`
	Body   Result
}

const onePath = "/v1/topics/{topic}/timers/{id}"

// timers has the operations on one timer.
type timers struct {
	*common
	ofTarget func(ctx context.Context, topic string) string // see [Options]
}

func (t *timers) register(h huma.API) {
	t.registerPut(h)
	t.registerPatch(h)
	op := operation("timers", http.MethodGet, onePath, "getTimer", "See a pending timer")
	op.Parameters = []*huma.Param{header("If-None-Match",
		"ETags of the timer as the caller has it: 304 if it is still so.")}
	describe[Timer](h, &op, nil)
	op.Responses["304"] = &huma.Response{Description: "It is as one of the ETags of If-None-Match says."}
	handle(h, op, t.get)
	for _, s := range []struct{ id, method, path, summary, header, then string }{
		{"cancelTimer", http.MethodDelete, onePath, "Cancel a timer", waterclock.HeaderCancel, ""},
		{"triggerTimer", http.MethodPost, onePath + "/trigger", "Have a timer fire now", waterclock.HeaderTrigger,
			"One that recurs goes on as if nothing had been."},
		{"pauseTimer", http.MethodPost, onePath + "/pause", "Have a timer not fire until it is resumed",
			waterclock.HeaderPause, ""},
		{"resumeTimer", http.MethodPost, onePath + "/resume", "Have a paused timer fire again", waterclock.HeaderResume,
			"If it is past due, it fires immediately."},
	} {
		op := operation("timers", s.method, s.path, s.id, s.summary, s.then,
			"404: nothing is pending under the ID. 412: its condition does not hold.")
		op.Parameters = conditions()
		describe[Result](h, &op, map[string]string{"202": inTheLog})
		handle(h, op, func(ctx context.Context, in *struct {
			OneTimer
			Wait
		}) (*changed, error) {
			r, err := steering(in.ID, s.header, headersOf(ctx))
			return t.change(ctx, &in.OneTimer, in.Wait.Wait, r, true, err)
		})
	}
}

func (t *timers) registerPut(h huma.API) {
	op := operation("timers", http.MethodPut, onePath, "putTimer", "Schedule a timer, or schedule it again",
		"The body is the payload, byte for byte, and HTTP headers are those of the request in Kafka, with the same "+
			"names; or the body is the timer as JSON, of the type application/json, and may be what GET has "+
			"answered. A payload that is JSON itself is sent as application/octet-stream, or as value.",
		"400, 403, 409, 413, 431 without request: the call or its timer is wrong, and nothing is written.",
		"The same, or 429, with request: the owner has rejected the request, which is a dead letter; reason and "+
			"detail are the same.")
	op.MaxBodyBytes = t.topics.largest()
	op.Parameters = append(conditions(), requestHeaders()...)
	before(&op, func(c huma.Context) error {
		_, err := t.topics.topic(c.Context(), access.Write, c.Param("topic"), c.Param("id"))
		return err
	})
	describe[Result](h, &op, scheduledOrInTheLog())
	handle(h, op, func(ctx context.Context, in *struct {
		OneTimer
		Wait
		RawBody []byte `contentType:"application/octet-stream"`
	}) (*changed, error) {
		// The body is in a buffer that is reused when this call is over. A record may be in flight for longer.
		r, err := fromHTTP(in.Topic, in.ID, headersOf(ctx), bytes.Clone(in.RawBody))
		done, err := t.change(ctx, &in.OneTimer, in.Wait.Wait, r, false, err)
		return done, meantJSON(err, in.RawBody)
	})
	documentBody[NewTimer](h, h.OpenAPI().Paths[onePath].Put, false)
	// Any other type would do, but generators have none for */*.
	h.OpenAPI().Paths[onePath].Put.RequestBody.Content["application/octet-stream"] = &huma.MediaType{
		Schema: &huma.Schema{Type: "string", Format: "binary", Description: "The payload, of any type but JSON's."},
	}
}

// maxPatchBytes bounds the body of a PATCH.
const maxPatchBytes = 4 << 10

func (t *timers) registerPatch(h huma.API) {
	op := operation("timers", http.MethodPatch, onePath, "moveTimer", "Make a timer due at another time",
		"Everything else stays. Of a timer that recurs the next occurrence moves, and the schedule goes on.",
		"404: nothing is pending under the ID. 412: its condition does not hold.")
	op.MaxBodyBytes = maxPatchBytes
	op.Parameters = conditions()
	before(&op, func(c huma.Context) error {
		if err := isJSON(c.Header("Content-Type")); err != nil {
			return err
		}
		_, err := t.topics.topic(c.Context(), access.Write, c.Param("topic"), c.Param("id"))
		return err
	})
	describe[Result](h, &op, map[string]string{"202": inTheLog})
	handle(h, op, func(ctx context.Context, in *struct {
		OneTimer
		Wait
		RawBody []byte `contentType:"application/octet-stream"`
	}) (*changed, error) {
		r, err := moving(in.ID, headersOf(ctx), in.RawBody)
		return t.change(ctx, &in.OneTimer, in.Wait.Wait, r, true, err)
	})
	documentBody[NewTime](h, h.OpenAPI().Paths[onePath].Patch, true)
}

// meantJSON extends a rejection for a missing due time with a hint that the payload looks like the timer as JSON.
func meantJSON(err error, body []byte) error {
	var p *Problem
	if !errors.As(err, &p) || p.Reason != string(waterclock.ReasonNoDueTime) || p.Request != "" {
		return err
	}
	var fields struct{ After, At, Every, Cron json.RawMessage }
	if json.Unmarshal(body, &fields) == nil && cmp.Or(len(fields.After), len(fields.At), len(fields.Every),
		len(fields.Cron)) > 0 {
		p.Detail += " The body looks like a timer as JSON: send it with Content-Type: application/json."
	}
	return err
}

// shownTimer is the response to getTimer.
type shownTimer struct {
	Status int
	ETag   string `header:"ETag" doc:"Its source in quotes; from its second occurrence on, or in another state than pending, with a semicolon and more. If-None-Match takes it."`
	Body   Timer
}

func (t *timers) get(ctx context.Context, in *OneTimer) (*shownTimer, error) {
	topic, err := t.topics.topic(ctx, access.Read, in.Topic, in.ID)
	if err != nil {
		return nil, err
	}
	none := problem(http.StatusNotFound, ReasonNotFound, "no timer of ID %.100q is pending on %s", in.ID, in.Topic)
	if len(in.ID) > waterclock.MaxIDBytes {
		return nil, none // it is not, and never will be
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	at := t.topics.at(in.Topic, topic, []byte(in.ID))
	answer, err := t.asker.Ask(ctx,
		&route.Call{Kind: route.Get, Topic: at.Topic, Partition: at.Partition, ID: []byte(in.ID)})
	if err != nil {
		return nil, err
	}
	if answer.Timer == nil || answer.Timer.State == query.Remembered {
		answer.Timer = t.asker.Find(ctx, in.Topic, []byte(in.ID))
	}
	if answer.Timer == nil {
		return nil, none
	}
	if err := access.Reserve(ctx, pageFactor*int64(answer.Timer.Size())); err != nil {
		return nil, err
	}
	v := view(answer.Timer, true)
	v.Note = stray(v.Topic, v.Partition, at.Partition)
	status, tag := http.StatusOK, etag(v)
	if isAmong(tag, headersOf(ctx).Values("If-None-Match")) {
		status = http.StatusNotModified // without a body
	}
	return &shownTimer{status, tag, *v}, nil
}

// stray explains that a timer is on another partition than its ID belongs on; "" if it is not.
func stray(topic string, lies, belongs int32) string {
	if lies == belongs {
		return ""
	}
	return fmt.Sprintf("it is on partition %d of %s, and its ID belongs on %d: its producer uses another "+
		"partitioner than murmur2, so requests of others for this ID by Kafka miss it, unless they name partition %d",
		lies, topic, belongs, lies)
}

// nothingPending reports whether a request failed because nothing is pending under its ID.
func nothingPending(p *Problem) bool {
	if p == nil || p.Pending != nil && p.Pending.State != string(query.Remembered) {
		return false
	}
	return p.Reason == ReasonNotFound || p.Reason == ReasonConditionNotMet
}

// change writes a request, or returns its problem. If a request steers a timer that is on another partition than its
// ID belongs on, it is written once more, to that partition.
func (t *timers) change(ctx context.Context, in *OneTimer, wait string, r route.Request, steers bool,
	wrong error) (*changed, error) {
	topic, err := t.topics.topic(ctx, access.Write, in.Topic, in.ID)
	if err != nil {
		return nil, err
	}
	if wrong != nil {
		return nil, badRequest(wrong)
	}
	at := t.topics.at(in.Topic, topic, r.ID)
	if err := finish(ctx, &r, topic, at.Partition); err != nil {
		return nil, err
	}
	status, result, wrongs := writeOne(ctx, t.asker, at, wait, r)
	note := ""
	if steers && nothingPending(wrongs) || status == http.StatusCreated {
		if found := t.asker.Find(ctx, in.Topic, r.ID); found != nil {
			note = stray(in.Topic, found.Partition, at.Partition)
			at.Partition = found.Partition
		}
	}
	switch {
	case note != "" && steers:
		status, result, wrongs = writeOne(ctx, t.asker, at, wait, r)
	case note != "":
		note = "another timer of this ID is pending, which this one does not replace: " + note
	}
	if wrongs != nil {
		return nil, wrongs
	}
	if shown := result.Timer; shown != nil && !steers && t.ofTarget != nil && note == "" {
		note = t.ofTarget(ctx, shown.Target.Topic)
	}
	result.Note = cmp.Or(result.Note, note)
	out := &changed{Status: status, Body: *result}
	if result.Timer != nil {
		out.ETag = etag(result.Timer)
	}
	return out, nil
}

// finish makes a request ready to be written to a partition. It returns a problem if Kafka would not take the request
// as a record, or if its owner would reject it: then nothing is written, and there is no dead letter. The request
// gets the trace context of its call, if there is room for that.
func finish(ctx context.Context, r *route.Request, topic Topic, partition int32) error {
	n := recordOverhead + bytesOf(r)
	if n > topic.MaxBytes {
		return problem(http.StatusRequestEntityTooLarge, ReasonTooLarge,
			"the request has %d bytes as a record, and the request topic takes %d (max.message.bytes)", n,
			topic.MaxBytes)
	}
	if err := topic.judge(partition, r); err != nil {
		return err
	}
	addParent(ctx, r, topic.MaxBytes-n)
	return nil
}

// bytesOf returns the largest size of a request in a batch, in bytes.
func bytesOf(r *route.Request) int {
	n := len(r.ID) + len(r.Value)
	for _, h := range r.Headers {
		n += headerOverhead + len(h.Key) + len(h.Value)
	}
	return n
}

const (
	recordOverhead = 61 + 21 // of a batch, and of one record in it, at most
	headerOverhead = 10      // two lengths
)

// callBytes limits the requests of one call to an owner, together; a single larger one goes alone. Instances limit
// incoming calls (api-body-limit).
const callBytes = 512 << 10

// write writes requests to one partition and waits for their outcomes, or only for Kafka if wait is "written". An
// error means that none was written, or that this is unknown for all of them. If a part was written and the next part
// fails, each request of the rest has its own Written.
func write(ctx context.Context, asker Asker, at timer.TopicPartition, wait string,
	rs []route.Request) ([]route.Written, error) {
	for i := range rs {
		access.Wrote(ctx, string(rs[i].ID))
	}
	if wait == "written" {
		ctx, cancel := context.WithTimeout(ctx, produceTimeout)
		defer cancel()
		return asker.Produce(ctx, at, rs), nil
	}
	ctx, cancel := context.WithTimeout(ctx, decideTimeout+produceTimeout)
	defer cancel()
	all := make([]route.Written, 0, len(rs))
	for len(all) < len(rs) {
		part := rs[len(all):]
		part = part[:fit(part)]
		answer, err := asker.Ask(ctx, &route.Call{
			Kind: route.Write, Topic: at.Topic, Partition: at.Partition, Requests: part,
			WaitMillis: decideTimeout.Milliseconds(),
		})
		if err == nil && len(answer.Written) != len(part) {
			err = fmt.Errorf("%w: the owner answers for %d requests of %d", route.ErrUnknown,
				len(answer.Written), len(part))
		}
		if err != nil && len(all) == 0 {
			return nil, err
		}
		if err != nil {
			// None of the requests after this part was sent.
			for i := range rs[len(all):] {
				all = append(all, route.Written{Offset: -1, Unknown: i < len(part) && errors.Is(err, route.ErrUnknown),
					Problem: err.Error()})
			}
			return all, nil
		}
		all = append(all, answer.Written...)
	}
	return all, nil
}

// writeOne writes one request, and returns the result for the caller.
func writeOne(ctx context.Context, asker Asker, at timer.TopicPartition, wait string,
	r route.Request) (status int, result *Result, p *Problem) {
	all, err := write(ctx, asker, at, wait, []route.Request{r})
	if err != nil {
		return 0, nil, routed(err)
	}
	return decided(at, string(r.ID), &all[0])
}

// fit returns the number of requests that go with one call, at least one.
func fit(rs []route.Request) int {
	size := 0
	for n := range rs {
		if size += bytesOf(&rs[n]); size > callBytes && n > 0 {
			return n
		}
	}
	return len(rs)
}

// decided returns the result of a request for the caller.
func decided(at timer.TopicPartition, id string, w *route.Written) (status int, r *Result, p *Problem) {
	if w.Offset < 0 && w.Unknown {
		return 0, nil, routed(fmt.Errorf("%w: %s", route.ErrUnknown, w.Problem))
	}
	if w.Offset < 0 {
		return 0, nil, problem(http.StatusServiceUnavailable, ReasonNotWritten, "the request was not written: %s",
			w.Problem)
	}
	r = &Result{Topic: at.Topic, Partition: at.Partition, Offset: w.Offset}
	d := w.Decision
	if d == nil {
		r.Outcome, r.Note = "written", w.Why
		return http.StatusAccepted, r, nil
	}
	r.Outcome, r.Timer = d.Outcome, view(d.Pending, true)
	remembered := d.Pending != nil && d.Pending.State == query.Remembered // which is not pending
	switch d.Outcome {
	case string(waterclock.EventRejected):
		p = problem(statusOf(d.Reason), d.Reason, "%s", d.Detail)
	case string(waterclock.EventConditionNotMet):
		p = problem(http.StatusPreconditionFailed, ReasonConditionNotMet,
			"the condition does not hold for timer %.100q: nothing has changed", id)
		p.Pending = r.Timer
	case "not-found":
		if d.Pending != nil && !remembered { // for example, it was already paused
			r.Outcome = "unchanged"
			return http.StatusOK, r, nil
		}
		p = problem(http.StatusNotFound, ReasonNotFound, "no timer of ID %.100q was pending on %s: nothing has changed",
			id, at.Topic)
	case string(waterclock.EventScheduled):
		return http.StatusCreated, r, nil
	default:
		if remembered { // it has ended by a resume
			r.Timer = nil
		}
		return http.StatusOK, r, nil
	}
	p.Request = fmt.Sprintf("%s/%d/%d", at.Topic, at.Partition, w.Offset)
	return 0, nil, p
}
