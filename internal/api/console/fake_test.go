package console

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/recent"
	"github.com/waterclock/waterclock/internal/api/route"
)

// now is the time at which all tests run.
var now = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

// fakeAPI answers what a test tells it to, and records the calls.
type fakeAPI struct {
	history *recent.History // of the instance; nil: none
	t       *testing.T
	// answers are by method and escaped path, or by path. A value is a problem, a func, or
	// something to encode.
	answers map[string]any
	asked   []asked
	mu      sync.Mutex // guards asked
}

type asked struct {
	method, path string
	query        url.Values
	header       http.Header
	body         string
	caller       any
}

type callerKey struct{}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := r.URL.EscapedPath()
	f.mu.Lock()
	defer f.mu.Unlock()
	if path != "/v1/dead-letters" && path != "/v1/caller" { // all pages ask for them
		f.asked = append(f.asked,
			asked{r.Method, path, r.URL.Query(), r.Header, string(body), r.Context().Value(callerKey{})})
	}
	answer, ok := f.answers[r.Method+" "+path]
	if !ok {
		answer, ok = f.answers[path]
	}
	if !ok {
		answer = refusal(http.StatusNotFound, "", "there is nothing at "+path)
	}
	switch a := answer.(type) {
	case *api.Problem:
		w.Header().Set("Content-Type", "application/problem+json")
		if a.Status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(a.Status)
		writeJSON(f.t, w, a)
	case http.HandlerFunc:
		a(w, r)
	default:
		writeJSON(f.t, w, a)
	}
}

func writeJSON(t *testing.T, w io.Writer, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		t.Error(err)
	}
}

func (f *fakeAPI) last() asked { return f.asked[len(f.asked)-1] }

// did returns the first call with a method.
func (f *fakeAPI) did(method string) (asked, bool) {
	for _, a := range f.asked {
		if a.method == method {
			return a, true
		}
	}
	return asked{}, false
}

// newFake returns an API with a topic, two instances and a few timers.
func newFake(t *testing.T) *fakeAPI {
	text := func(s string) *string { return &s }
	timers := []*api.Timer{
		{ID: "order-1", Topic: "timers", Source: "timers/0/5", State: "pending", Due: now.Add(time.Hour),
			Target: api.Target{Topic: "orders"}, Occurrence: 1},
		{ID: evil, Topic: "timers", Source: "timers/1/7", State: "paused", Due: now,
			Target: api.Target{Topic: "orders"}, Occurrence: 3,
			Recurrence: &api.Recurrence{Every: "15m", CatchUp: "latest"}},
		{IDBase64: []byte("\xff\x00"), Topic: "timers", Source: "timers/1/8", State: "parked", Due: now.Add(-time.Hour),
			Target: api.Target{Topic: "orders"}, Occurrence: 1},
	}
	until := now.Add(49 * time.Hour)
	one := &api.Timer{
		ID: evil, Topic: "timers", Partition: 1, Source: "timers/1/7", State: "pending", Due: now.Add(time.Hour),
		DueMillis:  now.Add(time.Hour).UnixMilli(),
		Occurrence: 3, MaxLate: "5m", Target: api.Target{Topic: "orders", Key: text(evil)},
		Headers: []api.Header{{Name: evil, Value: text(evil)}, {Name: "none", ValueNull: true},
			{Name: "bytes", ValueBase64: []byte{0, 255}}},
		Payload: &api.Payload{Bytes: len(evil), Text: text(evil)},
		Recurrence: &api.Recurrence{Cron: "0 10 * * *", Zone: "Africa/Lagos", Until: &until, Jitter: "1m",
			CatchUp: "all"},
	}
	return &fakeAPI{t: t, answers: map[string]any{
		"/v1/topics": map[string]any{"topics": []api.TopicInfo{{Topic: "timers",
			Partitions: 2}}},
		"/v1/topics/timers/timers":                    api.TimerList{Timers: timers, Cursor: "d.1.2.0~abc"},
		"/v1/topics/timers/timers/count":              counted(1234567, false),
		"/v1/topics/timers/timers/" + segmentOf(evil): one,
		"/v1/topics/timers/timers/order-1":            timers[0],
		"/v1/topics/timers/timers/%2E%2E":             timers[0],
		"/v1/topics/timers/dead-letters": api.DeadLetterList{DeadLetters: []api.DeadLetter{{ID: text(
			evil), Partition: 1, Offset: 9, At: now, Reason: "bad-cron", Detail: evil, Source: "timers/1/4",
			Headers: one.Headers, Payload: one.Payload}}},
		"POST /v1/topics/timers/dead-letters/1/9/resend": api.Result{Outcome: "scheduled", Topic: "timers",
			Partition: 1, Offset: 10},
		"/v1/dead-letters": api.DeadLetterCountList{Topics: []api.DeadLetterCounts{
			{Topic: "timers", LastHour: 12, LastDay: 1234, Exact: true,
				Reasons: []api.ReasonCount{{Reason: "bad-cron", Meaning: "What it says.", LastHour: 12, LastDay: 1200,
					Newest: now}, {Reason: evil, LastDay: 34, Newest: now}}},
			{Topic: "orders.retry", FixedDelay: true, LastDay: 1, Exact: true,
				Reasons: []api.ReasonCount{{Reason: "target-unknown", LastDay: 1, Newest: now}}},
		}},
		"POST /v1/topics/timers/dead-letters/resend": api.JobStarted{Letters: &api.LetterMatches{Count: 36, Exact: true,
			NotWhole: 2, Reasons: map[string]int64{"bad-cron": 30, evil: 6}}},
		"/v1/jobs/j1": api.Job{ID: "j1", Topic: "timers", Action: "resend", State: "running", Begun: now, Seen: 7,
			Changed: 4, Spared: 2, Failed: 1, Failure: evil},
		"/v1/next": api.Occurrences{Explanation: "At 10:00.", Zone: "Africa/Lagos",
			Next: []time.Time{now.Add(25 * time.Hour), now.Add(49 * time.Hour), now.Add(73 * time.Hour)}},
		"/v1/cluster": &api.Cluster{
			Asked: "a/1", Pending: 1234567, OldestSecs: 3601,
			Instances: []route.Instance{{Name: "a/1", API: "http://10.0.0.1:8681", Version: "v1",
				Started: now.Add(-time.Hour), Member: true}, {Name: evil, Problem: "it has no API " + evil}},
			Partitions: []api.OwnedPartition{
				{Owner: "a/1", PartitionStatus: route.PartitionStatus{Topic: "timers", Partition: 0, State: "live",
					Pending: 17}},
				{Owner: evil, PartitionStatus: route.PartitionStatus{Topic: "timers", Partition: 1, State: "stalled",
					Reason: evil}},
				{PartitionStatus: route.PartitionStatus{Topic: "timers", Partition: 2, State: "unowned"}},
			},
			Unhealthy: []route.UnhealthyTarget{{Topic: "mail", Partition: "3", Since: now.Add(-time.Minute)}},
		},
	}}
}

// evil is markup, ends of attributes, a path, a double escape, NUL, and a mark that changes the
// direction of writing.
const evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>/../%2F\x00\u202e"

func segmentOf(s string) string {
	return strings.TrimPrefix((&call{path: []string{s}}).target(), "/v1/")
}

// counted makes the API count n timers, and n more before each further instant of a call.
func counted(n int64, exact bool, missing ...api.Missing) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := api.TimerCount{Count: n, Exact: exact, Missing: missing}
		if until := r.URL.Query().Get("until"); until != "" {
			for i := range strings.Split(until, ",") {
				c.Until = append(c.Until, api.CountUntil{Count: n * int64(i+1), Exact: exact})
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(c)
	}
}

// get and post ask a console as a caller.
func (f *fakeAPI) get(path string) *httptest.ResponseRecorder {
	return f.send(httptest.NewRequest(http.MethodGet, path, nil))
}

func (f *fakeAPI) post(path string, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return f.send(r)
}

func (f *fakeAPI) send(r *http.Request) *httptest.ResponseRecorder {
	f.asked = nil
	w := httptest.NewRecorder()
	c := New(Options{API: f, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
		History: f.history})
	c.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, "someone")))
	return w
}

// refusal is a problem in the form in which the API answers.
func refusal(status int, reason, detail string) *api.Problem {
	return &api.Problem{Problem: *access.NewProblem(status, reason, detail)}
}

// moving and forbidden are problems in the API's own words.
func moving() *api.Problem {
	return refusal(503, "moving", "the partition is on its way to another owner; ask again")
}

func forbidden() *api.Problem {
	return refusal(403, "forbidden", "caller someone has no role read on timers")
}

// lacks fails for each of the texts that a page contains.
func lacks(t *testing.T, w *httptest.ResponseRecorder, texts ...string) {
	t.Helper()
	for _, not := range texts {
		if strings.Contains(w.Body.String(), not) {
			t.Errorf("the page says %q", not)
		}
	}
}

// says fails if a page lacks one of the texts, or contains something that no page may contain.
func says(t *testing.T, w *httptest.ResponseRecorder, status int, texts ...string) {
	t.Helper()
	body := w.Body.String()
	if w.Code != status {
		t.Errorf("status %d, want %d", w.Code, status)
	}
	for _, want := range texts {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	// Fields contain what was typed, unchanged.
	shown := regexp.MustCompile(`value="[^"]*"|(?s)<textarea.*?</textarea>`).ReplaceAllString(body, "")
	for _, never := range []string{"<script>alert", "<img src=x", "\x00", "\u202e", "style=", "onclick=", "ZgotmplZ",
		"<no value>", "%!"} {
		if strings.Contains(shown, never) {
			t.Errorf("the page has %q", never)
		}
	}
	for name, want := range map[string]string{
		"Content-Security-Policy": policy, "Content-Type": "text/html; charset=utf-8",
		"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if !strings.HasPrefix(body, "<!doctype html>") || strings.Count(body, "<h1") != 1 ||
		!strings.HasSuffix(strings.TrimSpace(body), "</html>") {
		t.Errorf("no whole page with one heading")
	}
	if t.Failed() {
		t.Logf("%.20000s", cmp.Or(body, "(nothing)"))
	}
}
