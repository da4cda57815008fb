package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
)

// maxAnswer limits a response of the API, in bytes. A page of 50 timers, or one timer with its payload in base64, is
// far smaller.
const maxAnswer = 32 << 20

// wrong returns a problem found by the console itself.
func wrong(status int, detail string) *api.Problem {
	return &api.Problem{Problem: *access.NewProblem(status, "", detail)}
}

// bad returns the problem of an address or a form that is wrong.
func bad(detail string) *api.Problem { return wrong(http.StatusBadRequest, detail) }

// heading returns a problem in a word or two.
func heading(p *api.Problem) string {
	return cmp.Or(p.Title, http.StatusText(p.Status), "Something is wrong")
}

// again reports whether the same call may work in a moment.
func again(p *api.Problem) bool {
	switch p.Reason {
	case api.ReasonFailed, api.ReasonKafka, api.ReasonUnknownOutcome, api.ReasonNotWritten:
		return false // the detail explains what to do
	}
	return p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests
}

// asProblem converts an error of ask to a problem.
func asProblem(err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	return wrong(http.StatusBadGateway, err.Error())
}

// call is one call of the API.
type call struct {
	method string
	path   []string // segments behind /v1, not escaped
	query  url.Values
	header http.Header
	body   any // as JSON; nil: none
}

// target returns the call's URL. Every character of a segment that has a meaning in a path is escaped. That includes
// the dots of "." and "..", which are IDs like any other.
func (c *call) target() string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range c.path {
		b.WriteByte('/')
		s = url.PathEscape(s)
		if strings.Trim(s, ".") == "" {
			s = strings.ReplaceAll(s, ".", "%2E")
		}
		b.WriteString(s)
	}
	if len(c.query) > 0 {
		b.WriteString("?" + c.query.Encode())
	}
	return b.String()
}

// asker calls the API, within the process and in the name of the caller of a page.
type asker struct {
	api http.Handler
	r   *http.Request // for the page

	counted bool // dead is the API's response
	dead    *api.DeadLetterCountList

	known  bool // caller is the API's response
	caller *api.Caller
}

// ask reads the response to a call into out. If the API responds with a problem, the error is a *api.Problem.
func (a *asker) ask(c call, out any) error { return a.askWithin(a.r.Context(), c, out) }

// askWithin is ask with a context, which is derived from that of the page's request.
func (a *asker) askWithin(ctx context.Context, c call, out any) error {
	var body io.Reader = http.NoBody // a server's form of nil
	if c.body != nil {
		b, err := json.Marshal(c.body)
		if err != nil {
			return fmt.Errorf("encode a call of the API: %w", err)
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, cmp.Or(c.method, http.MethodGet), c.target(), body)
	if err != nil {
		return fmt.Errorf("make a call of the API: %w", err)
	}
	maps.Copy(r.Header, c.header)
	r.Host, r.RemoteAddr, r.TLS, r.RequestURI = a.r.Host, a.r.RemoteAddr, a.r.TLS, c.target()
	w := &answer{header: make(http.Header)}
	a.api.ServeHTTP(w, r)
	switch {
	case w.cut:
		return fmt.Errorf("the response of the API has more than %d MiB, too much for a page", maxAnswer>>20)
	case w.status >= http.StatusBadRequest:
		return w.problem()
	case out == nil || w.body.Len() == 0:
		return nil
	}
	if err := json.Unmarshal(w.body.Bytes(), out); err != nil {
		return fmt.Errorf("cannot read the response of the API: %w", err)
	}
	return nil
}

// answer is an http.ResponseWriter that stores the response. Handlers set deadlines, which have no effect on it.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
	cut    bool
}

func (a *answer) Header() http.Header              { return a.header }
func (a *answer) SetReadDeadline(time.Time) error  { return nil }
func (a *answer) SetWriteDeadline(time.Time) error { return nil }
func (a *answer) Flush()                           {}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.body.Len()+len(b) > maxAnswer {
		a.cut = true
		return 0, errors.New("the response is too long for a page")
	}
	return a.body.Write(b)
}

// problem returns the problem in the response of the API, or of the guard before it.
func (a *answer) problem() *api.Problem {
	p := &api.Problem{}
	if json.Unmarshal(a.body.Bytes(), p) != nil || p.Detail == "" {
		text := strings.TrimSpace(a.body.String())
		p = &api.Problem{}
		p.Detail = text[:min(len(text), 500)]
	}
	p.Status = a.status
	if s, err := strconv.Atoi(a.header.Get("Retry-After")); err == nil {
		p.RetryAfter = time.Duration(s) * time.Second
	}
	return p
}

// deadLetters returns the counts of the topics that the caller may read; nil if they are not known.
func (a *asker) deadLetters() *api.DeadLetterCountList {
	if !a.counted {
		a.counted = true
		var all api.DeadLetterCountList
		if a.ask(call{path: []string{"dead-letters"}}, &all) == nil {
			a.dead = &all
		}
	}
	return a.dead
}

// topics returns the request topics that the caller may read.
func (a *asker) topics() ([]api.TopicInfo, error) {
	var all api.TopicList
	err := a.ask(call{path: []string{"topics"}}, &all)
	return all.Topics, err
}

// chosen returns the topic that the page's address or form names, or else the first topic; and the names of all topics
// that the caller may see in part.
func (v *visit) chosen() (topic string, names []string, err error) {
	all, err := v.topics()
	for _, t := range all {
		names = append(names, t.Topic)
	}
	if self := v.self(); self != nil {
		for _, r := range self.Rights {
			if !slices.Contains(names, r.Topic) {
				names = append(names, r.Topic)
			}
		}
	}
	topic = cmp.Or(v.query("topic"), v.r.PostForm.Get("topic"))
	if topic == "" && len(names) > 0 {
		topic = names[0]
	}
	return topic, names, err
}
