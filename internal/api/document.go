package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
)

// Parts of the OpenAPI document that do not follow from the Go types: the problems of each operation by status, their
// reasons, examples, and that responses may get more fields.
//
// docs/API.md defines the changes allowed within v1: responses may have new fields, and there may be new reasons. So
// the schemas of responses are open, those of request bodies are closed, and a status that an operation does not list
// is covered by its default.

// taken are the schemas of request bodies: the service rejects unknown fields.
var taken = []string{"NewTimer", "NewTimers", "Correction", "CalendarRules"}

// reasons returns all reasons of problems: those of dead letters, of the API and of the guard in front of it.
func reasons() []string {
	all := []string{
		ReasonNotFound, ReasonConditionNotMet, ReasonMoving, ReasonFailed, ReasonKafka, ReasonUnknownOutcome,
		ReasonElsewhere,
		ReasonNotWritten, ReasonNoTopic, ReasonNoPath, ReasonNoEvents, ReasonEventsGone, ReasonBadRequest,
		ReasonForbidden,
		ReasonTooLarge, ReasonKeyReused, ReasonTooManyJobs, ReasonTooManyStreams, ReasonBadCalendar, ReasonInternal,
	}
	all = append(all, access.Reasons()...)
	for _, r := range waterclock.Reasons() {
		all = append(all, string(r))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// statuses describe the statuses of problems that more than one operation has.
var statuses = map[int]string{
	http.StatusBadRequest:   "The call is wrong, or its request was rejected and is a dead letter: see reason.",
	http.StatusUnauthorized: "unauthenticated: no credentials, or wrong ones.",
	http.StatusForbidden: "forbidden: the caller has no such right. Of a request that is refused: " +
		"target-not-allowed.",
	http.StatusNotFound:       "not-found, no-such-topic: the path names nothing that exists.",
	http.StatusRequestTimeout: "body-timeout: the body did not arrive in time.",
	http.StatusConflict: "no-events: the request topic writes none. Of a request that is " +
		"refused: moved-meanwhile, wrong-partition.",
	http.StatusGone: "events-gone: the stream cannot begin there without leaving out events.",
	http.StatusPreconditionFailed: "condition-not-met: the condition of the call does not hold, and " +
		"nothing has changed; pending is the pending timer.",
	http.StatusRequestEntityTooLarge: "too-large, value-too-large, batch-too-large: the body, or the request " +
		"as a record.",
	http.StatusRequestURITooLong:    "target-too-long: path and query.",
	http.StatusUnprocessableEntity:  "idempotency-key-reused: the key was used with another body.",
	http.StatusUnsupportedMediaType: "bad-request: the body is not of a type, charset or encoding that the call takes.",
	http.StatusMisdirectedRequest: "elsewhere: another instance has it, which this one cannot ask; owner " +
		"is its address. wrong-host: the call is for a host name that this API does not answer to (api-host).",
	http.StatusTooManyRequests: "rate-limited, too-many-calls, too-many-logins, too-many-jobs, " +
		"too-many-streams: ask again later. Of a request that is refused: over-quota.",
	http.StatusRequestHeaderFieldsTooLarge: "too-many-headers, headers-too-large.",
	http.StatusInternalServerError:         "internal: a bug.",
	http.StatusServiceUnavailable: "moving, partition-failed, kafka-unreachable, not-written, unknown-outcome, " +
		"overloaded, issuer-unavailable: ask again later; of unknown-outcome the request may be in the log.",
}

// operations returns all operations of a document, by path and method.
func operations(o *huma.OpenAPI) (all []*huma.Operation) {
	for _, at := range o.Paths {
		all = append(all, at.Get, at.Put, at.Post, at.Patch, at.Delete)
	}
	all = slices.DeleteFunc(all, func(op *huma.Operation) bool { return op == nil })
	slices.SortFunc(all, func(a, b *huma.Operation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
	})
	return all
}

// problemsOf returns the statuses of problems that an operation can have.
func problemsOf(op *huma.Operation) []int {
	all := []int{400, 401, 403, 414, 421, 429, 431, 500, 503}
	if strings.Contains(op.Path, "{") || op.OperationID == "countDeadLetters" {
		all = append(all, 404)
	}
	changes := op.Method != http.MethodGet && strings.Contains(op.Path, "{topic}")
	if op.RequestBody != nil {
		all = append(all, 408, 413, 415)
	}
	if changes {
		all = append(all, 409, 412, 413)
	}
	if slices.Contains(op.Tags, "events") {
		all = append(all, 409)
	}
	switch op.OperationID {
	case "watchEvents":
		all = append(all, 410)
	case "postTimers":
		all = append(all, 422)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// complete adds the parts to a document that Register does not know.
func complete(o *huma.OpenAPI) {
	o.Servers = []*huma.Server{{URL: "/", Description: "The instance that serves this document; any other is as good."}}
	schemas := o.Components.Schemas.Map()
	delete(schemas, "ErrorModel") // huma's, which is never sent: see reasoned
	for name, s := range schemas {
		if !slices.Contains(taken, name) {
			s.AdditionalProperties = nil
		}
	}
	for _, r := range reasons() {
		schemas["Problem"].Properties["reason"].Enum = append(schemas["Problem"].Properties["reason"].Enum, r)
	}
	shown := examples()
	for _, op := range operations(o) {
		for _, status := range problemsOf(op) {
			op.Responses[strconv.Itoa(status)] = problemResponse(op.Responses["default"], status)
		}
		for _, p := range op.Parameters {
			p.Example = parameterExamples[p.Name]
		}
		for _, r := range op.Responses {
			if r.Headers == nil {
				r.Headers = map[string]*huma.Param{}
			}
			r.Headers[access.RequestHeader] = &huma.Param{
				Description: "The ID of the call in the audit: X-Request-Id of the request, if it has 1 to 128 " +
					"letters, digits or ._~:/+=@-, or a new one.",
				Schema: &huma.Schema{Type: "string"}, Example: "0f7c1b2a9d3e4f56",
			}
			exemplify(r.Content, shown)
		}
		if op.RequestBody != nil {
			exemplify(op.RequestBody.Content, shown)
		}
	}
}

// problemResponse is a problem of one status.
func problemResponse(like *huma.Response, status int) *huma.Response {
	r := &huma.Response{Description: http.StatusText(status) + ". " + statuses[status],
		Content: map[string]*huma.MediaType{}}
	for kind, media := range like.Content {
		r.Content[kind] = &huma.MediaType{Schema: media.Schema, Example: exampleProblem(status)}
	}
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		r.Headers = map[string]*huma.Param{"Retry-After": {
			Description: "Seconds until a retry makes sense; absent if unknown.",
			Schema:      &huma.Schema{Type: "integer"}, Example: 1,
		}}
	case http.StatusUnauthorized:
		r.Headers = map[string]*huma.Param{"WWW-Authenticate": {Description: "How to authenticate.",
			Schema: &huma.Schema{Type: "string"}, Example: `Bearer realm="waterclock"`}}
	}
	return r
}

// exemplify adds the example of a schema to content that has this schema.
func exemplify(content map[string]*huma.MediaType, shown map[string]any) {
	for kind, media := range content {
		if media.Example != nil || media.Schema == nil {
			continue
		}
		if kind != jsonType && kind != access.ProblemType {
			media.Example = plainExamples[kind]
			continue
		}
		name := media.Schema.Ref[strings.LastIndexByte(media.Schema.Ref, '/')+1:]
		media.Example = shown[name]
	}
}

var plainExamples = map[string]any{
	"application/octet-stream": "hello",
	streamType: "id: 3:18\nevent: event\n" +
		`data: {"format":1,"type":"fired","id":"a1","at":1795424400004,"source":"timers/3/17","due":1795424400000,"occurrence":1,"lateness":4,"target":"orders"}` + "\n\n",
}

var parameterExamples = map[string]any{
	"topic": "timers", "id": "a1", "name": "holidays-de", "prefix": "customer-17/",
	"target": "orders", "due-before": "2026-11-24T09:00:00Z",
	"due-after": "2026-11-23T09:00:00Z",
	"until":     []string{"2026-11-23T09:00:00Z", "2026-11-24T09:00:00Z"}, "cron": "0 9 * * mon-fri",
	"zone": "Africa/Lagos", "Idempotency-Key": "order-17", "If-Match": `"timers/3/17"`,
	"If-None-Match": "*", "Last-Event-ID": "3:18", "position": "3:18", "partition": 3, "offset": 17,
	waterclock.HeaderAfter: "90s", waterclock.HeaderAt: "2026-11-23T09:00:00Z",
	waterclock.HeaderTargetTopic: "orders", waterclock.HeaderCron: "0 9 * * mon-fri",
	waterclock.HeaderZone: "Africa/Lagos", waterclock.HeaderIf: "absent", "waterclock-pass": "trace=17",
}

func exampleProblem(status int) *Problem {
	reason := map[int]string{
		400: "bad-duration", 401: access.ReasonUnauthenticated, 403: ReasonForbidden, 404: ReasonNotFound,
		408: access.ReasonBodyTimeout, 409: ReasonNoEvents, 410: ReasonEventsGone,
		412: ReasonConditionNotMet, 413: ReasonTooLarge, 414: access.ReasonTargetTooLong, 415: ReasonBadRequest,
		422: ReasonKeyReused, 421: ReasonElsewhere, 429: access.ReasonTooManyCalls,
		431: access.ReasonTooManyHeaders, 500: ReasonInternal, 503: ReasonMoving,
	}[status]
	return problem(status, reason, "a sentence for people")
}

// examples returns values by the names of their schemas.
func examples() map[string]any {
	at := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	text, key := "hello", "a1"
	timer := Timer{
		ID: "a1", Topic: "timers", Partition: 3, Source: "timers/3/17", State: "pending", Due: at,
		DueMillis: at.UnixMilli(), Occurrence: 1,
		Target: Target{Topic: "orders", Key: &key}, Payload: &Payload{Bytes: len(text), Text: &text},
	}
	listed := timer
	listed.Payload = nil
	result := Result{Outcome: "scheduled", Topic: "timers", Partition: 3, Offset: 17, Timer: &timer}
	fresh := NewTimer{Value: &text, After: "90s", Target: &Target{Topic: "orders"}}
	named := fresh
	named.ID = "a1"
	letter := DeadLetter{
		Partition: 3, Offset: 5, At: at, ID: &key, Reason: "bad-duration", Detail: "a sentence for people",
		Source:  "timers/3/16",
		Headers: []Header{{Name: "timer-after", Value: new("soon")}}, Payload: &Payload{Bytes: len(text), Text: &text},
	}
	job := Job{ID: "0f7c1b2a9d3e4f56-4b1d2c3e5f60718293a4b5c6d7e8f901", Topic: "timers", Action: "cancel",
		Prefix: "customer-17/", Query: "label=team%3Da&prefix=customer-17%2F", State: "running", Begun: at, Seen: 500,
		Changed: 499, Spared: 1}
	instance := route.Instance{Name: "node-1 4b1d2c3e5f60718293a4b5c6d7e8f901", API: "http://node-1:8681", Started: at,
		Member: true}
	return map[string]any{
		"Timer": timer, "NewTime": NewTime{After: "10m"}, "NewTimer": fresh,
		"NewTimers": NewTimers{Timers: []NewTimer{named}}, "Result": result,
		"BatchResults": BatchResults{Results: []BatchResult{{ID: "a1", Status: 201, Result: &result}}},
		"TimerList":    TimerList{Timers: []*Timer{&listed}},
		"TimerCount":   TimerCount{Count: 17, Exact: true},
		"TimerEvents": TimerEvents{Events: []TimerEvent{{Offset: 18, At: at,
			Event: []byte(`{"format":1,"type":"scheduled","id":"a1"}`)}}, Log: EventLog{
			Topic: "timers.waterclock.events", Partition: 3, Ends: 19, Position: "3:19", Oldest: &at,
		}},
		"Activity": Activity{Position: "0:17.5.9.19", Events: []ActivityEvent{{3, TimerEvent{
			Offset: 18, At: at, Event: []byte(`{"format":1,"type":"scheduled","id":"a1"}`),
		}}}},
		"DeadLetter": letter, "Correction": Correction{Value: &text},
		"DeadLetterList":   DeadLetterList{DeadLetters: []DeadLetter{letter}, Position: "0:0.0.4.6"},
		"DeadLetterReview": DeadLetterReview{Topic: "timers", Position: "0:0.0.4.6", By: "ops", At: &at},
		"Job":              job, "JobList": JobList{Jobs: []Job{job}}, "JobStarted": JobStarted{Job: &job},
		"Caller": Caller{Name: "shop", Rights: []Right{{Topic: "timers", Prefix: "shop-", Role: "write"}},
			Calendars: []CalendarRight{{"holidays-*", "read"}}},
		"TopicList": TopicList{Topics: []TopicInfo{{Topic: "timers", Partitions: 12, MaxBytes: 1048588}}},
		"Occurrences": Occurrences{Explanation: "at 09:00, Monday to Friday", Zone: "Africa/Lagos",
			Next: []time.Time{at}},
		"Cluster": Cluster{Asked: instance.Name, Instances: []route.Instance{instance}, Partitions: []OwnedPartition{{
			Owner: instance.Name, PartitionStatus: route.PartitionStatus{Topic: "timers", Partition: 3, State: "live",
				Pending: 17},
		}}, Unhealthy: []route.UnhealthyTarget{}, Pending: 17},
		"DeadLetterCountList": DeadLetterCountList{Topics: []DeadLetterCounts{{
			Topic: "timers", LastHour: 1, LastDay: 2, Exact: true,
			Reasons: []ReasonCount{{Reason: "bad-duration", LastHour: 1, LastDay: 2, Newest: at}},
		}}},
		"CalendarList":   CalendarList{Calendars: []CalendarInfo{{Name: "holidays-de", Changed: at, Bytes: 58}}},
		"CalendarResult": CalendarResult{Name: "holidays-de", Result: "created"},
		"CalendarRules": CalendarRules{Zone: "Europe/Berlin", Dates: []string{"2026-12-25"},
			Weekly: []string{"sat", "sun"}},
		"Problem": exampleProblem(http.StatusBadRequest),
	}
}

// docsTemplate is the page of /docs. It has no script and loads nothing.
var docsTemplate = template.Must(template.New("docs").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>waterclock API</title><style>
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:auto;padding:1rem;overflow-wrap:anywhere}
code{font:0.9em ui-monospace,monospace}summary{cursor:pointer}details{border-top:1px solid;padding:.5rem 0}
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.2rem .5rem .2rem 0}
</style></head><body><main><h1>waterclock API</h1><p>{{.Description}}</p>
<p>For programs: <a href="/openapi.json">openapi.json</a>, <a href="/openapi.yaml">openapi.yaml</a> (OpenAPI 3.1).</p>
{{range .Operations}}<details><summary><code>{{.Method}} {{.Path}}</code> {{.Summary}}</summary>
{{with .Description}}<p>{{.}}</p>{{end}}
{{if .Parameters}}<table><thead><tr><th scope="col">Parameter</th><th scope="col">In</th><th scope="col">Meaning</th></tr></thead><tbody>
{{range .Parameters}}<tr><td><code>{{.Name}}</code></td><td>{{.In}}</td><td>{{.Description}}</td></tr>{{end}}</tbody></table>{{end}}
{{with .RequestBody}}<p>Body: {{range $type, $_ := .Content}}<code>{{$type}}</code> {{end}}</p>{{end}}
<table><thead><tr><th scope="col">Answer</th><th scope="col">Meaning</th></tr></thead><tbody>
{{range $status, $answer := .Responses}}<tr><td>{{$status}}</td><td>{{$answer.Description}}</td></tr>{{end}}</tbody></table></details>
{{end}}</main></body></html>
`))

// serveDocument serves the complete OpenAPI document. Each form of it is made at its first request.
func serveDocument(mux *http.ServeMux, o *huma.OpenAPI) {
	complete(o)
	serve := func(path, contentType string, encode func() ([]byte, error)) {
		body := sync.OnceValue(func() []byte {
			b, err := encode()
			if err != nil {
				panic(path + " cannot be encoded: " + err.Error()) // it is the same in each process
			}
			return b
		})
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; "+
				"frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
			_, _ = w.Write(body()) // the caller may be gone
		})
	}
	serve("/openapi.json", "application/openapi+json",
		func() ([]byte, error) { return json.MarshalIndent(o, "", "  ") })
	serve("/openapi.yaml", "application/openapi+yaml", o.YAML)
	serve("/docs", "text/html; charset=utf-8", func() ([]byte, error) { // for people
		var page bytes.Buffer
		err := docsTemplate.Execute(&page,
			map[string]any{"Description": o.Info.Description, "Operations": operations(o)})
		return page.Bytes(), err
	})
}

// conditions returns the parameters of operations that may have a condition.
func conditions() []*huma.Param {
	return []*huma.Param{
		header("If-Match", `* : something is pending. "SOURCE": the timer from that request is, as an ETag has it.`),
		header("If-None-Match", "*: nothing is pending."),
		header(waterclock.HeaderIf,
			"absent, present, or a waterclock-source: as in Kafka; instead of If-Match and If-None-Match."),
	}
}

func header(name, doc string) *huma.Param {
	return &huma.Param{Name: name, In: "header", Description: doc, Schema: &huma.Schema{Type: "string"}}
}

// requestHeaders returns the parameters of operations that schedule.
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
		header(waterclock.HeaderNotOn, "Names of calendars, with commas between them: their times are excluded."),
		header(waterclock.HeaderShift, "What happens to an occurrence that is excluded: skip, next or previous."),
		header(waterclock.HeaderCatchUp, "Missed occurrences that fire: all, latest or none."),
		header(waterclock.HeaderMaxLate, "What would be emitted later than that is not."),
		header(waterclock.HeaderRemember, "For how long its ID stays taken once it has fired, as in 1h: timer-if: "+
			"absent does not hold as long."),
		header(waterclock.HeaderLabels, "Labels to find the timer by: NAME=VALUE, with commas between them."),
		header(waterclock.HeaderLabelsHeader, "A header in which the emission has the labels."),
		header(waterclock.HeaderTargetTopic, "Where it fires to; without it the default target of the request topic."),
		header(waterclock.HeaderTargetKey, "Key of the emission; without it the ID."),
		header(waterclock.HeaderTargetKeyNull, "true: a null key."),
		header(waterclock.HeaderTargetPartition, "Partition of the target; without it the key decides."),
		// Not an array: in OpenAPI that would be one line with commas, which may also occur in a value.
		header("waterclock-pass", "NAME=VALUE: a header that is passed on to the target. HTTP takes any number of "+
			"these lines; a client that sends one has the others in a body of JSON."),
	}
}

// inTheLog describes the status 202.
const inTheLog = "The request is in the log; its outcome is not known here."

func scheduledOrInTheLog() map[string]string {
	return map[string]string{"201": "Scheduled: nothing was pending under the ID.", "202": inTheLog}
}
