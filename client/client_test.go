package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
)

const problemType = "application/problem+json"

// quick returns a client that does not wait long.
func quick(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c.pause, c.resumePause = time.Millisecond, time.Millisecond
	return c
}

// served returns the URL of a server.
func served(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// refuse answers with a problem.
func refuse(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// Caller and path arrive as they were given: a slash in an ID does not separate parts of a path.
func TestCall(t *testing.T) {
	var got *http.Request
	at := served(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = io.WriteString(w, `{"count":3}`)
	})
	for name, c := range map[string]struct {
		o    Options
		auth string
	}{
		"nobody": {Options{}, ""},
		"token":  {Options{Token: "wct_1"}, "Bearer wct_1"},
		"user":   {Options{User: "u", Password: "p q"}, "Basic dTpwIHE="},
		"own": {Options{Authorize: func(r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+r.Method)
			return nil
		}}, "Bearer GET"},
	} {
		c.o.URLs = []string{at + "/"}
		var n struct{ Count int }
		if err := quick(t, c.o).Call(t.Context(), http.MethodGet, Path("a b", "timers", "x/y?"),
			url.Values{"prefix": {"&"}}, nil, &n); err != nil || n.Count != 3 {
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
		status int
		body   string
		is     error
	}{
		`forbidden: you may not`: {403, `{"status":403,"reason":"forbidden","detail":"you may not."}`, ReasonForbidden},
		`bad-request: no; query.limit: too much`: {422,
			`{"reason":"bad-request","detail":"no","errors":[{"message":"too much","location":"query.limit"}]}`,
			ReasonBadRequest},
		`over-quota: full`: {429, `{"reason":"over-quota","detail":"full","request":"timers/0/1"}`,
			waterclock.ReasonOverQuota},
		`bad\x1b[2J: x\x1b[2J`:                   {400, `{"reason":"bad\u001b[2J","detail":"x\u001b[2J"}`, nil},
		`responded with 404 Not Found, which is`: {404, `<html>`, ErrNotAPI},
		`is not from its API: invalid`:           {200, `<html>`, ErrNotAPI},
	} {
		c := quick(t, Options{URLs: []string{served(t, func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, answer.status, answer.body)
		})}})
		var out struct{}
		err := c.Call(t.Context(), http.MethodGet, "/", nil, nil, &out)
		if err == nil || !strings.Contains(err.Error(), want) || answer.is != nil && !errors.Is(err, answer.is) {
			t.Errorf("%v, want %s", err, want)
		}
		if e, ok := errors.AsType[*Error](err); ok && (e.Status != answer.status || errors.Is(err, ReasonMoving)) {
			t.Errorf("status %d, want %d", e.Status, answer.status)
		}
	}
}

// TestRepeats has two instances, the first of which fails, and the calls that are repeated then.
func TestRepeats(t *testing.T) {
	const moving, unknown = `{"reason":"moving","detail":"d"}`, `{"reason":"unknown-outcome","detail":"d"}`
	hangUp := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	problem := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { refuse(w, status, body) }
	}
	get := func(ctx context.Context, c *Client) error { _, err := c.Get(ctx, "timers", "a"); return err }
	cancel := func(ctx context.Context, c *Client) error {
		d, err := c.Cancel(ctx, "timers", "a")
		if err == nil && !d.Repeated {
			err = errors.New("does not say that an answer was lost")
		}
		return err
	}
	trigger := func(ctx context.Context, c *Client) error { _, err := c.Trigger(ctx, "timers", "a"); return err }
	in := func(opts ...waterclock.Option) func(context.Context, *Client) error {
		return func(ctx context.Context, c *Client) error {
			_, err := c.Schedule(ctx, "timers", "a", append(opts, waterclock.To("t"))...)
			return err
		}
	}
	job := func(ctx context.Context, c *Client) error {
		_, err := c.StartJob(ctx, "timers", CancelAll, Filter{Prefix: "a"}, JobOptions{})
		return err
	}
	for name, c := range map[string]struct {
		first http.HandlerFunc
		call  func(context.Context, *Client) error
		want  error // nil: the second instance is asked
	}{
		"a read whose answer is lost":   {hangUp, get, nil},
		"a read of a moving partition":  {problem(503, moving), get, nil},
		"a read through a broken proxy": {problem(502, "<html>"), get, nil},
		"a reason of a newer version":   {problem(503, `{"reason":"tired","detail":"d"}`), get, nil},
		"the same, of a trigger":        {problem(503, `{"reason":"tired","detail":"d"}`), trigger, ReasonUnknownOutcome},
		"a partition that has failed": {problem(503, `{"reason":"partition-failed","detail":"d"}`), get,
			ReasonPartitionFailed},
		"what is not there":               {problem(404, `{"reason":"not-found","detail":"d"}`), get, ReasonNotFound},
		"a cancel whose answer is lost":   {hangUp, cancel, nil},
		"a cancel of unknown outcome":     {problem(503, unknown), cancel, nil},
		"a trigger whose answer is lost":  {hangUp, trigger, ReasonUnknownOutcome},
		"a trigger that was not written":  {problem(503, moving), trigger, nil},
		"a timer that may have fired":     {hangUp, in(waterclock.After(time.Second)), ReasonUnknownOutcome},
		"a timer that cannot have fired":  {hangUp, in(waterclock.After(time.Hour)), nil},
		"a recurrence that cannot either": {hangUp, in(waterclock.Every(time.Hour)), nil},
		"a recurrence that may":           {hangUp, in(waterclock.Cron("* * * * *")), ReasonUnknownOutcome},
		"an instant far away":             {hangUp, in(waterclock.At(time.Now().Add(time.Hour))), nil},
		"a timer that counts once": {hangUp, in(waterclock.After(0), waterclock.Remember(time.Hour),
			waterclock.If(waterclock.IfAbsent)), nil},
		"a job whose start is lost": {hangUp, job, ReasonUnknownOutcome},
		"a job that was not started": {problem(429, `{"reason":"too-many-jobs","detail":"d"}`), job,
			ReasonTooManyJobs},
		"a request that is in the log": {problem(503, `{"reason":"moving","detail":"d","request":"timers/0/1"}`),
			cancel, ReasonMoving},
	} {
		var second int
		cl := quick(t, Options{URLs: []string{served(t, c.first), served(t, func(w http.ResponseWriter,
			r *http.Request) {
			second++
			if strings.HasSuffix(r.URL.Path, "timers/cancel") {
				_, _ = io.WriteString(w, `{"job":{"id":"j"}}`)
				return
			}
			_, _ = io.WriteString(w, `{"outcome":"cancelled","topic":"timers"}`)
		})}})
		if err := c.call(t.Context(), cl); !errors.Is(err, c.want) || (c.want == nil) != (second == 1) {
			t.Errorf("%s: %v, and %d calls of the other instance", name, err, second)
		}
	}
}

// A client stays with the instance that answers, and asks the owner if it is told who that is.
func TestInstances(t *testing.T) {
	var calls [3]int
	urls := []string{"http://127.0.0.1:1"}
	for i := range calls {
		urls = append(urls, served(t, func(w http.ResponseWriter, r *http.Request) {
			if calls[i]++; r.URL.Path == "/owned" && i != 2 {
				refuse(w, 421, `{"reason":"elsewhere","detail":"d","owner":"`+urls[3]+`"}`)
				return
			}
			_, _ = io.WriteString(w, `{}`)
		}))
	}
	c := quick(t, Options{URLs: urls})
	for _, path := range []string{"/", "/", "/owned", "/owned"} {
		if err := c.Call(t.Context(), http.MethodGet, path, nil, nil, nil); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if calls != [3]int{3, 0, 2} {
		t.Errorf("calls of the instances that answer: %v", calls)
	}
}

// Attempts end with the context, with Options.RetryFor, or after one of each instance.
func TestRetriesEnd(t *testing.T) {
	calls := 0
	at := served(t, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.Header().Set("Retry-After", "1")
		refuse(w, 503, `{"reason":"moving","detail":"d"}`)
	})
	for name, c := range map[string]struct {
		retryFor, within time.Duration
		calls            int
		ends             error
	}{
		"once":        {-1, time.Minute, 1, nil},
		"not so long": {time.Millisecond, time.Minute, 1, nil},
		"the context": {time.Hour, 50 * time.Millisecond, 1, context.DeadlineExceeded},
		"again":       {1900 * time.Millisecond, time.Minute, 2, nil},
	} {
		calls = 0
		ctx, cancel := context.WithTimeout(t.Context(), c.within)
		_, err := quick(t, Options{URLs: []string{at}, RetryFor: c.retryFor}).Get(ctx, "timers", "a")
		if cancel(); !errors.Is(err, ReasonMoving) || calls != c.calls || c.ends != nil && !errors.Is(err, c.ends) {
			t.Errorf("%s: %v after %d calls", name, err, calls)
		}
	}
}

// A list has all pages, and its first error is the last item. It may be read twice.
func TestList(t *testing.T) {
	pages := map[string]string{
		"":  `{"timers":[{"id":"a"},{"idBase64":"/w=="}],"cursor":"1","missing":[{"partition":3,"detail":"away"}]}`,
		"1": `{"timers":[],"cursor":"2","missing":[{"partition":3,"detail":"away"},{"partition":1,"detail":"away"}]}`,
		"2": `{"timers":[{"id":"c","payload":{"bytes":0,"null":true}}]}`,
	}
	c := quick(t, Options{URLs: []string{served(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, pages[r.URL.Query().Get("cursor")])
	})}})
	list := c.List(t.Context(), "timers", Filter{})
	for range 2 {
		var ids []string
		var last error
		for timer, err := range list {
			if last = err; err == nil {
				ids = append(ids, timer.ID)
			}
		}
		if want := []string{"a", "\xff", "c"}; !slices.Equal(ids, want) || last == nil ||
			last.Error() != "partitions 1, 3 are missing: away" {
			t.Errorf("%q, %v", ids, last)
		}
	}
	delete(pages, "1")
	n := 0
	for timer, err := range list {
		if n++; (timer == nil) != (err != nil) {
			t.Errorf("%v, %v", timer, err)
		}
	}
	if n != 3 {
		t.Errorf("%d items, want 2 and an error", n)
	}
}

// A stream that breaks continues after the last event that arrived whole, until the API refuses, or does not answer for
// too long. A stream that cannot begin is an error at once.
func TestWatch(t *testing.T) {
	parts := []string{ // of consecutive streams; the last one is a refusal
		"id: 0:5\n\nid: 0:6\nevent: event\ndata: {\"id\":\"1\"}\n\nid: 0:7\ndata: {\"a\"",
		"id: 0:6\n\nid: 0:7\nevent: event\ndata: {\"id\":\"2\"}\n\nid: 0:9\n\nid: 0:10\ndata: {",
		"",
	}
	var from []string
	c := quick(t, Options{RetryFor: -1, URLs: []string{served(t, func(w http.ResponseWriter, r *http.Request) {
		from = append(from, r.Header.Get("Last-Event-ID"))
		switch n := len(from); {
		case n > len(parts):
			refuse(w, http.StatusGone, `{"status":410,"reason":"events-gone","detail":"no more"}`)
		case parts[n-1] == "":
			refuse(w, http.StatusServiceUnavailable, `{"status":503,"reason":"moving","detail":"starting"}`)
		default:
			_, _ = io.WriteString(w, parts[n-1])
		}
	})}})
	var got []string
	begun := 0
	events := func() (last error) {
		for e, err := range c.Watch(t.Context(), "timers", Events{Began: func() { begun++ }}) {
			if last = err; err == nil {
				got = append(got, e.ID+" at "+e.Position)
			}
		}
		return last
	}
	if err := events(); strings.Join(got, ", ") != "1 at 0:6, 2 at 0:7" || !errors.Is(err, ReasonEventsGone) {
		t.Errorf("%q, %v", got, err)
	}
	if begun != 1 {
		t.Errorf("said %d times that it has begun", begun)
	}
	if want := []string{"", "0:6", "0:9", "0:9"}; !slices.Equal(from, want) {
		t.Errorf("went on from %q, want %q", from, want)
	}

	parts, from = []string{""}, nil
	if err := events(); !errors.Is(err, ReasonMoving) || len(from) != 1 {
		t.Errorf("%v after %d calls", err, len(from))
	}

	parts, from, c.resumeTime = []string{"id: 0:1\n\n", "", "", ""}, nil, time.Nanosecond
	if err := events(); !errors.Is(err, ReasonMoving) || len(from) > 2 {
		t.Errorf("%v after %d calls", err, len(from))
	}
}

// Past events end with one that says so, and the caller may end a stream at any event.
func TestWatchThePast(t *testing.T) {
	var asked []string
	c := quick(t, Options{URLs: []string{served(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		_, _ = io.WriteString(w, "id: 0:6\nevent: event\ndata: {\"format\":1,\"type\":\"fired\",\"id\":\"a\"}\n\n"+
			"id: 0:7\nevent: later\ndata: {}\n\nid: 0:8\nevent: caught-up\ndata: {\"olderDeleted\":true}\n\n")
	})}})
	var got []string
	for e, err := range c.Watch(t.Context(), "timers", Events{Since: time.UnixMilli(5), Stop: true,
		Types: []waterclock.EventType{waterclock.EventFired, waterclock.EventCancelled}}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(e.Type))
	}
	if strings.Join(got, ", ") != "fired, caught-up" ||
		!slices.Equal(asked, []string{"follow=false&since=5&type=fired%2Ccancelled"}) {
		t.Errorf("%q, asked for %q", got, asked)
	}
	for range c.Watch(t.Context(), "timers", Events{}) {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for e, err := range c.Watch(ctx, "timers", Events{}) {
		if cancel(); e.ID != "a" && !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v", e, err)
		}
	}
}

// An event that is too large to be read would be too large again.
func TestEventThatIsTooLarge(t *testing.T) {
	calls := 0
	c := quick(t, Options{URLs: []string{served(t, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		_, _ = io.WriteString(w, "id: 0:5\n\nid: 0:6\nevent: event\ndata: {"+strings.Repeat(" ", maxProblem)+"}\n\n")
	})}})
	for _, err := range c.Watch(t.Context(), "timers", Events{}) {
		if err == nil || !strings.Contains(err.Error(), "token too long") || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
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
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"no URL":                {},
		`"127.0.0.1:8681"`:      {URLs: []string{"127.0.0.1:8681"}},
		`"http://a?b"`:          {URLs: []string{"http://a", "http://a?b"}},
		"one of Token and User": {URLs: []string{"http://a"}, User: "u", Token: "t"},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}
