// Package caller calls HTTP APIs in tests, over plain net/http, and checks the answers:
//
//	page := caller.Get("/v1/timers?topic=t").Is(http.StatusOK, "")
package caller

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// limit is how long a call may take, on a busy machine.
const limit = time.Minute

// Caller calls the API of an instance.
type Caller struct {
	t   testing.TB
	URL string // without a path
	// HTTP follows no redirects. Its connections end with the test.
	HTTP *http.Client
	// Headers are sent with every call, given as name, value.
	Headers []string
	// Look, unless it is nil, is called with each answer.
	Look func(method, path string, a Answer)
}

// New returns a caller of the API at a URL.
func New(t testing.TB, url string) *Caller {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &Caller{t: t, URL: url, HTTP: &http.Client{
		Transport: transport, Timeout: limit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Prepare returns a call to be made, with headers given as name, value.
func (c *Caller) Prepare(method, path string, body io.Reader, headers ...string) *http.Request {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.URL+path, body)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, pairs := range [][]string{c.Headers, headers} {
		for i := 0; i < len(pairs); i += 2 {
			r.Header.Add(pairs[i], pairs[i+1])
		}
	}
	return r
}

// Call makes a call.
func (c *Caller) Call(method, path, body string, headers ...string) Answer {
	c.t.Helper()
	resp, err := c.HTTP.Do(c.Prepare(method, path, strings.NewReader(body), headers...))
	if err != nil {
		return Answer{t: c.t, Err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{t: c.t, Err: err}
	}
	got := Answer{t: c.t, Status: resp.StatusCode, Header: resp.Header, Text: string(text)}
	_ = json.Unmarshal(text, &got.Body) // some are no objects
	if c.Look != nil {
		c.Look(method, path, got)
	}
	return got
}

// Get is Call for a read.
func (c *Caller) Get(path string, headers ...string) Answer {
	c.t.Helper()
	return c.Call(http.MethodGet, path, "", headers...)
}

// maxPages is how many pages a list may have.
const maxPages = 1000

// Pages gets all pages of a list, each by the cursor of the one before, and returns how many there are. The path has a
// query.
func (c *Caller) Pages(path string, look func(page Answer)) (n int) {
	c.t.Helper()
	for cursor := ""; n == 0 || cursor != ""; n++ {
		page := c.Get(path+"&cursor="+cursor).Is(http.StatusOK, "")
		look(page)
		if cursor, _ = page.Body["cursor"].(string); n == maxPages {
			c.t.Fatalf("%s does not end", path)
		}
	}
	return n
}

// Answer is an instance's answer.
type Answer struct {
	t      testing.TB
	Status int // 0: nothing
	Header http.Header
	Text   string
	Body   map[string]any
	Err    error
}

// Word is the outcome of a change, or the reason of a problem.
func (a Answer) Word() string {
	word, _ := a.Body["outcome"].(string)
	if a.Status >= http.StatusBadRequest {
		word, _ = a.Body["reason"].(string)
	}
	return word
}

// Is ends the test unless the answer has a status and, if it is given, a word. An error in JSON is a problem.
func (a Answer) Is(status int, word string) Answer {
	a.t.Helper()
	if a.Status >= http.StatusBadRequest && a.Body != nil {
		ct, detail := a.Header.Get("Content-Type"), a.Body["detail"]
		if ct != "application/problem+json" || detail == nil || detail == "" || a.Body["status"] != float64(a.Status) {
			a.t.Errorf("a problem of type %q: %s", ct, a.Text)
		}
	}
	if a.Status != status || word != "" && a.Word() != word {
		a.t.Fatalf("got %d %.800s %v, want %d %q", a.Status, a.Text, a.Err, status, word)
	}
	return a
}

// Has fails the test for each text that the answer lacks.
func (a Answer) Has(texts ...string) Answer {
	a.t.Helper()
	for _, text := range texts {
		if !strings.Contains(a.Text, text) {
			a.t.Errorf("%q is not in %d %.800s", text, a.Status, a.Text)
		}
	}
	return a
}

// Items returns a list of objects that the answer has.
func (a Answer) Items(name string) (items []map[string]any) {
	list, _ := a.Body[name].([]any)
	for _, item := range list {
		one, _ := item.(map[string]any)
		items = append(items, one)
	}
	return items
}

// Object returns an object that the answer has.
func (a Answer) Object(name string) map[string]any {
	one, _ := a.Body[name].(map[string]any)
	return one
}
