package api

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafka/tracing"
	"github.com/waterclock/waterclock/internal/timer"
)

// A request gets the trace context of a sampled call, unless it has one already or would then be too large for its
// topic.
func TestRequestsGetTheTraceContextOfTheirCall(t *testing.T) {
	call := func(flags trace.TraceFlags) context.Context {
		return trace.ContextWithSpanContext(
			t.Context(), trace.NewSpanContext(
				trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags}))
	}
	const own = "00-01000000000000000000000000000000-0200000000000000-01"
	size := recordOverhead + 1 + 2
	for _, x := range []struct {
		name      string
		ctx       context.Context
		had, want string
		max       int
	}{
		{"sampled", call(trace.FlagsSampled), "", own, 1000},
		{"not sampled", call(0), "", "", 1000},
		{"no span", t.Context(), "", "", 1000},
		{"it has one", call(trace.FlagsSampled), "other", "other", 1000},
		{"room for it", call(trace.FlagsSampled), "", own, size + headerOverhead + len(tracing.Traceparent) + len(own)},
		{"no room for it", call(trace.FlagsSampled), "", "", size + headerOverhead + len(tracing.Traceparent) +
			len(own) - 1},
		{"no room at all", call(trace.FlagsSampled), "", "", size},
	} {
		shared := make([]timer.Header, 0, 2) // its spare capacity belongs to others
		r := route.Request{ID: []byte("a"), Value: []byte("vv"), Headers: shared}
		if x.had != "" {
			r.Headers = append(r.Headers, timer.Header{Key: tracing.Traceparent, Value: []byte(x.had)})
		}
		if err := finish(x.ctx, &r, Topic{MaxBytes: x.max}, 0); err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		got := ""
		for _, h := range r.Headers {
			if h.Key == tracing.Traceparent {
				got += string(h.Value)
			}
		}
		if got != x.want {
			t.Errorf("%s: it has the context %q, want %q", x.name, got, x.want)
		}
		if x.had == "" && shared[:1][0].Key != "" {
			t.Errorf("%s: headers of others were changed", x.name)
		}
	}
	r := route.Request{ID: []byte("a"), Value: []byte("vv")}
	if err := finish(t.Context(), &r, Topic{MaxBytes: size - 1}, 0); err == nil {
		t.Error("a request that the topic does not take")
	}
}
