// Package client calls the HTTP API for the command line: with a name or a token, and with errors that suggest a
// remedy.
//
//	c, err := client.New(client.Options{URL: "http://127.0.0.1:8681"})
//	err = c.Call(ctx, http.MethodGet, client.Timers("timers", id), nil, &timer)
//
// Programs use any HTTP client and /openapi.json.
package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// callTimeout limits one call. It is longer than the wait for a decision.
	callTimeout = 30 * time.Second
	// maxAnswer limits the bytes of a response. maxProblem limits an error response, and a line of a stream of
	// events.
	maxAnswer, maxProblem = 256 << 20, 1 << 20
	// resumePause is the pause before an ended stream of events is resumed; resumeTime limits the attempts.
	resumePause, resumeTime = time.Second, time.Minute
	// streamQuiet is the silence after which a stream counts as broken: signs of life come every 15 s.
	streamQuiet = time.Minute
)

// Options select an API and the credentials for it.
type Options struct {
	URL          string // http:// or https://, host and port
	User         string // with PasswordFile
	PasswordFile string
	TokenFile    string // instead of a user
	CA           string // PEM file of authorities, in addition to the system's
}

// Client calls one API. Its methods may be called from any goroutine.
type Client struct {
	base     string
	user     string
	password string
	token    string
	http     *http.Client

	pause, patience time.Duration // resumePause and resumeTime, except in tests
}

// Problem is a rejected call: a response of the API in the form of RFC 9457.
type Problem struct{ api.Problem }

// Error describes the problem, and the part of the call that it is about.
func (p *Problem) Error() string {
	text := strings.TrimSuffix(p.Detail, ".")
	for _, e := range p.Errors {
		if strings.Contains(text, e.Message) {
			continue // the detail contains it
		}
		text += fmt.Sprintf("; %s: %s", e.Location, e.Message)
	}
	if text == "" {
		text = p.Title
	}
	if p.Reason != "" {
		text = p.Reason + ": " + text
	}
	return Printable(text)
}

// Printable returns a text from an untrusted source without terminal control sequences.
func Printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// New reads what the options name. An error names the option.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("--url is %q, needs http://HOST:PORT or https://HOST:PORT", o.URL)
	}
	c := &Client{base: strings.TrimSuffix(u.String(), "/"), user: o.User, pause: resumePause, patience: resumeTime}
	if c.token, err = secret("--token-file", o.TokenFile); err != nil {
		return nil, err
	}
	if c.password, err = secret("--password-file", o.PasswordFile); err != nil {
		return nil, err
	}
	switch {
	case (o.User == "") != (o.PasswordFile == ""):
		return nil, errors.New("--user and --password-file must be set together")
	case c.token != "" && o.User != "":
		return nil, errors.New("--token-file and --user exclude each other")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca: %s has no certificate in PEM form", o.CA)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	c.http = &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

func secret(option, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", option, err)
	}
	if text = bytes.TrimRight(text, "\r\n"); len(text) == 0 {
		return "", fmt.Errorf("%s: %s is empty", option, file)
	}
	return string(text), nil
}

// Timers returns the path of a request topic's timers, or of something below it. Each part is escaped.
func Timers(topic string, below ...string) string {
	path := "/v1/topics/" + url.PathEscape(topic) + "/timers"
	for _, part := range below {
		path += "/" + url.PathEscape(part)
	}
	return path
}

// Call makes a call and decodes the response into out, unless it is nil. If the API rejects the call the error is a
// [*Problem].
func (c *Client) Call(ctx context.Context, method, path string, query url.Values, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.do(ctx, method, path, query, make(http.Header))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("read the response of %s: %w", c.base, err)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("the response of %s is not from its API: %w; does --url name the API, and no proxy?",
			c.base, err)
	}
	return nil
}

// Events calls began once there is a first connection, and then fn with the name and the data of each server-sent
// event, until ctx ends, fn returns an error, or the API rejects the call. If a stream ends by itself, or breaks, it
// continues after the last event that fn received. After resumeTime without a response, the error explains why. If
// the stream cannot begin, Events fails immediately.
func (c *Client) Events(
	ctx context.Context, path string, query url.Values, began func(), fn func(name string, data []byte) error,
) error {
	s := stream{c: c, began: began, fn: fn}
	var lost time.Time // when the last connection ended
	for {
		began, err := s.read(ctx, path, query)
		if began {
			lost = time.Now()
		}
		p, ok := errors.AsType[*Problem](err)
		refused := ok && p.Status != http.StatusServiceUnavailable && p.Status != http.StatusTooManyRequests
		over := !began && (refused || time.Since(lost) >= c.patience)
		if over || ctx.Err() != nil || s.failed != nil || s.last == "" {
			return errors.Join(s.failed, err)
		}
		beats.Sleep(ctx, c.pause)
	}
}

// stream is a stream of server-sent events, over any number of connections.
type stream struct {
	c      *Client
	began  func() // nil: it has been called
	fn     func(name string, data []byte) error
	failed error  // of fn: ends the stream
	last   string // ID of the last event, or sign of life, that has arrived completely
}

// read calls fn until a connection ends, or is silent for streamQuiet. began reports that there was a connection.
func (s *stream) read(ctx context.Context, path string, query url.Values) (began bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	header := make(http.Header)
	if s.last != "" {
		header.Set("Last-Event-ID", s.last)
	}
	resp, err := s.c.do(ctx, http.MethodGet, path, query, header)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if s.began != nil {
		s.began()
		s.began = nil
	}
	quiet := time.AfterFunc(streamQuiet, cancel)
	defer quiet.Stop()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxProblem)
	id, event, data := s.last, "", []byte(nil)
	for lines.Scan() {
		quiet.Reset(streamQuiet)
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		switch value = bytes.TrimSpace(value); {
		case string(name) == "id":
			id = string(value)
		case string(name) == "event":
			event = string(value)
		case string(name) == "data":
			data = bytes.Clone(value)
		case len(lines.Bytes()) == 0: // the end of an event
			if data != nil {
				s.failed = s.fn(event, data)
			}
			if s.failed != nil {
				return true, nil
			}
			s.last, event, data = id, "", nil
		}
	}
	if err := lines.Err(); err != nil {
		err = fmt.Errorf("read the events of %s: %w", s.c.base, err)
		if errors.Is(err, bufio.ErrTooLong) { // a retry would get it again
			s.failed, err = err, nil
		}
		return true, err
	}
	return true, fmt.Errorf("%s has ended the stream of events", s.c.base)
}

// do makes a call and returns a successful response.
func (c *Client) do(ctx context.Context, method, path string, query url.Values,
	header http.Header) (*http.Response, error) {
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	switch {
	case c.token != "":
		req.Header.Set("Authorization", "Bearer "+c.token)
	case c.user != "":
		req.SetBasicAuth(c.user, c.password)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if bytes.Contains(body, []byte("HTTP request to an HTTPS server")) {
		return nil, fmt.Errorf("%s speaks HTTPS: name it with https://", c.base)
	}
	p := &Problem{}
	p.Title = resp.Status
	if json.Unmarshal(body, p) != nil || p.Detail == "" && p.Title == "" {
		return nil, fmt.Errorf("%s responded with %s, which is not from its API; does --url name it?", c.base,
			resp.Status)
	}
	p.Status = resp.StatusCode
	return nil, p
}

// unreachable explains why there is no response.
func (c *Client) unreachable(err error) error {
	if wrong, ok := errors.AsType[*url.Error](err); ok {
		err = wrong.Err
	}
	if network, ok := errors.AsType[*net.OpError](err); ok && network.Op == "dial" {
		return fmt.Errorf("no HTTP API at %s: %w; dev has one, serve with --api; --url or WATERCLOCK_URL names it",
			c.base, err)
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("%s does not respond; does --url name an instance's API, and not a broker?", c.base)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s speaks HTTP without TLS: name it with http://", c.base)
	case untrusted:
		return fmt.Errorf("call %s: %w; --ca names a file of the authorities that this machine does not know",
			c.base, err)
	}
	return fmt.Errorf("call %s: %w", c.base, err)
}
