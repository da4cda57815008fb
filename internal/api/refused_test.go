package api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
)

// If the judge rejects a request, the problem has its reason and detail. A call that is itself wrong
// writes nothing.
func TestRefused(t *testing.T) {
	in, f := faked(t)
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		reason                   string
	}{
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
		{"ID of a read", "GET", path(strings.Repeat("x", 513)), "", nil, 404, "not-found"},
		{"type of a list", "POST", allTimers, `{"timers":[{"id":"a"}]}`,
			[]string{"Content-Type", "text/plain"}, 415, "bad-request"},
		{"dead letters' cursor", "GET", allLetters + "?cursor=bnVsbA", "", nil, 400, "bad-request"},
		{"steering with a due time", "POST", path("a") + "/pause", "", []string{in1h, "1h"}, 400, "bad-request"},
		{"topic", "PUT", "/v1/topics/others/timers/a", "", []string{in1h, "1h"}, 404, "no-such-topic"},
		{"method", "POST", path("a"), "", nil, 405, "bad-request"},
		{"path", "GET", "/v2", "", nil, 404, "no-such-path"},
		{"no ID", "GET", allTimers + "/", "", nil, 404, "no-such-path"},
		{"due", "GET", allTimers + "?due-after=now", "", nil, 400, "bad-request"},
		{"no due", "POST", allTimers + "/cancel?due-before=0", "", nil, 400, "bad-request"},
		{"due in seconds", "POST", allTimers + "/cancel?due-after=1795344290", "", nil, 400, "bad-request"},
		{"due in 1970", "POST", allTimers + "/cancel?due-before=1970-01-01T00:00:00Z", "", nil, 400, "bad-request"},
		{"no filter", "POST", allTimers + "/cancel?prefix=", "", nil, 400, "bad-request"},
		{"cursor", "GET", allTimers + "?cursor=x", "", nil, 400, "bad-request"},
		{"limit", "GET", allTimers + "?limit=1001", "", nil, 400, "bad-request"},
		{"parameter", "GET", allTimers + "?prefx=a", "", nil, 400, "bad-request"},
		{"cron", "GET", "/v1/next?cron=x", "", nil, 400, "bad-cron"},
		{"job", "GET", "/v1/jobs/x", "", nil, 404, "not-found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in.Call(c.method, c.path, c.body, c.headers...).Is(c.status, c.reason)
		})
	}
	if n := len(f.all()); n != 0 {
		t.Errorf("%d timers are pending", n)
	}
}

// No PUT, and no timer of a POST, cancels or steers, whatever its headers and body are in
// combination: the pending timer stays.
func TestPutNeverCancels(t *testing.T) {
	in, f := faked(t)
	in.put("a", "kept").Is(201, "scheduled")
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
				a := in.Call("PUT", path("a"), body, slices.Concat(headers, typed)...)
				if a.Status != 400 {
					t.Errorf("PUT of %q with %q: %d %.200s, want 400", body, slices.Concat(headers, typed),
						a.Status, a.Text)
				}
			}
		}
	}
	post := in.post(`{"timers":[{"id":"a","valueNull":true}]}`).Is(200, "")
	if !strings.Contains(post.Text, `"reason":"no-due-time"`) {
		t.Error(post.Text)
	}
	if all := f.all(); len(all) != 1 || string(all[0].Value) != "kept" {
		t.Errorf("%d timers are pending, want the first alone", len(all))
	}
	in.Call("PUT", path("a"), `{"valueNull":true,"after":"1h","target":{"topic":"orders"}}`, asTimer...).Is(200, "replaced")
}

// An error that huma finds says which part is wrong. A body of unknown length that exceeds a limit
// before the API is too large like any other.
func TestRefusedByType(t *testing.T) {
	in := alone(t)
	for query, want := range map[string]string{
		"limit=0": "the parameter limit needs 1 or more",
		"prefx=a": `there is no parameter "prefx" here; did you mean prefix?`,
		"state=pendng": "the parameter state needs one of pending, triggered, paused, parked, deferred, recurring, " +
			"remembered",
		"limit=9999":   "the parameter limit needs 1000 or less",
		"frobnicate=1": `there is no parameter "frobnicate" here`,
	} {
		if d := in.Get(allTimers+"?"+query).Is(400, "bad-request").Body["detail"]; d != want {
			t.Errorf("%q, want %q", d, want)
		}
	}
	for _, method := range []string{"PUT", "POST"} {
		r := httptest.NewRequest(method, map[string]string{"PUT": path("a"), "POST": allTimers}[method], nil)
		w := httptest.NewRecorder()
		r.Body = http.MaxBytesReader(w, io.NopCloser(strings.NewReader(strings.Repeat("x", 11))), 10)
		in.api.ServeHTTP(w, r)
		if w.Code != 413 || !strings.Contains(w.Body.String(), `"reason":"too-large"`) {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
	}
}

// A bug in a handler is answered, counted and logged.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	in := start(t, newFake("timers", partitions), "p0", false, func(o *api.Options) {
		o.Registry, o.Logger = reg, slog.New(slog.NewTextHandler(&log, nil))
		o.Rights.May = func(context.Context, access.Role, string, string) error { panic("a bug") }
	})
	in.Get(path("a")).Is(500, "internal")
	if !strings.Contains(log.String(), "a bug") || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("log %q", log.String())
	}
	all, err := reg.Gather()
	if err != nil || !strings.Contains(fmt.Sprint(all), `value:"500"`) {
		t.Errorf("%v, %v", all, err)
	}
}
