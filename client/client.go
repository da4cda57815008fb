package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// callTimeout limits one attempt. It is longer than the service's wait for a decision.
	callTimeout = 30 * time.Second
	// dialTimeout limits the wait for a connection, so that an instance that is gone does not take all of it.
	dialTimeout = 5 * time.Second
	// maxAnswer limits the bytes of a response. maxProblem limits an error response, and a line of a stream of events.
	maxAnswer, maxProblem = 256 << 20, 1 << 20
	// defaultRetryFor is Options.RetryFor if it is 0.
	defaultRetryFor = 30 * time.Second
	// firstPause and longestPause bound the pause before an attempt, after all instances have been tried.
	firstPause, longestPause = 100 * time.Millisecond, 5 * time.Second
)

// Options of a Client.
type Options struct {
	// URLs are the addresses of instances' APIs: http:// or https://, host and port. The client stays with the first
	// one until it does not answer. All of them must belong to one group, and get the same credentials.
	URLs []string
	// Token is a bearer token. User and Password are the other way to log in.
	Token, User, Password string
	// Authorize adds credentials to a call, for example a token that expires. It is called for each attempt.
	Authorize func(*http.Request) error
	// HTTP makes the calls. If it is nil, the client has a transport of its own, with the system's authorities. It must
	// not follow redirects: they would take the credentials elsewhere.
	HTTP *http.Client
	// RetryFor limits how long a call is repeated, if its context does not end before: 30 s if it is 0. If it is
	// negative, each instance is tried once.
	RetryFor time.Duration
	// Producer writes requests to Kafka instead: see [Producer].
	Producer Producer
}

// Producer is an existing [kgo.Client]. It must use Java's partitioner, which is kgo's default. In a transaction the
// requests take effect when the transaction is committed.
type Producer interface {
	ProduceSync(ctx context.Context, rs ...*kgo.Record) kgo.ProduceResults
}

var _ Producer = (*kgo.Client)(nil)

// Client calls the API of a group of instances. It is safe for concurrent use, and need not be closed.
type Client struct {
	o     Options
	bases []string     // without a slash at the end
	first atomic.Int32 // index of the base that has answered last

	pause, resumePause, resumeTime time.Duration // the constants of these names, except in tests
}

// New returns a client. It makes no connection yet.
func New(o Options) (*Client, error) {
	c := &Client{o: o, pause: firstPause, resumePause: resumePause, resumeTime: resumeTime}
	for _, text := range o.URLs {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" ||
			u.User != nil {
			return nil, fmt.Errorf("URL %q: needs http://HOST:PORT or https://HOST:PORT", text)
		}
		c.bases = append(c.bases, strings.TrimSuffix(u.String(), "/"))
	}
	switch {
	case len(c.bases) == 0 && o.Producer == nil:
		return nil, errors.New("no URL of an instance is given")
	case o.Token != "" && o.User != "":
		return nil, errors.New("give one of Token and User")
	}
	c.o.RetryFor = cmp.Or(o.RetryFor, defaultRetryFor)
	if o.HTTP == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // net/http says so
		transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
		c.o.HTTP = &http.Client{Transport: transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return c, nil
}

// call is a call of the API.
type call struct {
	method, path string
	query        url.Values
	header       http.Header
	body         []byte
	// repeats reports whether the call may be repeated after its answer was lost; nil: it may not.
	repeats func() bool
}

// Path returns the path of a request topic, or of something below it. Each part is escaped, also the dots of "." and
// "..", which are IDs like any other.
func Path(topic string, below ...string) string {
	path := "/v1/topics"
	for _, part := range append([]string{topic}, below...) {
		part = url.PathEscape(part)
		if strings.Trim(part, ".") == "" {
			part = strings.ReplaceAll(part, ".", "%2E")
		}
		path += "/" + part
	}
	return path
}

// Call makes any call of the API that has no method of its own, and decodes the response into out, unless that is nil.
// A body is sent as JSON, unless it is nil, and a json.RawMessage as it is. Only a GET is repeated after its answer was
// lost.
func (c *Client) Call(ctx context.Context, method, path string, query url.Values, body, out any) error {
	q := &call{method: method, path: path, query: query, header: make(http.Header)}
	if raw, ok := body.(json.RawMessage); ok {
		q.body = raw
		q.header.Set("Content-Type", "application/json")
	} else if body != nil {
		var err error
		if q.body, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode the body of %s: %w", path, err)
		}
		q.header.Set("Content-Type", "application/json")
	}
	if method == http.MethodGet {
		q.repeats = always
	}
	_, err := c.answer(ctx, q, out)
	return err
}

// answer makes a call and decodes the response into out, unless that is nil.
func (c *Client) answer(ctx context.Context, q *call, out any) (repeated bool, err error) {
	return c.do(ctx, q, func(_ context.Context, base string, resp *http.Response) error {
		return decode(base, resp, out)
	})
}

// get reads the response at a path into out.
func (c *Client) get(ctx context.Context, path string, query url.Values, out any) error {
	return c.Call(ctx, http.MethodGet, path, query, nil, out)
}

func always() bool { return true }

// decode reads a response into out, unless that is nil.
func decode(base string, resp *http.Response, out any) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &NoAnswerError{base, err}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return &strangeError{status: resp.StatusCode,
			text: fmt.Sprintf("the response of %s is not from its API: %v", base, err)}
	}
	return nil
}

// do makes a call until an attempt succeeds, and has read take its response. repeated reports that the answer to an
// earlier attempt was lost.
func (c *Client) do(ctx context.Context, q *call,
	read func(ctx context.Context, base string, resp *http.Response) error) (repeated bool, err error) {
	if len(c.bases) == 0 {
		return false, errors.New("Options.URLs is empty: there is only a producer")
	}
	ends := time.Now().Add(c.o.RetryFor)
	at := int(c.first.Load())
	var unknown error // of the last attempt whose answer was lost
	for n, pause := 1, c.pause; ; n++ {
		base := c.bases[at]
		if err = c.try(ctx, base, q, read); err == nil {
			c.first.Store(int32(at)) //nolint:gosec // a list of addresses is short
			return repeated, nil
		}
		e, _ := errors.AsType[*Error](err)
		switch now := fateOf(err); {
		case now == lost && ctx.Err() != nil && q.method == http.MethodGet, now == final:
			if e != nil { // it has answered
				e.Repeated = repeated
				c.first.Store(int32(at)) //nolint:gosec // a list of addresses is short
			}
			return repeated, err
		case now == lost && (ctx.Err() != nil || q.repeats == nil || !q.repeats()):
			return repeated, unknownOutcome(err)
		case now == lost:
			unknown, repeated = err, true
		}
		wait := time.Duration(0)
		if n%len(c.bases) == 0 { // all of them have been tried
			wait = pause/2 + rand.N(pause)
			if pause = min(2*pause, longestPause); e != nil {
				wait = max(wait, e.RetryAfter)
			}
			if time.Now().Add(wait).After(ends) {
				return repeated, c.gaveUp(q, unknown, err)
			}
		}
		at = (at + 1) % len(c.bases)
		if e != nil && e.Reason == ReasonElsewhere {
			if owner := slices.Index(c.bases, strings.TrimSuffix(e.Owner, "/")); owner >= 0 {
				at = owner
			}
		}
		select {
		case <-ctx.Done():
			return repeated, errors.Join(c.gaveUp(q, unknown, err), ctx.Err())
		case <-time.After(wait):
		}
	}
}

// gaveUp returns the error of a call whose attempts are used up. If the answer to one of them was lost, the outcome of
// a call that changes something is unknown, whatever the last attempt says.
func (c *Client) gaveUp(q *call, unknown, last error) error {
	if unknown != nil && q.method != http.MethodGet {
		return unknownOutcome(unknown)
	}
	return last
}

// unknownOutcome returns the error for a call whose answer is lost.
func unknownOutcome(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Reason == ReasonUnknownOutcome {
		return err
	}
	return &Error{Reason: ReasonUnknownOutcome, Detail: err.Error() + "; the call may or may not have been done",
		cause: err}
}

// try makes one attempt.
func (c *Client) try(ctx context.Context, base string, q *call,
	read func(ctx context.Context, base string, resp *http.Response) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(callTimeout, func() { cancel(context.DeadlineExceeded) })
	defer limit.Stop()
	resp, err := c.respond(ctx, base, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if q.header.Get("Accept") == streamType {
		limit.Stop()
	}
	return read(ctx, base, resp)
}

// respond returns a successful response.
func (c *Client) respond(ctx context.Context, base string, q *call) (*http.Response, error) {
	target := base + q.path
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, q.method, target, bytes.NewReader(q.body))
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", base, err)
	}
	req.Header = q.header.Clone()
	switch {
	case c.o.Authorize != nil:
		if err := c.o.Authorize(req); err != nil {
			return nil, fmt.Errorf("authorize a call of %s: %w", base, err)
		}
	case c.o.Token != "":
		req.Header.Set("Authorization", "Bearer "+c.o.Token)
	case c.o.User != "":
		req.SetBasicAuth(c.o.User, c.o.Password)
	}
	resp, err := c.o.HTTP.Do(req)
	if err != nil {
		if parts, ok := errors.AsType[*url.Error](err); ok {
			err = parts.Err // without the URL
		}
		return nil, &NoAnswerError{base, err}
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	return nil, problemOf(base, resp, body)
}
