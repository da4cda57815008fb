package api_test

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
)

// guarded is an API behind a guard that is open to this machine.
func guarded(t *testing.T, bodyLimit int64, audit *slog.Logger) *instance {
	t.Helper()
	in := start(t, newFake("timers", partitions), "p0", false, func(o *api.Options) {
		o.Rights = api.Rights{May: access.May, Some: access.MaySome}
	})
	g, err := access.New(access.Options{Address: "127.0.0.1:0", BodyLimit: bodyLimit, AtOnce: 10, Audit: audit},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g.Wrap(in.api))
	t.Cleanup(s.Close)
	return &instance{Caller: called(t, s.URL)}
}

// A problem of the API has the request's ID, whichever part has found it, and the audit names the
// timers of a call.
func TestRequestIDInProblems(t *testing.T) {
	var audit bytes.Buffer
	in := guarded(t, 1<<20, slog.New(slog.NewTextHandler(&audit, nil)))
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", path("none"), "", 404},                    // found by a handler
		{"PUT", path("a"), "", 400},                       // found by the judge
		{"GET", "/v1/next", "", 400},                      // found by huma
		{"GET", "/v1/none", "", 404},                      // no handler
		{"POST", path("a"), "", 405},                      // no handler for the method
		{"GET", path(strings.Repeat("x", 9000)), "", 414}, // found by the guard
	} {
		got := in.Call(c.method, c.path, c.body, access.RequestHeader, "id-1").Is(c.status, "")
		if got.Header.Get(access.RequestHeader) != "id-1" || got.Body["requestId"] != "id-1" {
			t.Errorf("%s %.40s: %v %s", c.method, c.path, got.Header, got.Text)
		}
	}
	audit.Reset()
	in.post(`{"timers":[{"id":"one","after":"1h","target":{"topic":"orders"}},{"id":"two","after":"1h","target":{"topic":"orders"}}]}`, access.RequestHeader, "id-2").Is(200, "")
	if got := audit.String(); !strings.Contains(got, "request=id-2 ") || !strings.Contains(got, "one") ||
		!strings.Contains(got, "two") || strings.Count(got, "\n") != 1 {
		t.Errorf("audit %s", got)
	}
}
