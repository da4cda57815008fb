package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafka/tracing"
	"github.com/waterclock/waterclock/internal/timer"
)

// traced begins the span of a call, by the semantic conventions for HTTP servers. It continues the trace of the call's
// traceparent. end takes the status of the answer.
func traced(tracer trace.Tracer, pattern string, r *http.Request) (ctx context.Context, end func(status int)) {
	ctx = propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	method, path, _ := strings.Cut(pattern, " ")
	ctx, span := tracer.Start(ctx, pattern, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		semconv.HTTPRequestMethodKey.String(method), semconv.HTTPRoute(path), semconv.URLPath(r.URL.EscapedPath()),
		attribute.String("waterclock.request", access.RequestOf(ctx))))
	if c := span.SpanContext(); c.IsSampled() {
		access.Traced(ctx, c.TraceID().String())
	}
	return ctx, func(status int) {
		span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// addParent gives a request the trace context of its call, if the call is sampled, the request has none, and it takes
// no more than room bytes.
func addParent(ctx context.Context, r *route.Request, room int) {
	parent := tracing.Parent(ctx)
	if parent == "" || headerOverhead+len(tracing.Traceparent)+len(parent) > room {
		return
	}
	if !slices.ContainsFunc(r.Headers, func(h timer.Header) bool { return h.Key == tracing.Traceparent }) {
		r.Headers = append(slices.Clip(r.Headers), timer.Header{Key: tracing.Traceparent, Value: []byte(parent)})
	}
}
