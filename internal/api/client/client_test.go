package client

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Caller and path arrive as they were given: a slash in an ID does not separate parts of a path.
func TestCall(t *testing.T) {
	var got *http.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = io.WriteString(w, `{"count":3}`)
	}))
	defer s.Close()
	for name, c := range map[string]struct {
		o    Options
		auth string
	}{
		"nobody": {Options{}, ""},
		"token":  {Options{TokenFile: file(t, "wct_1\n")}, "Bearer wct_1"},
		"user":   {Options{User: "u", PasswordFile: file(t, "p q\r\n")}, "Basic dTpwIHE="},
	} {
		c.o.URL = s.URL + "/"
		cl, err := New(c.o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var n struct{ Count int }
		if err := cl.Call(t.Context(), http.MethodGet, Timers("a b", "x/y?"), url.Values{"prefix": {"&"}},
			&n); err != nil || n.Count != 3 {
			t.Errorf("%s: %v, %v", name, n, err)
		}
		if got.RequestURI != "/v1/topics/a%20b/timers/x%2Fy%3F?prefix=%26" ||
			got.Header.Get("Authorization") != c.auth {
			t.Errorf("%s: %s, %q", name, got.RequestURI, got.Header.Get("Authorization"))
		}
	}
}

// A rejected call says why. If something that is not the API answers, the error says so.
func TestRefusals(t *testing.T) {
	for want, answer := range map[string]struct {
		status     int
		body, kind string
	}{
		`forbidden: you may not`: {403, `{"status":403,"reason":"forbidden","detail":"you may not."}`,
			"application/problem+json"},
		`bad-request: no; query.limit: too much`: {422,
			`{"reason":"bad-request","detail":"no","errors":[{"message":"too much","location":"query.limit"}]}`,
			"application/problem+json"},
		`responded with 404 Not Found, which is`: {404, `<html>`, "text/html"},
		`is not from its API: invalid`:           {200, `<html>`, "text/html"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", answer.kind)
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.body)
		}))
		cl, err := New(Options{URL: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		var out struct{}
		err = cl.Call(t.Context(), http.MethodGet, "/", nil, &out)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		var p *Problem
		if errors.As(err, &p) && p.Status != answer.status {
			t.Errorf("status %d, want %d", p.Status, answer.status)
		}
		s.Close()
	}
}

// A port that speaks something else than the URL says is answered with what to name.
func TestWrongPorts(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	hangsUp := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer hangsUp.Close()
	for base, want := range map[string]string{
		"https" + strings.TrimPrefix(plain.URL, "http"):  "speaks HTTP without TLS: name it with http://",
		"http" + strings.TrimPrefix(secure.URL, "https"): "speaks HTTPS: name it with https://",
		secure.URL:  "--ca names a file of the authorities that this machine does not know",
		hangsUp.URL: "does not respond; does --url name an instance's API, and not a broker?",
	} {
		cl, err := New(Options{URL: base})
		if err != nil {
			t.Fatal(err)
		}
		err = cl.Call(t.Context(), http.MethodGet, "/", nil, nil)
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", base, err, want)
		}
	}
}

func TestBadOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"--url is":                   {URL: "127.0.0.1:8681"},
		"--url is \"http://a?b\"":    {URL: "http://a?b"},
		"--token-file: open":         {URL: "http://a", TokenFile: "/none"},
		"is empty":                   {URL: "http://a", TokenFile: file(t, "\n")},
		"--user and --password-file": {URL: "http://a", PasswordFile: file(t, "p")},
		"--token-file and --user":    {URL: "http://a", User: "u", PasswordFile: file(t, "p"), TokenFile: file(t, "t")},
		"has no certificate in PEM":  {URL: "https://a", CA: file(t, "x")},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}

// A stream that breaks continues after the last event that arrived whole, until the API refuses,
// or does not answer for too long. A stream that cannot begin is an error at once.
func TestEvents(t *testing.T) {
	parts := []string{ // of consecutive streams; the last one is a refusal
		"id: 0:5\n\nid: 0:6\nevent: event\ndata: {\"a\":1}\n\nid: 0:7\ndata: {\"a\"",
		"id: 0:6\n\nid: 0:7\nevent: event\ndata: {\"a\":2}\n\nid: 0:9\n\nid: 0:10\ndata: {",
		"",
	}
	var from []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from = append(from, r.Header.Get("Last-Event-ID"))
		switch n := len(from); {
		case n > len(parts):
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w, `{"status":410,"reason":"events-gone","detail":"no more"}`)
		case parts[n-1] == "":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"status":503,"reason":"moving","detail":"starting"}`)
		default:
			_, _ = io.WriteString(w, parts[n-1])
		}
	}))
	defer s.Close()
	cl, err := New(Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	cl.pause = time.Millisecond
	var got []string
	begun := 0
	events := func() error {
		return cl.Events(t.Context(), "/", nil, func() { begun++ },
			func(_ string, data []byte) error { got = append(got, string(data)); return nil })
	}
	if err = events(); strings.Join(got, " ") != `{"a":1} {"a":2}` || err == nil ||
		!strings.Contains(err.Error(), "events-gone: no more") {
		t.Errorf("%q, %v", got, err)
	}
	if begun != 1 {
		t.Errorf("said %d times that it has begun", begun)
	}
	if want := []string{"", "0:6", "0:9", "0:9"}; !slices.Equal(from, want) {
		t.Errorf("went on from %q, want %q", from, want)
	}

	parts, from = []string{""}, nil
	if err = events(); err == nil || !strings.Contains(err.Error(), "moving: starting") || len(from) != 1 {
		t.Errorf("%v after %d calls", err, len(from))
	}

	parts, from, cl.patience = []string{"id: 0:1\n\n", "", "", ""}, nil, time.Nanosecond
	if err = events(); err == nil || !strings.Contains(err.Error(), "moving: starting") || len(from) > 2 {
		t.Errorf("%v after %d calls", err, len(from))
	}
}

// An event that is too large to be read would be too large again.
func TestEventThatIsTooLarge(t *testing.T) {
	calls := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		_, _ = io.WriteString(w, "id: 0:5\n\nid: 0:6\nevent: event\ndata: {"+strings.Repeat(" ", maxProblem)+"}\n\n")
	}))
	defer s.Close()
	cl, err := New(Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	cl.pause = time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	err = cl.Events(ctx, "/", nil, func() {}, func(string, []byte) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "token too long") || ctx.Err() != nil || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// No text from an untrusted source can control the terminal.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain ä": "plain ä", "a\x1b[31mb": `a\x1b[31mb`, "a\u202eb": `a\u202eb`, "a\u009bb": `a\u009bb`,
		"a\xffb": `a\xffb`, `a"b`: `a"b`,
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	p := &Problem{}
	p.Reason, p.Detail = "bad", "x\x1b[2J"
	if text := p.Error(); strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
}
