package access

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/kit/metric"
)

// maxLogged limits a caller's text in a log line.
const maxLogged = 1024 // bytes

// maxTimers and maxTimerBytes limit the IDs of timers in a line, by number and by bytes; the rest are only counted.
const maxTimers, maxTimerBytes = 100, 8 << 10

// audit writes one line for a call that changes something, or tried to: the caller, its address, the call, and the
// status. The line has the path and the query, which name timers and never hold payloads, the IDs of the timers for
// which requests were written, and the request's ID. It has no other header and nothing else of a body. A rejected
// call has no line, because strangers could fill the audit with them: see [Guard.logRejected].
func (g *Guard) audit(r *http.Request, c *call, status int, took time.Duration) {
	if safe(r.Method) || c.caller.Name == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g.auditor.LogAttrs(context.WithoutCancel(r.Context()), slog.LevelInfo, "audit", slog.String("request", c.request),
		slog.String("method", loggable(r.Method)), slog.String("path", loggable(r.URL.EscapedPath())),
		slog.String("query", loggable(r.URL.RawQuery)), slog.String("caller", c.caller.Name),
		optional("user", loggable(c.caller.User)), slog.Bool("forwarded", c.caller.Forwarded),
		slog.String("remote", r.RemoteAddr), slog.Int("status", status),
		slog.String("topic", loggable(c.topic)), slog.String("timer", loggable(c.id)), slog.Int("asked", c.asked),
		slog.Any("timers", c.timers), slog.Int("more", c.more), slog.Duration("took", took),
		optional("trace_id", c.trace))
}

// optional returns an attribute. Without a value it is empty, and handlers leave it out.
func optional(name, value string) slog.Attr {
	if value == "" {
		return slog.Attr{}
	}
	return slog.String(name, value)
}

// Traced records the ID of the trace to which ctx's call belongs, for the audit.
func Traced(ctx context.Context, id string) {
	if c := callOf(ctx); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.trace = id
	}
}

// Wrote records that ctx's call writes a request for a timer, for the audit.
func Wrote(ctx context.Context, id string) {
	c := callOf(ctx)
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id = loggable(id)
	if len(c.timers) >= maxTimers || c.timerBytes+len(id) > maxTimerBytes {
		c.more++
		return
	}
	c.timers, c.timerBytes = append(c.timers, id), c.timerBytes+len(id)
}

// safe reports whether a method changes nothing (RFC 9110, 9.2.1).
func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// loggable makes a caller's text fit for a line: short, and without anything that could mislead a terminal or its
// reader. Log handlers quote line breaks, but not all of them quote characters that reverse the direction of writing.
func loggable(s string) string {
	if len(s) > maxLogged {
		s = strings.ToValidUTF8(s[:maxLogged], "") + "…"
	}
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	q := strconv.QuoteToASCII(s)
	return q[1 : len(q)-1]
}

// Recorder records the status of a response: the first final one. Later ones are dropped.
type Recorder struct {
	http.ResponseWriter

	status int
	begun  func() // called when the response begins; may be nil
}

// Status returns the status of the response; 0 if it has not begun.
func (r *Recorder) Status() int { return r.status }

// WriteHeader implements http.ResponseWriter.
func (r *Recorder) WriteHeader(status int) {
	if r.status != 0 {
		return
	}
	if status >= http.StatusOK { // otherwise it is only informational
		r.begin(status)
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *Recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.begin(http.StatusOK)
	}
	return r.ResponseWriter.Write(b)
}

func (r *Recorder) begin(status int) {
	if r.status = status; r.begun != nil {
		r.begun()
	}
}

// Final returns the status of a response whose handler has ended or panicked.
func (r *Recorder) Final(ended bool) int {
	switch {
	case !ended:
		return http.StatusInternalServerError
	case r.status == 0:
		return http.StatusOK // the server's response if nothing was written
	}
	return r.status
}

// Unwrap is for http.ResponseController.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// A request ID identifies a call in its response, in problems, in the audit, and at the instance that it is forwarded
// to. A caller may bring one. It is only a label: two callers may choose the same one.
const (
	// RequestHeader has the ID in calls and in responses. hopHeader has it in calls between instances, where it is
	// signed like every header of ours.
	RequestHeader = "X-Request-Id"
	hopHeader     = "Waterclock-Request-Id"

	maxRequestID = 128 // characters
)

// requestID returns the ID in a header if it is valid, otherwise a new one.
func requestID(given []string) string {
	if len(given) == 1 && isRequestID(given[0]) {
		return given[0]
	}
	return RandomID()
}

// RandomID returns 128 random bits as text.
func RandomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// isRequestID reports whether a text can be used unchanged in a log line, a header and a URL.
func isRequestID(s string) bool {
	return len(s) > 0 && len(s) <= maxRequestID && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
			!strings.ContainsRune("._~:/+=@-", r)
	}) < 0
}

// identified gives a call its ID, and adds it to the response.
func (c *call) identified(w http.ResponseWriter, id string) {
	c.request = id
	w.Header().Set(RequestHeader, id)
}

// RequestOf returns the ID of ctx's call; "" if ctx belongs to no call.
func RequestOf(ctx context.Context) string {
	if c := callOf(ctx); c != nil {
		return c.request
	}
	return ""
}

// Reasons returns all reasons with which the guard rejects calls.
func Reasons() []string {
	return []string{
		ReasonBadRequest, ReasonUnauthenticated, ReasonForwardRefused, ReasonUnknownCaller, ReasonCrossOrigin,
		ReasonBodyTimeout, ReasonTooLarge,
		ReasonTargetTooLong, ReasonWrongHost, ReasonTooManyHeaders, ReasonRateLimited, ReasonTooManyCalls,
		ReasonTooManyFailures, ReasonOverloaded, ReasonIssuerUnavailable,
	}
}

// newRejected returns the metric that counts the calls that the guard rejects.
func newRejected(reg prometheus.Registerer) *prometheus.CounterVec {
	rejected := metric.In(reg).Counters("waterclock_api_refused_total",
		"Calls to the API's address that were rejected before their operation was looked up, by reason.", "reason")
	for _, r := range Reasons() {
		rejected.WithLabelValues(r) // so that 0 is shown
	}
	return rejected
}
