package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

const partitions = 4

// instance is an instance of the fake, with its API.
type instance struct {
	url string
	api http.Handler
}

// readerFunc is a body.
type readerFunc func([]byte) (int, error)

func (r readerFunc) Read(b []byte) (int, error) { return r(b) }

// serve makes a call with a body that only the handler reads, without a connection.
func (in *instance) serve(t *testing.T, method, path string, body io.Reader) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, body)
	w := httptest.NewRecorder()
	in.api.ServeHTTP(w, r)
	return w
}

// start starts an instance, which asks others if forwards is set.
func start(t *testing.T, f *fake, process string, forwards bool) *instance {
	t.Helper()
	return startWith(t, f, process, forwards, emptyLogs{})
}

// startWith starts an instance that has topics in addition to the request topic. Request topics
// listed in quiet have no events.
func startWith(t *testing.T, f *fake, process string, forwards bool, logs api.Logs, quiet ...string) *instance {
	t.Helper()
	topics := map[string]api.Topic{
		"timers": {Partitions: partitions, MaxBytes: 1 << 20, Events: "events", DeadLetters: "timers.dead",
			Rules: f.rules()},
		"retry": {Partitions: partitions, MaxBytes: 1 << 20, Delay: true, DeadLetters: "retry.dead",
			Rules: f.delayRules},
	}
	for _, name := range quiet {
		topics[name] = api.Topic{Partitions: partitions, MaxBytes: 1 << 20}
	}
	o := route.Options{
		Local: &local{f, process}, Directory: f, Process: process, MaxBody: 1 << 20,
		May: func(context.Context, *route.Call) error { return nil },
	}
	if forwards {
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		o.Transport = transport
	}
	router := route.New(o)
	marks, _ := logs.(api.Marks)
	a := api.New(api.Options{
		Marks: marks, Version: "test", Process: process, Rights: api.Rights{May: f.allows, Some: f.some}, Asker: router,
		Topics:      topics,
		PartitionOf: intake.Murmur2Partition, Logger: slog.New(slog.DiscardHandler), Logs: logs,
	})
	router.HaveJobs(a)
	t.Cleanup(a.Close)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := r.Header.Get("Test-Caller"); name != "" {
			r = r.WithContext(access.WithCaller(r.Context(), access.Caller{Name: name}))
		}
		a.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	f.set(func() { f.urls[process] = s.URL })
	return &instance{url: s.URL, api: a}
}

// answer is the answer of an instance.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

// call makes a call. Headers are given as pairs of name and value.
func (in *instance) call(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, in.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	d := documented()
	d.hasStatus(t, method, path, resp.StatusCode)
	a := answer{status: resp.StatusCode, header: resp.Header, text: string(text)}
	_ = json.Unmarshal(text, &a.body) // some are not objects
	return a
}

// is fails the test unless the answer has the status and, if word is given, that outcome or reason.
func (a answer) is(t *testing.T, status int, word string) answer {
	t.Helper()
	got, _ := a.body["outcome"].(string)
	if a.status >= 400 {
		got, _ = a.body["reason"].(string)
		if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
			t.Errorf("a problem of type %q", ct)
		}
		if a.body["detail"] == "" || a.body["status"] != float64(a.status) {
			t.Errorf("problem %v", a.text)
		}
	}
	if a.status != status || word != "" && got != word {
		t.Fatalf("got %d %.600s, want %d %q", a.status, a.text, status, word)
	}
	return a
}

const in1h, toOrders = "timer-after", "timer-target-topic"

func path(id string) string { return "/v1/topics/timers/timers/" + id }

func TestOneTimer(t *testing.T) {
	in := start(t, newFake("timers", partitions), "p0", false)
	put := in.call(t, "PUT", path("a1"), "hello\x00", in1h, "1h", toOrders, "orders", "waterclock-pass", "b=2=3",
		"waterclock-pass", "a=1").is(t, 201, "scheduled")
	got := in.call(t, "GET", path("a1"), "").is(t, 200, "")
	tag := got.header.Get("ETag")
	if tag == "" || tag != put.header.Get("ETag") || tag != `"`+got.body["source"].(string)+`"` {
		t.Errorf("ETags %q and %q of %v", tag, put.header.Get("ETag"), got.text)
	}
	for _, part := range []string{`"text":"hello\u0000"`, `{"name":"b","value":"2=3"},{"name":"a","value":"1"}`,
		`"state":"pending"`} {
		if !strings.Contains(got.text, part) {
			t.Errorf("%s lacks %s", got.text, part)
		}
	}
	in.call(t, "PUT", path("a1"), "x", in1h, "1h", toOrders, "orders").is(t, 200, "replaced")
	in.call(t, "PUT", path("a1"), "x", in1h, "1h", toOrders, "orders", "If-Match", tag).is(t, 412, "condition-not-met")
	in.call(t, "PUT", path("a1"), "x", in1h, "1h", toOrders, "orders", "If-None-Match", "*").is(
		t, 412, "condition-not-met")
	in.call(t, "POST", path("a1")+"/pause", "", "If-Match", "*").is(t, 200, "paused")
	in.call(t, "POST", path("a1")+"/pause", "").is(t, 200, "unchanged")
	in.call(t, "POST", path("a1")+"/resume", "").is(t, 200, "resumed")
	in.call(t, "POST", path("a1")+"/trigger", "").is(t, 200, "triggered")
	in.call(t, "DELETE", path("a1"), "").is(t, 200, "cancelled")
	in.call(t, "DELETE", path("a1"), "").is(t, 404, "not-found")
	in.call(t, "DELETE", path("a1"), "", "If-Match", "*").is(t, 412, "condition-not-met")
	in.call(t, "GET", path("a1"), "").is(t, 404, "not-found")
	in.call(t, "POST", path("a1")+"/trigger", "").is(t, 404, "not-found")
}

// If the judge rejects a request, the problem has its reason and detail. A call that is itself wrong
// writes nothing.
func TestRefused(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false)
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		reason                   string
	}{
		{"no due time", "PUT", path("a"), "", []string{toOrders, "orders"}, 400, "no-due-time"},
		{"twice", "PUT", path("a"), "", []string{in1h, "1h", in1h, "2h", toOrders, "orders"}, 400, "duplicate-header"},
		{"misspelt", "PUT", path("a"), "", []string{"timer-afer", "1h", toOrders, "orders"}, 400, "unknown-header"},
		{"forbidden target", "PUT", path("a"), "", []string{in1h, "1h", toOrders, "forbidden"}, 403,
			"target-not-allowed"},
		{"too large for the topic's policy", "PUT", path("a"), strings.Repeat("x", 1001),
			[]string{in1h, "1h", toOrders, "orders"}, 413, "value-too-large"},
		{"too large for the topic", "PUT", path("a"), strings.Repeat("x", 1<<20),
			[]string{in1h, "1h", toOrders, "orders"}, 413, "too-large"},
		{"two conditions", "PUT", path("a"), "", []string{in1h, "1h", toOrders, "orders", "If-None-Match", "*",
			"timer-if", "absent"}, 400, "duplicate-header"},
		{"condition", "PUT", path("a"), "", []string{in1h, "1h", toOrders, "orders", "If-Match", "abc"}, 400,
			"bad-request"},
		{"pass", "PUT", path("a"), "", []string{in1h, "1h", toOrders, "orders", "waterclock-pass", "timer-at=1"}, 400,
			"bad-request"},
		{"not JSON", "PUT", path("a"), "{", []string{"Content-Type", "application/vnd.waterclock.timer+json"}, 400,
			"bad-request"},
		{"unknown field", "PUT", path("a"), `{"afer":"1h"}`, []string{"Content-Type",
			"application/vnd.waterclock.timer+json"}, 400, "bad-request"},
		{"another ID", "PUT", path("a"), `{"id":"b","after":"1h"}`, []string{"Content-Type",
			"application/vnd.waterclock.timer+json"}, 400, "bad-request"},
		{"ID", "PUT", path(strings.Repeat("x", 513)), "", []string{in1h, "1h", toOrders, "orders"}, 400, "bad-key"},
		{"ID of a read", "GET", path(strings.Repeat("x", 513)), "", nil, 404, "not-found"},
		{"type of a list", "POST", "/v1/topics/timers/timers", `{"timers":[{"id":"a"}]}`,
			[]string{"Content-Type", "text/plain"}, 415, "bad-request"},
		{"dead letters' cursor", "GET", "/v1/topics/timers/dead-letters?cursor=bnVsbA", "", nil, 400, "bad-request"},
		{"steering with a due time", "POST", path("a") + "/pause", "", []string{in1h, "1h"}, 400, "bad-request"},
		{"topic", "PUT", "/v1/topics/others/timers/a", "", []string{in1h, "1h"}, 404, "no-such-topic"},
		{"method", "PATCH", path("a"), "", nil, 405, "bad-request"},
		{"path", "GET", "/v2", "", nil, 404, "no-such-path"},
		{"no ID", "GET", "/v1/topics/timers/timers/", "", nil, 404, "no-such-path"},
		{"dots", "GET", "/v1/topics/timers/timers/../timers/a", "", nil, 404, "no-such-path"},
		{"due", "GET", "/v1/topics/timers/timers?due-after=now", "", nil, 400, "bad-request"},
		{"no due", "POST", "/v1/topics/timers/timers/cancel?due-before=0", "", nil, 400, "bad-request"},
		{"due in seconds", "POST", "/v1/topics/timers/timers/cancel?due-after=1795344290", "", nil, 400, "bad-request"},
		{"due in 1970", "POST", "/v1/topics/timers/timers/cancel?due-before=1970-01-01T00:00:00Z", "", nil, 400,
			"bad-request"},
		{"no filter", "POST", "/v1/topics/timers/timers/cancel?prefix=", "", nil, 400, "bad-request"},
		{"cursor", "GET", "/v1/topics/timers/timers?cursor=x", "", nil, 400, "bad-request"},
		{"limit", "GET", "/v1/topics/timers/timers?limit=1001", "", nil, 400, "bad-request"},
		{"parameter", "GET", "/v1/topics/timers/timers?prefx=a", "", nil, 400, "bad-request"},
		{"cron", "GET", "/v1/next?cron=x", "", nil, 400, "bad-cron"},
		{"job", "GET", "/v1/jobs/x", "", nil, 404, "not-found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in.call(t, c.method, c.path, c.body, c.headers...).is(t, c.status, c.reason)
		})
	}
	if n := len(f.all()); n != 0 {
		t.Errorf("%d timers are pending", n)
	}
}

// No PUT, and no timer of a POST, cancels or steers, whatever its headers and body are in
// combination: the pending timer stays.
func TestPutNeverCancels(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false)
	in.call(t, "PUT", path("a"), "kept", in1h, "1h", toOrders, "orders").is(t, 201, "scheduled")
	asTimer := []string{"Content-Type", "application/vnd.waterclock.timer+json"}
	for _, body := range []string{"", "x", `{"valueNull":true}`, `{"value":"x"}`, `{"valueNull":true,"if":"present"}`,
		`{"valueNull":true,"target":{"topic":"orders"}}`, `{"valueNull":true,"headers":[{"name":"x","value":"y"}]}`} {
		for _, headers := range [][]string{
			nil, {"timer-cancel", "true"}, {"timer-cancel", ""}, {"Timer-Cancel", "TRUE"}, {"timer-trigger", "true"},
			{"timer-pause", "true"},
			{"timer-resume", "true"}, {"timer-if", "present"}, {"If-Match", "*"}, {"waterclock-pass", "x=y"},
			{"waterclock-pass", "timer-cancel=true"},
		} {
			for _, typed := range [][]string{nil, asTimer} {
				a := in.call(t, "PUT", path("a"), body, slices.Concat(headers, typed)...)
				if a.status != 400 {
					t.Errorf("PUT of %q with %q: %d %.200s, want 400", body, slices.Concat(headers, typed),
						a.status, a.text)
				}
			}
		}
	}
	post := in.call(t, "POST", "/v1/topics/timers/timers", `{"timers":[{"id":"a","valueNull":true}]}`, "Content-Type",
		"application/json").is(t, 200, "")
	if !strings.Contains(post.text, `"reason":"no-due-time"`) {
		t.Error(post.text)
	}
	if all := f.all(); len(all) != 1 || string(all[0].Value) != "kept" {
		t.Errorf("%d timers are pending, want the first alone", len(all))
	}
	in.call(t, "PUT", path("a"), `{"valueNull":true,"after":"1h","target":{"topic":"orders"}}`, asTimer...).is(
		t, 200, "replaced")
}

// An error that huma finds says which part is wrong. A body of unknown length that exceeds a limit
// before the API is too large like any other.
func TestRefusedByType(t *testing.T) {
	in := start(t, newFake("timers", partitions), "p0", false)
	for query, want := range map[string]string{
		"limit=0":      "the parameter limit needs 1 or more",
		"prefx=a":      `there is no parameter "prefx" here; did you mean prefix?`,
		"state=pendng": "the parameter state needs one of pending, triggered, paused, parked, recurring, remembered",
		"limit=9999":   "the parameter limit needs 1000 or less",
		"frobnicate=1": `there is no parameter "frobnicate" here`,
	} {
		if d := in.call(t, "GET", "/v1/topics/timers/timers?"+query, "").is(
			t, 400, "bad-request").body["detail"]; d != want {
			t.Errorf("%q, want %q", d, want)
		}
	}
	a := api.New(api.Options{Topics: map[string]api.Topic{"timers": {Partitions: 1, MaxBytes: 1 << 20}},
		Logger: slog.New(slog.DiscardHandler)})
	defer a.Close()
	for _, method := range []string{"PUT", "POST"} {
		r := httptest.NewRequest(
			method, map[string]string{"PUT": path("a"), "POST": "/v1/topics/timers/timers"}[method], nil)
		w := httptest.NewRecorder()
		r.Body = http.MaxBytesReader(w, io.NopCloser(strings.NewReader(strings.Repeat("x", 11))), 10)
		a.ServeHTTP(w, r)
		if w.Code != 413 || !strings.Contains(w.Body.String(), `"reason":"too-large"`) {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
	}
}

// A bug in a handler is answered, counted and logged.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	a := api.New(api.Options{
		Topics: map[string]api.Topic{"timers": {Partitions: 1}}, Registry: reg,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Rights: api.Rights{May: func(context.Context, access.Role, string, string) error { panic("a bug") }},
	})
	defer a.Close()
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest("GET", path("a"), nil))
	if w.Code != 500 || !strings.Contains(w.Body.String(), `"reason":"internal"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "a bug") || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("log %q", log.String())
	}
	all, err := reg.Gather()
	if err != nil || !strings.Contains(fmt.Sprint(all), `value:"500"`) {
		t.Errorf("%v, %v", all, err)
	}
}

// An ID may have any bytes.
func TestIDs(t *testing.T) {
	in := start(t, newFake("timers", partitions), "p0", false)
	for _, id := range []string{"a%2Fb%2F..%2Fc", "%2E%2E", "ä%20%3F%23%25", "count%2F", "%00%0A", "timers",
		"%E2%80%AE"} {
		in.call(t, "PUT", path(id), "", in1h, "1h", toOrders, "orders").is(t, 201, "scheduled")
		in.call(t, "GET", path(id), "").is(t, 200, "")
		in.call(t, "POST", path(id)+"/pause", "").is(t, 200, "paused")
		in.call(t, "DELETE", path(id), "").is(t, 200, "cancelled")
	}
	// An ID that is not UTF-8 is shown as base64.
	in.call(t, "PUT", path("%FFa"), "\xfe", in1h, "1h", toOrders, "orders").is(t, 201, "")
	if got := in.call(t, "GET", path("%FFa"), "").text; !strings.Contains(got, `"idBase64":"/2E="`) ||
		!strings.Contains(got, `"base64":"/g=="`) {
		t.Error(got)
	}
}

// A timer given as JSON is the same request as one given in headers.
func TestJSONIsTheSame(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false)
	in.call(t, "PUT", path("h"), "v", "timer-cron", "0 9 * * mon-fri", "timer-zone", "Africa/Lagos", "timer-count", "5",
		"timer-jitter", "10s", "timer-catch-up", "all",
		"timer-max-late", "1h", "timer-until", "2099-01-01T00:00:00Z", toOrders, "orders", "timer-target-key", "k",
		"timer-target-partition", "3", "waterclock-pass", "a=1").is(t, 201, "")
	in.call(t, "PUT", path("j"),
		`{"value":"v","cron":"0 9 * * mon-fri","zone":"Africa/Lagos","count":5,"jitter":"10s","catchUp":"all","maxLate":"1h",
		"until":"2099-01-01T00:00:00Z","target":{"topic":"orders","key":"k","partition":3},"headers":[{"name":"a","value":"1"}]}`,
		"Content-Type", "application/vnd.waterclock.timer+json").is(t, 201, "")
	show := func(id string) string {
		b := in.call(t, "GET", path(id), "").body
		for _, own := range []string{"id", "source", "partition", "due", "dueMillis"} { // the jitter depends on the ID
			delete(b, own)
		}
		text, _ := json.Marshal(b)
		return string(text)
	}
	if h, j := show("h"), show("j"); h != j {
		t.Errorf("by headers\n%s\nas JSON\n%s", h, j)
	}
	in.call(t, "PUT", path("null"), `{"valueNull":true,"after":"1h","target":{"topic":"orders","keyNull":true}}`,
		"Content-Type", "application/vnd.waterclock.timer+json").is(t, 201, "")
	if got := in.call(t, "GET", path("null"), "").text; !strings.Contains(got, `"payload":{"bytes":0,"null":true}`) ||
		!strings.Contains(got, `"keyNull":true`) {
		t.Error(got)
	}
}

// The answer of GET can be sent with PUT and means the same timer.
func TestRoundTrip(t *testing.T) {
	in := start(t, newFake("timers", partitions), "p0", false)
	for name, body := range map[string]string{
		"once":   `{"value":"v","at":"2099-01-01T00:00:00.123Z","target":{"topic":"orders"}}`,
		"soon":   `{"value":"{\"a\":1}","after":"1h","target":{"topic":"orders","key":"k","partition":3},"headers":[{"name":"a","value":"1"},{"name":"a","valueNull":true}],"maxLate":"90s"}`,
		"bytes":  `{"valueBase64":"/v8=","after":"1h","target":{"topic":"orders","keyBase64":"/w=="},"headers":[{"name":"b","valueBase64":"/w=="}]}`,
		"null":   `{"valueNull":true,"after":"1h","target":{"topic":"orders","keyNull":true}}`,
		"every":  `{"every":"90s","at":"2098-01-01T00:00:00Z","jitter":"60s","count":5,"catchUp":"all","target":{"topic":"orders"}}`,
		"cron":   `{"cron":"0 9 * * mon-fri","zone":"Africa/Lagos","until":"2099-01-01T00:00:00Z","target":{"topic":"orders"}}`,
		"%FF%00": `{"value":"v","after":"1h","target":{"topic":"orders"}}`,
		"a%2Fb":  `{"value":"","after":"1h","target":{"topic":"orders"}}`,
	} {
		in.call(t, "PUT", path(name), body, "Content-Type", "application/json").is(t, 201, "scheduled")
		was := in.call(t, "GET", path(name), "").is(t, 200, "")
		in.call(t, "PUT", path(name), was.text, "Content-Type", was.header.Get("Content-Type")).is(t, 200, "replaced")
		is := in.call(t, "GET", path(name), "").is(t, 200, "")
		own := []string{"source"} // of another request
		if name == "every" {
			own = append(own, "due", "dueMillis") // the jitter differs
		}
		for _, a := range []answer{was, is} {
			for _, field := range own {
				delete(a.body, field)
			}
		}
		if !reflect.DeepEqual(was.body, is.body) {
			t.Errorf("%s was\n%v, and is\n%v", name, was.body, is.body)
		}
	}
	// JSON of another media type is the payload, unchanged.
	in.call(t, "PUT", path("json"), `{"after":"2h"}`, "Content-Type", "application/x+json", in1h, "1h", toOrders,
		"orders").is(t, 201, "scheduled")
	if got := in.call(t, "GET", path("json"), "").text; !strings.Contains(got, `"text":"{\"after\":\"2h\"}"`) {
		t.Error(got)
	}
	// A field that is given twice, or cannot be used, is not guessed at.
	for _, body := range []string{
		`{"after":"1h","due":"2099-01-01T00:00:00Z"}`, `{"at":"1","scheduled":"2099-01-01T00:00:00Z"}`,
		`{"after":"1h","value":"a","payload":{"text":"b"}}`,
		`{"every":"1h","recurrence":{"every":"1h","catchUp":"all"}}`, `{"after":"1h","state":"paused"}`,
		`{"after":"1h","state":"triggered"}`, `{"after":"1h","topic":"others"}`,
	} {
		in.call(t, "PUT", path("twice"), body, "Content-Type", "application/json", toOrders, "orders").is(
			t, 400, "bad-request")
	}
}

// The API does not claim what it does not know.
func TestUnknown(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false)
	put := func() answer { return in.call(t, "PUT", path("a"), "", in1h, "1h", toOrders, "orders") }
	f.set(func() { f.lose = true })
	if a := put().is(t, 202, "written"); a.body["note"] == "" || a.body["offset"] != 0.0 {
		t.Error(a.text)
	}
	f.set(func() { f.lose, f.refuse = false, true })
	put().is(t, 503, "not-written")
	f.set(func() { f.refuse, f.unknown = false, true })
	put().is(t, 503, "unknown-outcome")
	f.set(func() { f.unknown = false })
	in.call(t, "PUT", path("b")+"?wait=written", "", in1h, "1h", toOrders, "orders").is(t, 202, "written")
	f.move(place(t, "timers", "a", partitions), "")
	if a := put().is(t, 503, "moving"); a.header.Get("Retry-After") != "1" {
		t.Errorf("headers %v", a.header)
	}
	in.call(t, "GET", path("a"), "").is(t, 503, "moving")
}

// Whichever instance is asked, the owner answers.
func TestOneHop(t *testing.T) {
	f := newFake("timers", partitions)
	a, b := start(t, f, "p0", true), start(t, f, "p1", true)
	stranger := start(t, f, "p2", false)
	at := place(t, "timers", "x", partitions)
	f.move(at, "p1")
	a.call(t, "PUT", path("x"), "payload", in1h, "1h", toOrders, "orders").is(t, 201, "scheduled")
	for _, in := range []*instance{a, b} {
		if got := in.call(t, "GET", path("x"), "").is(t, 200, ""); !strings.Contains(got.text, "payload") {
			t.Error(got.text)
		}
		if got := in.call(t, "GET", "/v1/topics/timers/timers/count", "").is(t, 200, ""); got.body["count"] != 1.0 {
			t.Error(got.text)
		}
	}
	// An instance that does not ask others says which instance to ask.
	if got := stranger.call(t, "GET", path("x"), "").is(t, 421, "elsewhere"); got.body["owner"] != b.url {
		t.Error(got.text)
	}
	f.move(at, "older") // it has no API
	// The owners are not read again at once.
	until := func(status int) {
		await.Within(20*time.Second, func() bool { return a.call(t, "GET", path("x"), "").status == status })
	}
	until(421)
	if got := a.call(t, "GET", path("x"), "").is(t, 421, "elsewhere"); !strings.Contains(got.text, "--api") {
		t.Error(got.text)
	}
	f.set(func() { f.urls["older"] = "http://127.0.0.1:1" }) // it is gone
	until(503)
	a.call(t, "GET", path("x"), "").is(t, 503, "moving")
	a.call(t, "DELETE", path("x"), "").is(t, 503, "moving")
	f.move(at, "p0") // at once: an instance asks nobody for what it owns
	a.call(t, "DELETE", path("x"), "").is(t, 200, "cancelled")
	c := a.call(t, "GET", "/v1/cluster", "").is(t, 200, "")
	if n := len(c.body["partitions"].([]any)); n != partitions || c.body["asked"] != "p0" {
		t.Error(c.text)
	}
}

// A list merges all partitions. Its cursors lose and repeat nothing, even if timers of several
// partitions have the same place.
func TestLists(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false)
	r := rand.New(rand.NewPCG(1, 2))
	const timers = 120
	for i := range timers {
		due := time.Now().Add(time.Hour).Truncate(time.Hour).UnixMilli() + int64(r.IntN(5))
		in.call(t, "PUT", path(fmt.Sprintf("id-%03d", i)), "", "timer-at", fmt.Sprint(due), toOrders,
			fmt.Sprint("t", i%2)).is(t, 201, "")
	}
	for _, order := range []string{"due", "id"} {
		for _, filter := range []string{"", "&target=t1", "&prefix=id-1"} {
			for _, limit := range []int{3, 7, 1000} {
				seen, cursor := map[string]bool{}, ""
				last := ""
				for {
					a := in.call(t, "GET", fmt.Sprintf("/v1/topics/timers/timers?order=%s&limit=%d%s&cursor=%s", order,
						limit, filter, cursor), "").is(t, 200, "")
					page := a.body["timers"].([]any)
					if len(page) > limit {
						t.Fatalf("%d timers, limit %d", len(page), limit)
					}
					for _, item := range page {
						one := item.(map[string]any)
						id := one["id"].(string)
						if seen[id] {
							t.Fatalf("%s twice", id)
						}
						seen[id] = true
						key := id
						if order == "due" {
							key = fmt.Sprintf("%020.0f", one["dueMillis"].(float64))
						}
						if key < last {
							t.Fatalf("%s behind %s", key, last)
						}
						last = key
					}
					cursor, _ = a.body["cursor"].(string)
					if cursor == "" {
						break
					}
				}
				want := map[string]int{"": timers, "&target=t1": timers / 2, "&prefix=id-1": 20}[filter]
				if len(seen) != want {
					t.Errorf("%s%s limit %d: %d timers, want %d", order, filter, limit, len(seen), want)
				}
			}
		}
	}
	a := in.call(t, "GET", "/v1/topics/timers/timers?limit=1", "")
	in.call(t, "GET", "/v1/topics/timers/timers?limit=1&target=t1&cursor="+a.body["cursor"].(string), "").is(
		t, 400, "bad-request")
}

// The same POST with the same key creates the timers only once.
func TestBatch(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false)
	body := `{"timers":[{"value":"1","after":"1h","target":{"topic":"orders"}},{"id":"mine","after":"1h","target":{"topic":"orders"}},{"after":"never","target":{"topic":"orders"}}]}`
	post := func(key string) (statuses []int, ids []string) {
		a := in.call(t, "POST", "/v1/topics/timers/timers", body, "Content-Type", "application/json", "Idempotency-Key",
			key).is(t, 200, "")
		for _, item := range a.body["results"].([]any) {
			one := item.(map[string]any)
			statuses = append(statuses, int(one["status"].(float64)))
			ids = append(ids, one["id"].(string))
		}
		return statuses, ids
	}
	first, ids := post("k1")
	again, same := post("k1")
	other, others := post("k2")
	if fmt.Sprint(first, again, other) != "[201 201 400] [200 200 400] [201 200 400]" || ids[0] != same[0] ||
		ids[0] == others[0] {
		t.Error(first, again, other, ids, same, others)
	}
	if n := len(f.all()); n != 3 {
		t.Errorf("%d timers", n)
	}
	in.call(t, "POST", "/v1/topics/timers/timers", `{"timers":[]}`, "Content-Type", "application/json").is(
		t, 400, "bad-request")
}

// A call that is repeated with its key has the same result even after its timers have fired, as long
// as they are remembered, and on whichever instance. A key belongs to one body.
func TestIdempotency(t *testing.T) {
	f := newFake("timers", partitions)
	a, b := start(t, f, "p0", true), start(t, f, "p1", true)
	for p := range int32(partitions) {
		f.move(timer.TopicPartition{Topic: "timers", Partition: p}, []string{"p0", "p1"}[p%2])
	}
	one := func(value string, n int) string {
		return `{"timers":[` + strings.Repeat(`{"value":"`+value+`","after":"1h","target":{"topic":"orders"}},`, n-1) +
			`{"value":"` + value + `","after":"1h","target":{"topic":"orders"}}]}`
	}
	post := func(in *instance, body string, headers ...string) answer {
		return in.call(t, "POST", "/v1/topics/timers/timers", body,
			append([]string{"Content-Type", "application/json", "Idempotency-Key", "k"}, headers...)...)
	}
	if got := post(a, one("x", 8)).is(t, 200, ""); strings.Count(got.text, `"status":201`) != 8 {
		t.Fatal(got.text)
	}
	for _, when := range []string{"pending", "remembered"} {
		for _, in := range []*instance{a, b} {
			same := post(in, "\n"+strings.ReplaceAll(one("x", 8), `,"target"`, ` , "target"`)).is(t, 200, "")
			if strings.Count(same.text, `"outcome":"unchanged"`) != 8 ||
				strings.Count(same.text, `"state":"`+when+`"`) != 8 {
				t.Errorf("%s, made again: %s", when, same.text)
			}
			for _, body := range []string{one("y", 8), one("x", 7), one("x", 9)} {
				if p := post(in, body).is(t, 422, "idempotency-key-reused"); p.header.Get(
					"Content-Type") != "application/problem+json" {
					t.Errorf("%v", p.header)
				}
			}
		}
		if when == "pending" {
			id := post(a, one("x", 8)).body["results"].([]any)[0].(map[string]any)["id"].(string)
			a.call(t, "GET", path(id), "").is(t, 200, "")
			f.fire()
			a.call(t, "GET", path(id), "").is(t, 404, "not-found")
			a.call(t, "DELETE", path("none"), "").is(t, 404, "not-found")
			a.call(t, "PUT", path(id), "", in1h, "1h", toOrders, "orders", "If-Match", "*").is(
				t, 412, "condition-not-met")
		}
	}
	f.fire() // their memory has ended
	if n := len(f.all()); n != 0 {
		t.Errorf("%d are left", n)
	}
	if got := post(a, one("y", 8), "Idempotency-Window", "0").is(t, 200, ""); strings.Count(
		got.text, `"status":201`) != 8 {
		t.Error(got.text)
	}
	post(a, one("x", 8)).is(t, 422, "idempotency-key-reused") // while the timer is pending it has the key
	f.fire()
	if n := len(f.all()); n != 0 {
		t.Errorf("%d are remembered for no time", n)
	}
	post(a, one("y", 8), "Idempotency-Window", "604801").is(t, 400, "bad-request")
	if got := post(a, `{"timers":[{"after":"1h","remember":"1h","target":{"topic":"orders"}}]}`).is(
		t, 200, ""); !strings.Contains(got.text, `"status":400`) {
		t.Error(got.text)
	}
	// A timer with an ID is remembered if its request asks for that.
	a.call(t, "PUT", path("own"), "", in1h, "1h", toOrders, "orders", "timer-remember", "1h").is(t, 201, "scheduled")
	f.fire()
	gone := a.call(t, "PUT", path("own"), "", in1h, "1h", toOrders, "orders", "If-None-Match", "*").is(
		t, 412, "condition-not-met")
	if gone.body["pending"].(map[string]any)["state"] != "remembered" {
		t.Error(gone.text)
	}
	a.call(t, "DELETE", path("own"), "").is(t, 404, "not-found") // and it is forgotten
	a.call(t, "PUT", path("own"), "", in1h, "1h", toOrders, "orders", "If-None-Match", "*").is(t, 201, "scheduled")
}

// A job steers the timers that its filter chooses and no others.
func TestJobs(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false)
	for i := range 100 {
		in.call(t, "PUT", path(fmt.Sprintf("%d-%d", i%2, i)), "", in1h, "1h", toOrders, "orders").is(t, 201, "")
	}
	dry := in.call(t, "POST", "/v1/topics/timers/timers/cancel?prefix=1-&dry-run=true", "").is(t, 200, "")
	if dry.body["matching"].(map[string]any)["count"] != 50.0 || len(f.all()) != 100 {
		t.Fatal(dry.text)
	}
	run := func(action string) map[string]any {
		t.Helper()
		a := in.call(t, "POST", "/v1/topics/timers/timers/"+action+"?prefix=1-", "").is(t, 202, "")
		return ended(t, in, a)
	}
	if j := run("pause"); j["state"] != "done" || j["changed"] != 50.0 {
		t.Error(j)
	}
	if j := run("pause"); j["spared"] != 50.0 {
		t.Error(j)
	}
	if j := run("cancel"); j["changed"] != 50.0 || j["failed"] != 0.0 {
		t.Error(j)
	}
	if n := len(f.all()); n != 50 {
		t.Errorf("%d timers are left", n)
	}
	in.call(t, "POST", "/v1/topics/timers/timers/cancel?dry-run=true", "").is(t, 200, "")
	// A job that waits for a partition can be stopped.
	f.move(place(t, "timers", "0-0", partitions), "")
	a := in.call(t, "POST", "/v1/topics/timers/timers/cancel?prefix=0-", "").is(t, 202, "")
	at := a.header.Get("Location")
	in.call(t, "DELETE", at, "").is(t, 200, "")
	await.Until(t, 20*time.Second, "the job is stopped",
		func() bool { return in.call(t, "GET", at, "").is(t, 200, "").body["state"] == "stopped" })
}

// At a time, a caller has four jobs, all callers have 16 jobs and 32 streams of events, and a POST
// has a limit: docs/LIMITS.md. Other callers have their share of each.
func TestAtMost(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false)
	f.move(place(t, "timers", "a", partitions), "") // jobs wait for it
	const job = "/v1/topics/timers/timers/cancel?all=true"
	first := in.call(t, "POST", job, "").is(t, 202, "").header.Get("Location")
	for range 3 {
		in.call(t, "POST", job, "").is(t, 202, "")
	}
	in.call(t, "POST", job, "").is(t, 429, "too-many-jobs")
	in.call(t, "DELETE", first, "").is(t, 200, "")
	await.Until(t, 20*time.Second, "a job that was stopped gives its place up",
		func() bool { return in.call(t, "POST", job, "").status == 202 })
	for _, caller := range []string{"a", "b", "c"} {
		for range 4 {
			in.call(t, "POST", job, "", "Test-Caller", caller).is(t, 202, "")
		}
	}
	in.call(t, "POST", job, "", "Test-Caller", "d").is(t, 429, "too-many-jobs")

	const events = "/v1/topics/timers/events"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 32 {
		r, err := http.NewRequestWithContext(ctx, "GET", in.url+events, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
	}
	in.call(t, "GET", events, "").is(t, 429, "too-many-streams")
	for range 16 { // of another caller: each one ends one of the first caller's
		r, err := http.NewRequestWithContext(ctx, "GET", in.url+events, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Test-Caller", "other")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
	}
	in.call(t, "GET", events, "", "Test-Caller", "other").is(t, 429, "too-many-streams")
	cancel()

	const post = "/v1/topics/timers/timers"
	in.call(t, "POST", post, `{"timers":[`+strings.Repeat(`{"id":"a"},`, 1000)+`{"id":"a"}]}`, "Content-Type",
		"application/json").is(t, 400, "bad-request")
	in.call(t, "POST", post, `{"timers":[]}`+strings.Repeat(" ", 8<<20), "Content-Type", "application/json").is(
		t, 413, "too-large")
	in.call(t, "GET", "/v1/topics/timers/dead-letters?limit=101", "").is(t, 400, "bad-request")
}

// A job writes no more requests a second than it was told to, however large its pages are.
func TestRateOfAJob(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false)
	var timers []string
	for i := range 40 {
		timers = append(timers, fmt.Sprintf(`{"id":"rate-%d","after":"1h","target":{"topic":"orders"}}`, i))
	}
	in.call(t, "POST", "/v1/topics/timers/timers", `{"timers":[`+strings.Join(timers, ",")+`]}`, "Content-Type",
		"application/json").is(t, 200, "")
	const perSecond = 30
	began := time.Now()
	at := in.call(t, "POST", fmt.Sprintf("/v1/topics/timers/timers/cancel?all=true&rate=%d", perSecond), "").is(
		t, 202, "").header.Get("Location")
	for len(f.all()) > 0 {
		gone := 40 - len(f.all())
		if may := 3 + int(time.Since(began).Seconds()*perSecond) + 1; gone > may {
			t.Fatalf("%d are cancelled after %v, want %d at most", gone, time.Since(began), may)
		}
		if time.Since(began) > time.Minute {
			t.Fatal(in.call(t, "GET", at, "").text)
		}
		await.For(t, time.Millisecond)
	}
	if took, want := time.Since(began), time.Second*(40-3)/perSecond; took < want {
		t.Errorf("it has taken %v, want %v at least", took, want)
	}
}

// To start a job, a caller must be allowed to do everything with the timers of its filter. Readers
// may look at jobs.
func TestRightsToJobs(t *testing.T) {
	router := route.New(route.Options{Local: &local{newFake("timers", partitions), "p0"}, Process: "p0"})
	var mu sync.Mutex
	var asked []string
	a := api.New(api.Options{
		Asker: router, Topics: map[string]api.Topic{"timers": {Partitions: partitions, MaxBytes: 1 << 20}},
		Logger: slog.New(slog.DiscardHandler),
		Rights: api.Rights{May: func(_ context.Context, role access.Role, topic, id string) error {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, fmt.Sprintf("%s %s %s", role, topic, id))
			return nil
		}},
	})
	router.HaveJobs(a)
	defer a.Close()
	s := httptest.NewServer(a)
	defer s.Close()
	in := &instance{url: s.URL}
	wasAsked := func(want ...string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(asked, want) {
			t.Errorf("asked for %q, want %q", asked, want)
		}
		asked = nil
	}
	in.call(t, "POST", "/v1/topics/timers/timers/cancel?prefix=x&dry-run=true", "").is(t, 200, "")
	wasAsked("read timers x")
	at := in.call(t, "POST", "/v1/topics/timers/timers/cancel?prefix=x", "").is(t, 202, "").header.Get("Location")
	a.Close()                                    // the job has ended
	wasAsked("admin timers x", "admin timers x") // once to start it, and once for its only page
	in.call(t, "GET", at, "").is(t, 200, "")
	wasAsked("read timers x")
	in.call(t, "DELETE", at, "").is(t, 200, "")
	wasAsked("admin timers x")
}

func TestNext(t *testing.T) {
	in := start(t, newFake("timers", partitions), "p0", false)
	a := in.call(t, "GET", "/v1/next?cron=0+9+*+*+mon-fri&zone=Africa%2FLagos&n=2&from=2026-11-20T12:00:00Z", "").is(
		t, 200, "")
	if got := fmt.Sprint(a.body["next"]); got != "[2026-11-23T09:00:00+01:00 2026-11-24T09:00:00+01:00]" {
		t.Error(got)
	}
	// The limit of an expression is that of a request.
	longest := "/v1/next?cron=0+9+*+*+*" + strings.Repeat("+", calendar.MaxExpressionBytes-len("0 9 * * *"))
	in.call(t, "GET", longest, "").is(t, 200, "")
	in.call(t, "GET", longest+"+", "").is(t, 400, "bad-request")
}

// The document names every operation, and the page for people loads nothing.
func TestDocument(t *testing.T) {
	in := start(t, newFake("timers", partitions), "p0", false)
	doc := in.call(t, "GET", "/openapi.json", "").is(t, 200, "")
	if doc.body["openapi"] != "3.1.0" || len(doc.body["paths"].(map[string]any)) < 12 {
		t.Errorf("%.300s", doc.text)
	}
	if a := in.call(t, "GET", "/openapi.yaml", ""); a.status != 200 || !strings.Contains(a.text, "openapi: 3.1.0") {
		t.Errorf("%d %.300s", a.status, a.text)
	}
	page := in.call(t, "GET", "/docs", "").is(t, 200, "")
	for _, bad := range []string{"http://", "https://", "<script", "src="} {
		if strings.Contains(page.text, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if !strings.Contains(page.text, "/v1/topics/{topic}/timers/{id}/trigger") {
		t.Error("the page lacks an operation")
	}
}

// A request that is sent between instances keeps null apart from empty.
func TestRequestOnItsWay(t *testing.T) {
	for _, want := range []route.Request{{ID: []byte("a")}, {ID: []byte("a"), Value: []byte{}},
		{ID: []byte{0xff}, Value: []byte{0}}} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got route.Request
		if err := json.Unmarshal(text, &got); err != nil || !bytes.Equal(got.Value, want.Value) ||
			(got.Value == nil) != (want.Value == nil) || !bytes.Equal(got.ID, want.ID) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// A timer whose instants RFC 3339 cannot write is shown nevertheless, and does not break lists.
func TestInstantsBeyondTheCalendar(t *testing.T) {
	in := start(t, newFake("timers", partitions), "p0", false)
	in.call(t, "PUT", path("end"), "", "timer-every", "1h", "timer-until", "999999999999999", toOrders, "orders").is(
		t, 201, "scheduled")
	in.call(t, "PUT", path("begin"), "", "timer-at", "0000-01-01T00:00:00+01:00", toOrders, "orders").is(
		t, 201, "scheduled")
	if a := in.call(t, "GET", path("end"), "").is(t, 200, ""); !strings.Contains(
		a.text, `"until":"9999-12-31T23:59:59.999Z"`) {
		t.Error(a.text)
	}
	if a := in.call(t, "GET", "/v1/topics/timers/timers", "").is(t, 200, ""); !strings.Contains(
		a.text, `"due":"0000-01-01T00:00:00Z","dueMillis":-62167222800000`) || len(a.body["timers"].([]any)) != 2 {
		t.Error(a.text)
	}
	for _, from := range []string{"253402300800000", "9223372036854775807", "-9223372036854775808"} {
		in.call(t, "GET", "/v1/next?cron=@daily&from="+from, "").is(t, 400, "bad-request")
	}
	if a := in.call(t, "GET", "/v1/next?cron=@daily&n=1000&zone=Africa%2FLagos&from=9999-12-30T12:00:00Z", "").is(
		t, 200, ""); len(a.body["next"].([]any)) != 1 {
		t.Error(a.text)
	}
}

// Jobs by filter, and stopping them, need a right, because they affect the work of others.
func TestJobsNeedAdmin(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false)
	cancel := "/v1/topics/timers/timers/cancel?prefix=a-"
	var as atomic.Int32 // of the caller; a job checks it too
	f.may = func(_ context.Context, role access.Role, topic, id string) error {
		rank := map[access.Role]int{access.Read: 1, access.Write: 2, access.Admin: 3}
		if rank[access.Role(as.Load())] < rank[role] || topic != "timers" || !strings.HasPrefix(id, "a-") {
			return fmt.Errorf("no right to %s %s", role, id)
		}
		return nil
	}
	as.Store(int32(access.Write))
	in.call(t, "POST", cancel, "").is(t, 403, "forbidden")
	in.call(t, "POST", cancel+"&dry-run=true", "").is(t, 200, "")
	as.Store(int32(access.Admin))
	in.call(t, "POST", "/v1/topics/timers/timers/cancel?all=true", "").is(t, 403, "forbidden")
	at := in.call(t, "POST", cancel, "").is(t, 202, "").header.Get("Location")
	as.Store(int32(access.Write))
	in.call(t, "GET", at, "").is(t, 200, "")
	in.call(t, "DELETE", at, "").is(t, 403, "forbidden")
}

// A job can be found and stopped from any instance, and any instance lists all jobs, for callers
// that may see them.
func TestJobsOfAllInstances(t *testing.T) {
	f := newFake("timers", partitions)
	a, b := start(t, f, "p0", true), start(t, f, "p1", true)
	alone := start(t, f, "p2", false)
	f.move(timer.TopicPartition{Topic: "timers", Partition: 1}, "p1")
	f.move(timer.TopicPartition{Topic: "timers", Partition: 2}, "") // a job waits for it
	const from = "/v1/topics/timers/timers/cancel?prefix="
	at := a.call(t, "POST", from+"a-", "").is(t, 202, "").header.Get("Location")
	other := b.call(t, "POST", from+"b-", "").is(t, 202, "").header.Get("Location")
	for _, in := range []*instance{a, b} {
		in.call(t, "GET", at, "").is(t, 200, "")
		in.call(t, "GET", other, "").is(t, 200, "")
		list := in.call(t, "GET", "/v1/jobs", "").is(t, 200, "")
		if all := list.body["jobs"].([]any); len(all) != 2 || all[0].(map[string]any)["prefix"] != "b-" ||
			list.body["unasked"] != nil {
			t.Errorf("jobs %s", list.text)
		}
	}
	elsewhere := alone.call(t, "GET", at, "").is(t, 421, "elsewhere")
	if owner, _ := elsewhere.body["owner"].(string); owner != a.url {
		t.Errorf("owner %q of %s, want %q", owner, elsewhere.text, a.url)
	}
	if list := alone.call(t, "GET", "/v1/jobs", "").is(t, 200, ""); len(list.body["jobs"].([]any)) != 0 ||
		len(list.body["unasked"].([]any)) != 2 {
		t.Errorf("jobs of one that asks nobody: %s", list.text)
	}
	f.set(func() {
		f.may = func(_ context.Context, _ access.Role, _, id string) error {
			if strings.HasPrefix(id, "b-") {
				return nil
			}
			return errors.New("no right")
		}
	})
	b.call(t, "GET", at, "").is(t, 403, "forbidden")
	b.call(t, "DELETE", at, "").is(t, 403, "forbidden")
	if list := a.call(t, "GET", "/v1/jobs", "").is(t, 200, ""); len(list.body["jobs"].([]any)) != 1 {
		t.Errorf("jobs of who may see one: %s", list.text)
	}
	f.set(func() { f.may = nil })
	b.call(t, "DELETE", at, "").is(t, 200, "")
	for end := time.Now().Add(time.Minute); b.call(t, "GET", at, "").body["state"] != "stopped"; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("a job that was stopped by another instance goes on")
		}
	}
	for _, id := range []string{"none", "none-p0", "none-p1", "none-p9"} {
		a.call(t, "GET", "/v1/jobs/"+id, "").is(t, 404, "not-found")
	}
	f.set(func() { f.urls["p0"] = "http://127.0.0.1:1" }) // it may be alive
	c := start(t, f, "p3", true)                          // it has not looked up the other instances yet
	c.call(t, "GET", at, "").is(t, 503, "moving")
}

// A job stops when the right that it was started with is taken away. Timers that it has not reached
// by then are not changed.
func TestJobEndsWithItsRight(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false)
	const n = 900 // more than a job steers at a time
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"id":"a-%d","after":"1h","target":{"topic":"orders"}}`, i))
	}
	in.call(t, "POST", "/v1/topics/timers/timers", `{"timers":[`+strings.Join(all, ",")+`]}`, "Content-Type",
		"application/json").is(t, 200, "")
	f.set(func() {
		f.may = func(_ context.Context, role access.Role, _, _ string) error {
			if role == access.Admin && len(f.all()) < n { // it has begun
				return errors.New("no right any more")
			}
			return nil
		}
	})
	at := in.call(t, "POST", "/v1/topics/timers/timers/cancel?prefix=a-", "").is(t, 202, "").header.Get("Location")
	end := time.Now().Add(time.Minute)
	var job answer
	for job = in.call(t, "GET", at, ""); job.body["state"] == "running" && time.Now().Before(end); job = in.call(
		t, "GET", at, "") {
		runtime.Gosched()
	}
	if job.body["state"] != "stopped" || !strings.Contains(job.text, "taken away") || len(f.all()) == 0 ||
		len(f.all()) == n {
		t.Errorf("%s, and %d of %d timers are left", job.text, len(f.all()), n)
	}
}

// A path that is not clean does not exist. The caller is not redirected to another one, under which
// another timer may be: by following a 307 it would cancel that timer.
func TestPathsAreNotGuessedAt(t *testing.T) {
	in := start(t, newFake("timers", partitions), "p0", false)
	in.call(t, "PUT", path("y"), "", in1h, "1h", toOrders, "orders").is(t, 201, "")
	for _, bad := range []string{"x/../y", "/y", "./y"} {
		in.call(t, "DELETE", path(bad), "").is(t, 404, "")
	}
	in.call(t, "GET", path("y"), "").is(t, 200, "")
}

// If the API makes the ID of a timer, a condition cannot say that the ID is already there.
func TestNewIDUnderACondition(t *testing.T) {
	in := start(t, newFake("timers", partitions), "p0", false)
	a := in.call(t, "POST", "/v1/topics/timers/timers",
		`{"timers":[{"after":"1h","if":"present","target":{"topic":"orders"}}]}`, "Content-Type",
		"application/json").is(t, 200, "")
	if !strings.Contains(a.text, `"status":412`) {
		t.Error(a.text)
	}
}

// One call counts the timers of all partitions that fire before each of many instants.
func TestCountUntil(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false)
	at := func(h int) string { return time.Date(2030, 1, 1, h, 0, 0, 0, time.UTC).Format(time.RFC3339) }
	for i := range 12 {
		in.call(t, "PUT", path(fmt.Sprintf("%c-%d", 'a'+rune(i%2), i)), "", "timer-at", at(i), toOrders, "orders").is(
			t, 201, "")
	}
	in.call(t, "POST", path("a-0")+"/pause", "").is(t, 200, "paused")
	const count = "/v1/topics/timers/timers/count?until="
	got := in.call(t, "GET", count+at(3)+","+at(3)+","+at(7)+",1893542400000", "").is(t, 200, "")
	if got.body["count"] != 11.0 || fmt.Sprint(got.body["until"]) != "["+
		"map[at:2030-01-01T03:00:00Z count:2 exact:true] map[at:2030-01-01T03:00:00Z count:2 exact:true] "+
		"map[at:2030-01-01T07:00:00Z count:6 exact:true] map[at:2030-01-02T00:00:00Z count:11 exact:true]]" {
		t.Error(got.text)
	}
	if got := in.call(t, "GET", count+at(7)+"&prefix=b-", "").is(t, 200, ""); got.body["count"] != 3.0 {
		t.Error(got.text)
	}
	for _, bad := range []string{at(7) + "," + at(3), "soon", at(1) + ",", strings.Repeat(at(1)+",", 100) + at(1)} {
		in.call(t, "GET", count+bad, "").is(t, 400, "bad-request")
	}
	f.move(timer.TopicPartition{Topic: "timers", Partition: 1}, "")
	got = in.call(t, "GET", count+at(7), "").is(t, 200, "")
	if got.body["exact"] != false || !strings.Contains(got.text, `"missing":[{"partition":1,"reason":"moving"`) {
		t.Error(got.text)
	}
}

// A list of a state has also the timers that recur, whatever their state, and a count with a limit says that it is not
// exact.
func TestRecurringTimersAndBoundedCounts(t *testing.T) {
	in := start(t, newFake("timers", partitions), "p0", false)
	for i := range 12 {
		in.call(t, "PUT", path(fmt.Sprint("once-", i)), "", in1h, "1h", toOrders, "orders").is(t, 201, "")
	}
	for _, id := range []string{"every", "paused"} {
		in.call(t, "PUT", path(id), "", "timer-every", "1h", toOrders, "orders").is(t, 201, "")
	}
	in.call(t, "POST", path("paused")+"/pause", "").is(t, 200, "paused")
	const all = "/v1/topics/timers/timers"
	if got := in.call(t, "GET", all+"?state=recurring", "").is(t, 200, ""); strings.Count(got.text, `"id"`) != 2 {
		t.Error(got.text)
	}
	for query, want := range map[string]string{
		"?state=recurring":       "map[count:2 exact:true]",
		"?prefix=once&limit=100": "map[count:12 exact:true]",
		"?state=paused":          "map[count:1 exact:true]",
	} {
		if got := in.call(t, "GET", all+"/count"+query, "").is(t, 200, ""); fmt.Sprint(got.body) != want {
			t.Errorf("%s: %s, want %s", query, got.text, want)
		}
	}
	if got := in.call(t, "GET", all+"/count?limit=1", "").is(t, 200, ""); got.body["exact"] != false ||
		got.body["count"].(float64) > partitions {
		t.Error(got.text)
	}
	in.call(t, "GET", all+"/count?limit=0", "").is(t, 400, "bad-request")
	// A job for those that recur spares the others.
	got := in.call(t, "POST", all+"/cancel?state=recurring&dry-run=true", "").is(t, 200, "")
	if !strings.Contains(got.text, `"count":2`) {
		t.Error(got.text)
	}
}

// A filter that chooses nothing must not be taken for one that chooses everything.
func TestDueBeforeNothing(t *testing.T) {
	in := start(t, newFake("timers", partitions), "p0", false)
	for _, zero := range []string{"0", "1970-01-01T00:00:00Z"} {
		in.call(t, "POST", "/v1/topics/timers/timers/cancel?due-before="+zero, "").is(t, 400, "bad-request")
	}
}

// An ID that is too long is not sent to another instance, because it might not fit into the URL.
func TestLongIDs(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false)
	for p := range int32(partitions) {
		f.move(timer.TopicPartition{Topic: "timers", Partition: p}, "")
	}
	in.call(t, "GET", path(strings.Repeat("x", 512)), "").is(t, 503, "moving")
	in.call(t, "GET", path(strings.Repeat("x", 513)), "").is(t, 404, "not-found")
	in.call(t, "GET", "/v1/topics/timers/timers?prefix="+strings.Repeat("x", 513), "").is(t, 400, "bad-request")
}
