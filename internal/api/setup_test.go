package api_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafkatest/caller"
)

const partitions = 4

// instance is an instance of the fake, with its API.
type instance struct {
	*caller.Caller
	api http.Handler
}

type answer = caller.Answer

// called returns a caller of an API whose answers are held against the document.
func called(t *testing.T, url string) *caller.Caller {
	c, d := caller.New(t, url), documented()
	c.Look = func(method, path string, a answer) { d.hasStatus(t, method, path, a.Status) }
	return c
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

// alone starts the only instance of a fake.
func alone(t *testing.T) *instance {
	t.Helper()
	in, _ := faked(t)
	return in
}

func faked(t *testing.T) (*instance, *fake) {
	t.Helper()
	f := newFake("timers", partitions)
	return start(t, f, "p0", false), f
}

// reading is alone with logs.
func reading(t *testing.T, logs api.Logs, changes ...func(*api.Options)) *instance {
	t.Helper()
	return start(t, newFake("timers", partitions), "p0", false, append(changes, withLogs(logs))...)
}

// withQuiet has an instance serve a request topic without events, too.
func withQuiet(o *api.Options) {
	o.Topics["quiet"] = api.Topic{Partitions: partitions, MaxBytes: 1 << 20}
}

// withLogs has an instance read topics.
func withLogs(logs api.Logs) func(*api.Options) {
	return func(o *api.Options) {
		o.Logs = logs
		o.Marks, _ = logs.(api.Marks)
	}
}

// start starts an instance, which asks others if forwards is set, with options that a test changes.
func start(t *testing.T, f *fake, process string, forwards bool, changes ...func(*api.Options)) *instance {
	t.Helper()
	topics := map[string]api.Topic{
		"timers": {Partitions: partitions, MaxBytes: 1 << 20, Events: "events", DeadLetters: "timers.dead",
			Rules: f.rules()},
		"retry": {Partitions: partitions, MaxBytes: 1 << 20, Delay: true, DeadLetters: "retry.dead",
			Rules: f.delayRules},
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
	options := api.Options{
		Version: "test", Process: process, Rights: api.Rights{May: f.allows, Some: f.some}, Asker: router,
		Topics: topics, PartitionOf: intake.Murmur2Partition, Logger: slog.New(slog.DiscardHandler), Logs: emptyLogs{},
	}
	for _, change := range changes {
		change(&options)
	}
	a := api.New(options)
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
	return &instance{called(t, s.URL), a}
}

const (
	in1h, toOrders = "timer-after", "timer-target-topic"
	allTimers      = "/v1/topics/timers/timers"
	allLetters     = "/v1/topics/timers/dead-letters"
)

func path(id string) string { return allTimers + "/" + id }

// put schedules a timer that is due in an hour; the ID is escaped.
func (in *instance) put(id, body string, headers ...string) answer {
	return in.Call("PUT", path(id), body, append(headers, in1h, "1h", toOrders, "orders")...)
}

// post schedules timers.
func (in *instance) post(body string, headers ...string) answer {
	return in.Call("POST", allTimers, body, append(headers, "Content-Type", "application/json")...)
}
