package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/span"
)

// Outcome is the result of a request.
type Outcome string

// The outcomes. A later version of the service may have more.
const (
	Scheduled Outcome = "scheduled" // nothing was pending under the ID
	Replaced  Outcome = "replaced"  // the pending timer was replaced
	Cancelled Outcome = "cancelled"
	Triggered Outcome = "triggered"
	Paused    Outcome = "paused"
	Resumed   Outcome = "resumed"
	Moved     Outcome = "moved"
	Completed Outcome = "completed" // a resumed recurrence has no occurrence left
	Unchanged Outcome = "unchanged" // there was nothing to change
	// Written: the request is in the log, and its decision is not known here. Decision.Note says why. It may still be
	// rejected, which makes it a dead letter.
	Written Outcome = "written"
)

// Decision is the outcome of a request. Unless it is Written, the owner of the timer has committed it.
type Decision struct {
	Outcome Outcome
	// Source is the request's place in the log. It identifies the timer that the request has scheduled: [waterclock.If]
	// takes Source.String().
	Source waterclock.Source
	Timer  *Timer // pending under the ID right after the request; nil: none, or not known
	Note   string // an anomaly, for people
	// Repeated: the answer to an earlier attempt of the call is lost. That one may have made the change that this
	// attempt found.
	Repeated bool
}

// decision is a decision in the JSON of the API.
type decision struct {
	Outcome   Outcome `json:"outcome"`
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Offset    int64   `json:"offset"`
	Timer     *Timer  `json:"timer,omitempty"`
	Note      string  `json:"note,omitempty"`
}

// UnmarshalJSON reads a decision as the API writes it.
func (d *Decision) UnmarshalJSON(b []byte) error {
	var w decision
	err := json.Unmarshal(b, &w)
	*d = Decision{Outcome: w.Outcome, Timer: w.Timer, Note: w.Note,
		Source: waterclock.Source{Topic: w.Topic, Partition: w.Partition, Offset: w.Offset}}
	return err
}

// MarshalJSON writes a decision as the API does.
func (d *Decision) MarshalJSON() ([]byte, error) {
	return json.Marshal(decision{d.Outcome, d.Source.Topic, d.Source.Partition, d.Source.Offset, d.Timer, d.Note})
}

// Schedule schedules or reschedules a timer, and waits for the decision. See [waterclock.Schedule] for the parameters;
// [waterclock.Timestamp] is for requests through a producer only.
func (c *Client) Schedule(ctx context.Context, topic, id string, opts ...waterclock.Option) (Decision, error) {
	rec, err := waterclock.Schedule(topic, id, opts...)
	return c.send(ctx, rec, err, http.MethodPut, "")
}

// Cancel cancels the pending timer of an ID, and waits for the decision. The error has [ReasonNotFound] if none is
// pending. [waterclock.If] is the only option; so it is for Trigger, Pause and Resume.
func (c *Client) Cancel(ctx context.Context, topic, id string, opts ...waterclock.Option) (Decision, error) {
	rec, err := waterclock.Cancel(topic, id, opts...)
	return c.send(ctx, rec, err, http.MethodDelete, "")
}

// Trigger fires the pending timer of an ID now: see [waterclock.Trigger].
func (c *Client) Trigger(ctx context.Context, topic, id string, opts ...waterclock.Option) (Decision, error) {
	rec, err := waterclock.Trigger(topic, id, opts...)
	return c.send(ctx, rec, err, http.MethodPost, "trigger")
}

// Pause keeps the pending timer of an ID from firing until Resume.
func (c *Client) Pause(ctx context.Context, topic, id string, opts ...waterclock.Option) (Decision, error) {
	rec, err := waterclock.Pause(topic, id, opts...)
	return c.send(ctx, rec, err, http.MethodPost, "pause")
}

// Resume lets a paused timer fire again.
func (c *Client) Resume(ctx context.Context, topic, id string, opts ...waterclock.Option) (Decision, error) {
	rec, err := waterclock.Resume(topic, id, opts...)
	return c.send(ctx, rec, err, http.MethodPost, "resume")
}

// Move makes the pending timer of an ID due at another time: see [waterclock.Move]. It takes [waterclock.At] or
// [waterclock.After].
func (c *Client) Move(ctx context.Context, topic, id string, opts ...waterclock.Option) (Decision, error) {
	rec, err := waterclock.Move(topic, id, opts...)
	return c.send(ctx, rec, err, http.MethodPatch, "")
}

// send sends a request, unless there was an error in building it.
func (c *Client) send(ctx context.Context, rec *kgo.Record, err error, method, action string) (d Decision, _ error) {
	if err != nil {
		return d, err
	}
	if c.o.Producer != nil {
		all, err := c.produce(ctx, rec)
		return all[0].Decision, err
	}
	path := []string{"timers", string(rec.Key)}
	if action != "" {
		path = append(path, action)
	}
	q := &call{method: method, path: Path(rec.Topic, path...), header: make(http.Header)}
	if action != "trigger" {
		q.repeats = repeats(time.Now(), rec)
	}
	if err := q.carry(rec); err != nil {
		return d, err
	}
	repeated, err := c.answer(ctx, q, &d)
	d.Repeated = repeated
	return d, err
}

// produce writes requests to Kafka. The results are in the order of the requests, and the error joins theirs.
func (c *Client) produce(ctx context.Context, recs ...*kgo.Record) (all []Result, _ error) {
	failed := make(map[*kgo.Record]error)
	for _, r := range c.o.Producer.ProduceSync(ctx, recs...) { // in the order in which they were written
		failed[r.Record] = r.Err
	}
	errs := make([]error, len(recs))
	for i, rec := range recs {
		if errs[i] = failed[rec]; errs[i] == nil {
			all = append(all, Result{ID: string(rec.Key), Decision: Decision{
				Outcome: Written, Note: "the request went through Kafka",
				Source: waterclock.Source{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset}}})
			continue
		}
		all = append(all, Result{ID: string(rec.Key), Err: errs[i]})
	}
	return all, errors.Join(errs...)
}

// surely is how long before a timer is due it cannot have fired, whatever the clocks say.
const surely = time.Minute

// repeats returns a function that reports whether a request does no harm if it is in the log twice. A request that
// steers does none, except a trigger. One that schedules replaces the timer with an equal one, unless that may have
// fired by then.
func repeats(began time.Time, rec *kgo.Record) func() bool {
	h := headersOf(rec)
	every, cron := h[waterclock.HeaderEvery], h[waterclock.HeaderCron]
	switch {
	case rec.Value == nil && h[waterclock.HeaderAt]+h[waterclock.HeaderAfter]+every+cron == "": // it steers
		return always
	case h[waterclock.HeaderMove] != "" && strings.Contains(h[waterclock.HeaderIf], "/"): // only of that source
		return always
	case h[waterclock.HeaderMove] != "": // a recurring timer may have gone on by then
		return func() bool { return false }
	case h[waterclock.HeaderRemember] != "" && h[waterclock.HeaderIf] == waterclock.IfAbsent:
		return always
	}
	due := began
	if at, err := strconv.ParseInt(h[waterclock.HeaderAt], 10, 64); err == nil {
		due = time.UnixMilli(at)
	} else if after, err := span.Parse(h[waterclock.HeaderAfter] + h[waterclock.HeaderEvery]); err == nil {
		due = began.Add(after)
	}
	return func() bool { return time.Now().Add(surely).Before(due) }
}

// headersOf returns the instructions of a request. The client has built it: none is given twice.
func headersOf(rec *kgo.Record) map[string]string {
	all := make(map[string]string)
	for _, h := range rec.Headers {
		if strings.HasPrefix(h.Key, waterclock.RequestPrefix) {
			all[h.Key] = string(h.Value)
		}
	}
	return all
}

// carry puts a request into a call: as headers and payload, or as JSON if a header of HTTP cannot carry something.
func (c *call) carry(rec *kgo.Record) error {
	if !rec.Timestamp.IsZero() {
		return errors.New("waterclock.Timestamp has no effect over HTTP: leave it out")
	}
	plain := rec.Value != nil
	for _, h := range rec.Headers {
		plain = plain && isPlain(h.Key+"="+string(h.Value)) && h.Value != nil && !strings.Contains(h.Key, "=")
	}
	if steers := c.method != http.MethodPut; !steers && !plain {
		body, err := json.Marshal(newTimer(rec, false))
		c.body = body
		c.header.Set("Content-Type", "application/json")
		return err
	}
	own := map[string]bool{waterclock.HeaderCancel: true, waterclock.HeaderTrigger: true, waterclock.HeaderPause: true,
		waterclock.HeaderResume: true, waterclock.HeaderMove: true} // the path or the method says so
	if c.method == http.MethodPatch {
		to := make(map[string]string)
		for _, h := range rec.Headers {
			if h.Key == waterclock.HeaderAt || h.Key == waterclock.HeaderAfter {
				to[strings.TrimPrefix(h.Key, waterclock.RequestPrefix)] = string(h.Value)
				own[h.Key] = true
			}
		}
		c.body, _ = json.Marshal(to) // never an error of texts
		c.header.Set("Content-Type", "application/json")
	}
	for _, h := range rec.Headers {
		switch {
		case own[h.Key]:
		case strings.HasPrefix(h.Key, waterclock.RequestPrefix):
			c.header.Set(h.Key, string(h.Value))
		default:
			c.header.Add("Waterclock-Pass", h.Key+"="+string(h.Value))
		}
	}
	if c.method == http.MethodPut {
		c.body = rec.Value
		c.header.Set("Content-Type", "application/octet-stream")
	}
	return nil
}

// isPlain reports whether a header of HTTP carries a text unchanged.
func isPlain(text string) bool {
	return strings.TrimSpace(text) == text && !strings.HasSuffix(text, "= ") &&
		!strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// newTimer returns the JSON of a request that schedules.
func newTimer(rec *kgo.Record, withID bool) map[string]any {
	t, target := make(map[string]any), make(map[string]any)
	if withID && len(rec.Key) > 0 {
		t["idBase64"] = rec.Key
	}
	give(t, "value", rec.Value)
	var passed []map[string]any
	for _, h := range rec.Headers {
		name, ours := strings.CutPrefix(h.Key, waterclock.RequestPrefix)
		switch value := string(h.Value); {
		case !ours:
			header := map[string]any{"name": h.Key}
			give(header, "value", h.Value)
			passed = append(passed, header)
		case h.Key == waterclock.HeaderLabels:
			t["labels"], _ = waterclock.ParseLabels(value) // the record was built from them
		case h.Key == waterclock.HeaderNotOn:
			t["notOn"] = strings.Split(value, ",")
		case h.Key == waterclock.HeaderCount:
			t["count"] = json.Number(value)
		case h.Key == waterclock.HeaderTargetTopic:
			target["topic"] = value
		case h.Key == waterclock.HeaderTargetPartition:
			target["partition"] = json.Number(value)
		case h.Key == waterclock.HeaderTargetKey:
			give(target, "key", h.Value)
		case h.Key == waterclock.HeaderTargetKeyNull:
			target["keyNull"] = true
		default: // timer-max-late is maxLate
			words := strings.Split(name, "-")
			for i, w := range words[1:] {
				words[i+1] = strings.ToUpper(w[:1]) + w[1:]
			}
			t[strings.Join(words, "")] = value
		}
	}
	if len(target) > 0 {
		t["target"] = target
	}
	if len(passed) > 0 {
		t["headers"] = passed
	}
	return t
}

// give sets a field to bytes, in base64, or to null.
func give(fields map[string]any, name string, value []byte) {
	if value == nil {
		fields[name+"Null"] = true
		return
	}
	fields[name+"Base64"] = value
}

// Batch is many requests for one topic.
type Batch struct {
	// Requests schedule; [waterclock.Schedule] makes them. The service takes 1,000 at most.
	Requests []*kgo.Record
	// Key makes a repeated call schedule nothing twice: the same key with the same requests, at any instance, finds the
	// timers unchanged. It counts for requests without an ID: [Unnamed] makes them.
	Key string
	// Window is how long the key counts once a timer has fired, in whole seconds: an hour if it is 0, 7 days at most.
	Window time.Duration
}

// Unnamed takes the ID of a request away: the service makes one. Only a Batch may have such requests.
func Unnamed(rec *kgo.Record) *kgo.Record {
	rec.Key = nil
	return rec
}

// Result is the decision on one request of a Batch, or the reason why there is none.
type Result struct {
	ID       string
	Decision Decision
	Err      error // an *Error, or one of the producer
}

// ScheduleAll sends many requests in one call, and waits for all decisions. There is one result for each request, in
// order; those of one partition are written in order. An error means that there are no results, except from a producer.
func (c *Client) ScheduleAll(ctx context.Context, topic string, b Batch) ([]Result, error) {
	if c.o.Producer != nil {
		return c.produce(ctx, b.Requests...)
	}
	q := &call{method: http.MethodPost, path: Path(topic, "timers"), header: make(http.Header)}
	timers := make([]map[string]any, len(b.Requests))
	began := time.Now()
	for i, rec := range b.Requests {
		timers[i] = newTimer(rec, true)
	}
	q.repeats = func() bool {
		for _, rec := range b.Requests {
			if keyed := b.Key != "" && len(rec.Key) == 0; !keyed && (len(rec.Key) == 0 || !repeats(began, rec)()) {
				return false
			}
		}
		return true
	}
	var err error
	if q.body, err = json.Marshal(map[string]any{"timers": timers}); err != nil {
		return nil, fmt.Errorf("encode requests: %w", err)
	}
	q.header.Set("Content-Type", "application/json")
	if b.Key != "" {
		q.header.Set("Idempotency-Key", b.Key)
	}
	if b.Window > 0 {
		q.header.Set("Idempotency-Window", strconv.Itoa(int(b.Window/time.Second)))
	}
	var got struct {
		Results []struct {
			ID       string
			IDBase64 []byte
			Result   *Decision
			Problem  *Error
		}
	}
	repeated, err := c.answer(ctx, q, &got)
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(got.Results))
	for i, r := range got.Results {
		results[i].ID = either(r.ID, r.IDBase64)
		if r.Problem != nil {
			r.Problem.Repeated = repeated
			results[i].Err = r.Problem
		} else if r.Result != nil {
			results[i].Decision = *r.Result
			results[i].Decision.Repeated = repeated
		}
	}
	return results, nil
}

// texts returns a query of the names whose values are not empty.
func texts(namesAndValues ...string) url.Values {
	q := make(url.Values)
	for i := 0; i < len(namesAndValues); i += 2 {
		if value := namesAndValues[i+1]; value != "" {
			q.Set(namesAndValues[i], value)
		}
	}
	return q
}

// millis returns an instant as parameters take it; "" for the zero time.
func millis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}
