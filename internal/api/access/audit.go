package access

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxLogged limits a text that a caller has chosen, in a log line.
const maxLogged = 1024 // bytes

// maxTimers and maxTimerBytes limit the IDs of timers in a line, by number and by bytes;
// the rest are only counted.
const maxTimers, maxTimerBytes = 100, 8 << 10

// audit writes one line for a call that changes something, or tried to: the caller, what it did, its address, and the
// status. The line has the path and the query, which name timers and never hold payloads, the IDs of the timers for
// which requests were written, and the request's ID. It has no other header and nothing else of a body. A rejected call
// has no line, because strangers could fill the audit with them: see [Guard.logRejected].
func (g *Guard) audit(r *http.Request, c *call, status int, took time.Duration) {
	if safe(r.Method) || c.caller.Name == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g.auditor.LogAttrs(context.WithoutCancel(r.Context()), slog.LevelInfo, "audit", slog.String("request", c.request),
		slog.String("method", loggable(r.Method)), slog.String("path", loggable(r.URL.EscapedPath())),
		slog.String("query", loggable(r.URL.RawQuery)), slog.String("caller", c.caller.Name), c.caller.person(),
		slog.Bool("forwarded", c.caller.Forwarded), slog.String("remote", r.RemoteAddr),
		slog.Int("status", status), slog.String("topic", loggable(c.topic)), slog.String("timer", loggable(c.id)),
		slog.Int("asked", c.asked), slog.Any("timers", c.timers), slog.Int("more", c.more), slog.Duration("took", took),
		traceAttr(c.trace))
}

// traceAttr returns the trace as an attribute. For a call without a span it is empty, and handlers leave it out.
func traceAttr(id string) slog.Attr {
	if id == "" {
		return slog.Attr{}
	}
	return slog.String("trace_id", id)
}

// Traced records for the audit the ID of the trace to which ctx's call belongs.
func Traced(ctx context.Context, id string) {
	if c := callOf(ctx); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.trace = id
	}
}

// Wrote records for the audit that ctx's call writes a request for a timer.
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

// loggable makes a caller's text fit for a line: short, and without anything that could mislead a
// terminal or its reader. Log handlers quote line breaks, but not all of them quote characters that
// turn the direction of writing.
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
