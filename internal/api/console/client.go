package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
)

// maxAnswer bounds what is taken of an answer of the API, in bytes: a page of 50 timers, or
// one timer with its payload in base64, has far less.
const maxAnswer = 32 << 20

// wrong is a problem that the console has found itself.
func wrong(status int, detail string) *api.Problem {
	return &api.Problem{Problem: *access.NewProblem(status, "", detail)}
}

// heading is a problem in a word or two.
func heading(p *api.Problem) string {
	return cmp.Or(p.Title, http.StatusText(p.Status), "Something is wrong")
}

// again reports whether the same may work in a moment.
func again(p *api.Problem) bool {
	switch p.Reason {
	case api.ReasonFailed, api.ReasonKafka, api.ReasonUnknownOutcome, api.ReasonNotWritten:
		return false // the detail says what to do
	}
	return p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests
}

// asProblem is an error of ask.
func asProblem(err error) *api.Problem {
	var p *api.Problem
	if errors.As(err, &p) {
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

// target is the call's URL. A segment is escaped until nothing of it means something in a
// path, "." and ".." too, which are IDs like any other.
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

// ask calls the API within the process, for the caller of the page, and reads its answer into
// out. An error is a *api.Problem where the API says so.
func (v *visit) ask(c call, out any) error { return v.askWithin(v.r.Context(), c, out) }

// askWithin is ask for as long as a context, which is one of the page's, lasts.
func (v *visit) askWithin(ctx context.Context, c call, out any) error {
	w, err := v.do(ctx, c)
	if err != nil {
		return err
	}
	if w.status >= http.StatusBadRequest {
		return w.problem()
	}
	if out == nil || w.body.Len() == 0 {
		return nil
	}
	if err := json.Unmarshal(w.body.Bytes(), out); err != nil {
		return fmt.Errorf("what the API answers cannot be read: %w", err)
	}
	return nil
}

func (v *visit) do(ctx context.Context, c call) (*answer, error) {
	var body io.Reader = http.NoBody // a server's requests have one
	if c.body != nil {
		b, err := json.Marshal(c.body)
		if err != nil {
			return nil, fmt.Errorf("encode a call of the API: %w", err)
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, cmp.Or(c.method, http.MethodGet), c.target(), body)
	if err != nil {
		return nil, fmt.Errorf("make a call of the API: %w", err)
	}
	for name, values := range c.header {
		r.Header[name] = values
	}
	r.Host, r.RemoteAddr, r.TLS, r.RequestURI = v.r.Host, v.r.RemoteAddr, v.r.TLS, c.target()
	w := &answer{header: make(http.Header)}
	v.c.o.API.ServeHTTP(w, r)
	if w.cut {
		return nil, fmt.Errorf("the API answers with more than %d MiB, which no page shows", maxAnswer>>20)
	}
	return w, nil
}

// answer is an http.ResponseWriter that keeps what is written. It takes deadlines as a
// connection does, since handlers set them, and has none.
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
		return 0, errors.New("the answer is too long for a page")
	}
	return a.body.Write(b)
}

// problem is what the API, or the guard before it, says is wrong.
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

// topics are the request topics that the caller may read.
func (v *visit) topics() ([]api.TopicInfo, error) {
	var all struct {
		Topics []api.TopicInfo `json:"topics"`
	}
	err := v.ask(call{path: []string{"topics"}}, &all)
	return all.Topics, err
}

// chosen is the topic that a page is about: the one that its address or form names, else the
// first. Names are those to choose from.
func (v *visit) chosen() (topic string, names []string, err error) {
	all, err := v.topics()
	for _, t := range all {
		names = append(names, t.Topic)
	}
	topic = cmp.Or(v.query("topic"), v.r.PostForm.Get("topic"))
	if topic == "" && len(names) > 0 {
		topic = names[0]
	}
	return topic, names, err
}
